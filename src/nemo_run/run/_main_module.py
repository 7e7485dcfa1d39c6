"""The launching script, saved with an experiment so that its functions can be found again."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from nemo_run.core.serialization._envelope import unseal
from nemo_run.core.serialization._format import EXTERNAL_MAIN
from nemo_run.exceptions import ConfigError


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


class LaunchedWhileLoadingError(ConfigError):
    """The saved script came to the point where it launches, which it did already."""


def names_main(text: str) -> bool:
    """Tell whether a stored task names something in the launching script."""
    return '"module": "__main__"' in json.dumps(unseal(text))


def check_not_loading() -> None:
    """Stop a saved script that is being loaded from launching again what it launched.

    Raises:
        LaunchedWhileLoadingError: that is what is going on.
    """
    if _loading:
        raise LaunchedWhileLoadingError(
            "This script is being loaded to find its functions, and would launch again. "
            'Put what launches under `if __name__ == "__main__":`.'
        )


_loading: list[str] = []


def merge_saved_main(exp_dir: Path, *, replace: bool = False) -> None:
    """Execute the saved script, once, and add its public names to the running main module.

    What stands under ``if __name__ == "__main__"`` does not run, and nothing after the first
    experiment that is run without that guard. With ``replace``, names that
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
    _loading.append(str(path))
    try:
        spec.loader.exec_module(module)
    except LaunchedWhileLoadingError:
        pass  # what is defined above that point is there
    except BaseException:
        del sys.modules[EXTERNAL_MAIN]
        raise
    finally:
        _loading.clear()
    main = sys.modules["__main__"]
    for name, value in vars(module).items():
        if not name.startswith("_") and (replace or not hasattr(main, name)):
            setattr(main, name, value)
