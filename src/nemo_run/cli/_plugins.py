"""Code that is loaded for what it registers: installed plug-ins and the user's workspace file."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from nemo_run._home import get_nemorun_home
from nemo_run.exceptions import ConfigError

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
                load_workspace(Path.cwd(), home=Path(get_nemorun_home()))
        except BaseException:
            _loaded = False
            raise


def load_installed() -> None:
    """Load every entry point of the group ``nemo_run.cli``."""
    from importlib import metadata

    for point in metadata.entry_points(group=GROUP):
        try:
            point.load()
        except Exception as err:  # noqa: BLE001 - one broken plug-in must not stop the others
            log.warning("Plug-in %s (%s) cannot be loaded: %s", point.name, point.value, err)


def load_workspace(directory: Path, *, home: Path) -> None:
    """Execute the workspace file for ``directory``, if there is one, as module ``workspace``."""
    path = find_workspace(directory, home=home)
    if path is None:
        return
    spec = importlib.util.spec_from_file_location("workspace", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be loaded as a module.")
    module = importlib.util.module_from_spec(spec)
    sys.modules["workspace"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as err:
        del sys.modules["workspace"]
        raise ConfigError(
            f"Workspace file {path} failed with {type(err).__name__}: {err}. "
            "Correct it, or set INCLUDE_WORKSPACE_FILE=false to do without."
        ) from err


def find_workspace(directory: Path, *, home: Path) -> Path | None:
    """Return the workspace file for ``directory``: its own, the home's, or one further up."""
    for level in (directory, *directory.parents):
        for candidate in (*(level / name for name in WORKSPACE_FILES), home / "workspace.py"):
            if candidate.is_file():
                return candidate
    return None
