"""Code that is loaded for what it registers: installed plug-ins and the user's workspace file."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run._home import get_nemorun_home, working_directory
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "nemo_run.cli"
WORKSPACE_FILES = ("workspace_private.py", "workspace.py")

log = logging.getLogger(__name__)

_lock = threading.RLock()
_loaded = False


def load(environ: Mapping[str, str] = os.environ) -> None:
    """Load all plug-ins, then the nearest workspace file; once in a process.

    A plug-in that cannot be loaded is logged and left out. Called again from code that is being
    loaded, it does nothing.

    Raises:
        ConfigError: the workspace file cannot be executed.
    """
    global _loaded
    with _lock:
        if _loaded:
            return
        _loaded = True
        try:
            load_installed()
            if environ.get("INCLUDE_WORKSPACE_FILE", "true").lower() == "true":
                load_workspace(working_directory(), home=Path(get_nemorun_home()))
        except BaseException:
            _loaded = False
            raise


def load_installed() -> None:
    """Load every entry point of the group ``nemo_run.cli``."""
    for point in installed():
        try:
            point.load()
        except Exception as err:  # noqa: BLE001 - one broken plug-in must not stop the others
            log.warning("Plug-in %s (%s) cannot be loaded: %s", point.name, point.value, err)


def installed(path: Sequence[str] | None = None) -> list[EntryPoint]:
    """Return the entry points of the group ``nemo_run.cli``, without loading them."""
    places = sys.path if path is None else path
    if not any(map(_may_have_plugins, places)):
        return []
    from importlib import metadata

    return list(metadata.entry_points(group=GROUP))


def _may_have_plugins(place: str) -> bool:
    """Tell whether a directory with packages may have one with plug-ins.

    Python's own way to find out takes longer to import than most commands need altogether.
    """
    try:
        with os.scandir(place or ".") as entries:
            infos = [entry.path for entry in entries if entry.name.endswith("-info")]
    except NotADirectoryError:
        return True  # an archive
    except OSError:
        return False
    return any(_names_group(f"{info}/entry_points.txt") for info in infos)


def _names_group(file: str) -> bool:
    try:
        with open(file, "rb") as text:  # noqa: PTH123 - hundreds of times
            return GROUP.encode() in text.read()
    except OSError:
        return False


def load_workspace(directory: Path, *, home: Path) -> None:
    """Execute the workspace file for ``directory``, if there is one, as module ``workspace``."""
    path = find_workspace(directory, home=home)
    if path is None:
        return
    from importlib import util

    spec = util.spec_from_file_location("workspace", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be loaded as a module.")
    module = util.module_from_spec(spec)
    sys.modules["workspace"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as err:
        del sys.modules["workspace"]
        raise ConfigError(
            f"Workspace file {path} failed with {type(err).__name__}: {err}. "
            "Correct it, or set INCLUDE_WORKSPACE_FILE=false to do without."
        ) from err
    from nemo_run._experiments.workspace_file import was_loaded

    was_loaded(path)


def find_workspace(directory: Path, *, home: Path) -> Path | None:
    """Return the workspace file for ``directory``: its own, the home's, or one further up."""
    for level in (directory, *directory.parents):
        for candidate in (*(level / name for name in WORKSPACE_FILES), home / "workspace.py"):
            if candidate.is_file():
                return candidate
    return None
