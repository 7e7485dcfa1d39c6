"""The launching script as ``__main__`` of a job, as if ``python`` ran it there.

What launches does not run again: in comparisons ``__name__`` reads ``__mp_main__``, as it does in
processes that `multiprocessing` spawns. Everywhere else it is ``__main__``, so that classes have
the names that they have in the script, also in pickles.

Processes that the job spawns import what the ``__spec__`` of its main module names: the runner,
which calls `become_main_again` there.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from nemo_run._experiments.main_module import SavedScript, loading
from nemo_run.core.serialization._format import RUNNER

VARIABLE = "NEMO_RUN_MAIN"
"""Tells processes that a job spawns where the script is that was saved for it."""

SPAWNED = "__mp_main__"
"""What `multiprocessing` calls the main module in processes that it spawns."""


def become_main(directories: Iterable[Path]) -> None:
    """Make the script saved in the first of the directories that has one the main module.

    Does nothing where there is none.
    """
    for directory in directories:
        script = SavedScript.find(directory)
        if script is not None:
            os.environ[VARIABLE] = str(directory)
            _install(script)
            return


def become_main_again() -> dict[str, object]:
    """Do in a spawned process what its parent did; return what the main module has in it."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return {}
    become_main([Path(directory)])
    return vars(sys.modules["__main__"])


def forget_main() -> None:
    """Say to processes that this one spawns that it needs no launching script."""
    os.environ.pop(VARIABLE, None)


def _install(script: SavedScript) -> None:
    module = ModuleType("__main__")
    # Where the user has it: code looks there for the files beside it.
    module.__file__ = script.path if Path(script.path).is_file() else script.copy
    module.__package__ = ""  # relative imports are refused, as in any script
    module.__spec__ = ModuleSpec(RUNNER, None)
    module.__dict__["__cached__"] = None
    sys.modules["__main__"] = sys.modules[SPAWNED] = module
    script.show_lines()
    with loading(script):
        exec(_compiled(script), vars(module))


def _compiled(script: SavedScript) -> CodeType:
    tree: ast.Module = _NotLaunching().visit(ast.parse(script.source, script.path))
    return compile(tree, script.path, "exec", dont_inherit=True)


class _NotLaunching(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.left = _as_spawned(node.left)
        node.comparators = [_as_spawned(item) for item in node.comparators]
        return node


def _as_spawned(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name) and node.id == "__name__":
        return ast.copy_location(ast.Constant(SPAWNED), node)
    return node
