"""The launching script, saved with an experiment so that its functions can be found again."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType

from nemo_run._files import read_whole
from nemo_run.core.serialization._envelope import unseal
from nemo_run.core.serialization._format import EXTERNAL_MAIN
from nemo_run.exceptions import ConfigError


class LaunchedWhileLoadingError(ConfigError):
    """The saved script came to the point where it launches, which it did already."""


MAIN, SCRIPT = "__main__.py", "_SCRIPT"
"""A saved script, and where it was; in the directory of an experiment, and beside its tasks."""

_loading: list[SavedScript] = []
_running: list[SavedScript] = []
"""The script that is the main module of this process, where it was loaded from a saved copy."""


@dataclass(frozen=True)
class SavedScript:
    """A copy of a script, and the path that its user knows it by."""

    source: bytes
    path: str
    copy: str

    @classmethod
    def find(cls, directory: Path, name: str = MAIN, place: str = SCRIPT) -> SavedScript | None:
        """Return the script that is saved in a directory; None where there is none."""
        copy = directory / name
        source = copy.read_bytes() if copy.is_file() else b""
        if not source:
            return None
        path = (read_whole(directory / place) or b"").decode(errors="surrogateescape")
        return cls(source, path or str(copy), str(copy))

    @property
    def text(self) -> str:
        """The source, in which bytes that are not UTF-8 come back when it is written."""
        return self.source.decode("utf-8", "surrogateescape")

    def show_lines(self) -> None:
        """Have tracebacks show these lines: the file may not be there, or have changed since."""
        import linecache

        lines = decode_source(self.source).splitlines(keepends=True)
        linecache.cache[self.path] = (len(self.source), None, lines, self.path)


@contextmanager
def loading(script: SavedScript) -> Iterator[None]:
    """While entered, the script is executed to be the main module of this process.

    Where it would launch what it launched already, it ends: what is defined above is there.
    """
    _running[:] = [script]
    _loading.append(script)
    try:
        with suppress(LaunchedWhileLoadingError):
            yield
    finally:
        _loading.pop()


def main_path() -> str:
    """Return where the running main script is; empty where there is none (REPL, notebook)."""
    if _running:
        return _running[0].path
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return str(Path(path).resolve()) if path else ""


def main_source() -> str:
    """Return the source of the running main script; empty where there is none (REPL, notebook)."""
    if _running:
        return _running[0].text
    path = main_path()
    if not path or path.endswith(".pyc"):
        return ""
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def running_script() -> SavedScript | None:
    """Return the running main script, as it would be saved; None where there is none."""
    source = main_source().encode("utf-8", "surrogateescape")
    return SavedScript(source, main_path(), "") if source else None


def is_running(exp_dir: Path) -> bool:
    """Tell whether the saved script of an experiment is, unchanged, the main script that runs."""
    saved, running = SavedScript.find(exp_dir), running_script()
    return saved is not None and running is not None and saved.source == running.source


def script_directory(exp_dir: Path) -> str:
    """Return where the script was that launched an experiment, whose imports are found there.

    That of the running script where none is recorded; empty where there is none either.
    """
    recorded = (read_whole(exp_dir / SCRIPT) or b"").decode(errors="surrogateescape")
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
    return names_module(text, "__main__")


def names_module(text: str, module: str) -> bool:
    """Tell whether a stored task names something in a module."""
    return f'"module": "{module}"' in json.dumps(unseal(text))


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
    script = SavedScript.find(exp_dir)
    if script is None:
        return None
    # Scripts of several experiments may be loaded in one process, and have the same names in them.
    name = f"{EXTERNAL_MAIN}{hashlib.sha256(script.source).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, script.copy)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _loading.append(script)
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


def merge_saved_main(exp_dir: Path) -> None:
    """Add the public names of the saved script to the running main module; see `load_saved_main`.

    Names that the main module has already keep their meaning.
    """
    module = load_saved_main(exp_dir)
    main = sys.modules["__main__"]
    for name, value in vars(module).items() if module is not None else ():
        if not name.startswith("_") and not hasattr(main, name):
            setattr(main, name, value)
