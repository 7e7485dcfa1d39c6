"""The launching script, saved with an experiment so that its functions can be found again."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from nemo_run._files import read_whole
from nemo_run.core.serialization._envelope import unseal
from nemo_run.core.serialization._format import EXTERNAL_MAIN
from nemo_run.exceptions import ConfigError


class LaunchedWhileLoadingError(ConfigError):
    """The saved script came to the point where it launches, which it did already."""


_loading: list[Path] = []


def main_path() -> str:
    """Return where the running main script is; empty where there is none (REPL, notebook)."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return str(Path(path).resolve()) if path else ""


def main_source() -> str:
    """Return the source of the running main script; empty where there is none (REPL, notebook)."""
    path = main_path()
    if not path or path.endswith(".pyc"):
        return ""
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def script_directory(exp_dir: Path) -> str:
    """Return where the script was that launched an experiment, whose imports are found there.

    That of the running script where none is recorded; empty where there is none either.
    """
    recorded = (read_whole(exp_dir / "_SCRIPT") or b"").decode(errors="surrogateescape")
    script = recorded or main_path()
    return str(Path(script).parent) if script else ""


@contextmanager
def beside_its_script(exp_dir: Path | None) -> Iterator[None]:
    """While entered, what is beside the script of an experiment can be imported, as by itself."""
    directory = script_directory(exp_dir) if exp_dir else ""
    before = list(sys.path)
    sys.path[:0] = [directory] if directory else []
    try:
        yield
    finally:
        sys.path[:] = before


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


def load_saved_main(exp_dir: Path) -> ModuleType | None:
    """Execute the saved script of an experiment, once, and return it as a module of its own.

    What stands under ``if __name__ == "__main__"`` does not run, and nothing from the first
    experiment on that the script makes without that guard.
    """
    path = exp_dir / "__main__.py"
    source = path.read_bytes() if path.is_file() else b""
    if not source:
        return None
    # Scripts of several experiments may be loaded in one process, and have the same names in them.
    name = f"{EXTERNAL_MAIN}{hashlib.sha256(source).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _loading.append(path)
    try:
        spec.loader.exec_module(module)
    except LaunchedWhileLoadingError:
        pass  # what is defined above that point is there
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        _loading.pop()
    return module


def merge_saved_main(exp_dir: Path, *, replace: bool = False) -> None:
    """Add the public names of the saved script to the running main module; see `load_saved_main`.

    With ``replace``, names that the main module has already get the saved script's meaning.
    """
    module = load_saved_main(exp_dir)
    main = sys.modules["__main__"]
    for name, value in vars(module).items() if module is not None else ():
        if not name.startswith("_") and (replace or not hasattr(main, name)):
            setattr(main, name, value)
