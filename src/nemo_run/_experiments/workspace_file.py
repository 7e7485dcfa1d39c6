"""The user's workspace file, saved with what is launched so that its functions can be found again.

The command line executes it as module ``workspace``. Where a job runs, or another process reads the
experiment, no module of that name can be imported, or another one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from nemo_run._experiments.main_module import SavedScript, names_module

MODULE = "workspace"
COPY, PLACE = "__workspace__.py", "_WORKSPACE"
"""A saved workspace file, and where it was; in the directory of an experiment, and beside tasks."""

VARIABLE = "NEMO_RUN_WORKSPACE"
"""Tells processes that a job spawns where the workspace file is that was saved for it."""

_loaded: list[SavedScript] = []


def was_loaded(path: Path) -> None:
    """Note that a file is module ``workspace`` of this process."""
    _loaded[:] = [SavedScript(path.read_bytes(), str(path.resolve()), "")]


def find_workspace(exp_dir: Path) -> SavedScript | None:
    """Return the workspace file saved with an experiment, or that of this process."""
    saved = SavedScript.find(exp_dir, COPY, PLACE)
    return saved or (_loaded[0] if _loaded else None)


def names_workspace(text: str) -> bool:
    """Tell whether a stored task names something in a workspace file."""
    return names_module(text, MODULE)


@contextmanager
def as_saved(exp_dir: Path | None, text: str) -> Iterator[None]:
    """While entered, a workspace that a stored text names is the one saved with the experiment."""
    saved = SavedScript.find(exp_dir, COPY, PLACE) if exp_dir else None
    if saved is None or not names_workspace(text) or _is_loaded(saved):
        yield
        return
    before, was = sys.modules.get(MODULE), list(_loaded)
    _install(saved)
    try:
        yield
    finally:
        if before is not None:
            sys.modules[MODULE] = before
            _loaded[:] = was


def become_workspace(directory: Path) -> None:
    """Make the workspace file saved in a directory module ``workspace``, if there is one."""
    saved = SavedScript.find(directory, COPY, PLACE)
    if saved is not None:
        os.environ[VARIABLE] = str(directory)
        _install(saved)


def become_workspace_again() -> None:
    """Do in a spawned process what its parent did."""
    directory = os.environ.get(VARIABLE)
    if directory:
        become_workspace(Path(directory))


def forget_workspace() -> None:
    """Say to processes that this one spawns that it needs no workspace file."""
    os.environ.pop(VARIABLE, None)


def _is_loaded(saved: SavedScript) -> bool:
    return MODULE in sys.modules and bool(_loaded) and _loaded[0].source == saved.source


def _install(saved: SavedScript) -> None:
    module = ModuleType(MODULE)
    # Where the user has it: code looks there for the files beside it.
    module.__file__ = saved.path if Path(saved.path).is_file() else saved.copy
    module.__spec__ = ModuleSpec(MODULE, None, origin=module.__file__)
    module.__package__ = ""
    sys.modules[MODULE] = module
    saved.show_lines()
    try:
        exec(compile(saved.source, saved.path, "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[MODULE]
        raise
    _loaded[:] = [saved]
