"""The launching script, saved with an experiment so that its functions can be found again."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

EXTERNAL_MAIN = "__external_main__"


def main_source() -> str:
    """Return the source of the running main script; empty where there is none (REPL, notebook)."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if not path or (getattr(main, "__spec__", None) is not None and not str(path).endswith(".py")):
        return ""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def merge_saved_main(exp_dir: Path, *, replace: bool = False) -> None:
    """Execute the saved script, once, and add its public names to the running main module.

    What stands under ``if __name__ == "__main__"`` does not run. With ``replace``, names that
    the main module has already get the saved script's meaning.
    """
    path = exp_dir / "__main__.py"
    if EXTERNAL_MAIN in sys.modules or not path.is_file() or not path.stat().st_size:
        return
    spec = importlib.util.spec_from_file_location(EXTERNAL_MAIN, path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[EXTERNAL_MAIN] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[EXTERNAL_MAIN]
        raise
    main = sys.modules["__main__"]
    for name, value in vars(module).items():
        if not name.startswith("_") and (replace or not hasattr(main, name)):
            setattr(main, name, value)
