"""Change decisions in the code one by one, and count the changes that no test near them notices.

    python scripts/mutants.py [WORD ...]      # only modules with one of these words in their names

Each changed module exists in the memory of one process, forked from one that has imported all that
the tests need; no file is changed, so several run at a time. Slow and random tests are left out.

A change that no test can notice is in `EXPLAINED`, with the reason; it does not count.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.main import pytest_runtestloop as run_all

ROOT = Path(__file__).parents[1]
GIVE_UP_S = 4
"""Processor time of one process."""
MOST_BYTES = 2 << 30
"""Memory of one process; a changed loop may fill what it is given."""


@dataclass(frozen=True)
class Target:
    """A module that decides, or the ``names`` in it that do, and the tests that are about it."""

    module: str
    tests: tuple[str, ...]
    names: tuple[str, ...] = ()


_OF_BATCH_SCRIPTS = (
    "slurm_script::TestDirectives",
    "slurm_script::TestHeterogeneous",
    "slurm_executor",
)
_ASKED_OF_SBATCH = (
    "PER_GROUP",
    "RUN_IF",
    "flag",
    "_quoted",
    "further_options",
    "directives",
    "dependency",
    "_blocks",
    "of_executor",
    "_het_leaders",
    "_of_group",
    "held_back",
)

TARGETS = (
    Target("_order", ("order",)),
    Target("_shell", ("shell_text",)),
    Target("_shell_quotes", ("shell_quotes",)),
    Target("_jobs.records", ("records_json", "records")),
    Target("_jobs.status", ("job_status",)),
    Target(
        "_experiments.conductor.outcome", ("job_status",), ("without_success", "causes", "reason")
    ),
    Target("_backends.local.supervisor.decide", ("decide",)),
    Target("_backends.slurm.answers", ("slurm_status", "slurm_answers")),
    Target("_backends.slurm.status", ("slurm_status", "slurm_answers")),
    Target("_backends.slurm.directives", _OF_BATCH_SCRIPTS, _ASKED_OF_SBATCH),
    Target("_backends.kubeflow.pods", ("kubeflow_status", "kubeflow_pods")),
    Target("_backends.kubeflow.manifests", ("request_bodies", "kubeflow_manifests")),
    Target("_backends.kubernetes.pods", ("kubeflow_status",)),
    Target("_backends.runai.payloads", ("request_bodies",)),
    Target("_backends.lepton.types", ("lepton_states",), ("parse_job", "seconds")),
    Target("_backends.docker.settings", ("docker_container", "docker_settings")),
    Target("_experiments.store.states", ("job_status",)),
    Target("run.torchx_backend.schedulers.lepton", ("lepton_states",), ("_STATES", "_outcome")),
    Target("run.torchx_backend.schedulers.skypilot", ("skypilot_states",), ("STATES",)),
    Target("run.torchx_backend.schedulers.skypilot_jobs", ("skypilot_states",), ("STATES",)),
)
"""Tests are modules of ``tests/unit``, without what all their names begin with."""

EXPLAINED: dict[str, str] = {
    "_order: reason: 'succeeded'  ->  'not succeeded'": (
        "only 'failed' is told apart from the other policies"
    ),
}
"""Changes that change nothing, each as it is printed without its line, and why."""

GOAL = 90
"""Percent of the changes that tests are to notice."""

OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


def edits(tree: ast.Module, names: Set[str]) -> Iterator[tuple[ast.AST, Callable[[Any], None]]]:
    """Yield places in a module, each with a change to make to a copy of it."""
    left_out = set(_left_out(tree))
    if names:
        others = (top for top in tree.body if not names & _bound_by(top))
        left_out |= {node for top in others for node in ast.walk(top)}
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, (ast.BoolOp, ast.BinOp)) and type(node.op) in OPPOSITES:
            yield node, lambda one: setattr(one, "op", OPPOSITES[type(one.op)]())
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITES:
            yield node, lambda one: one.ops.__setitem__(0, OPPOSITES[type(one.ops[0])]())
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, str)):
            yield node, lambda one: setattr(one, "value", _another(one.value))
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            yield node, lambda one: setattr(one, "test", ast.UnaryOp(ast.Not(), one.test))
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node, lambda one: setattr(one, "value", ast.Constant(None))


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"not {value}"


_FOR_PEOPLE = ("log.", "logging.", "TypeVar")


def _left_out(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what decides nothing: types, docstrings, and words that only people read."""
    for node in ast.walk(tree):
        parts: list[Any] = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        parts += getattr(node, "decorator_list", [])
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(_FOR_PEOPLE):
            parts.append(node)
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
            parts.append(node)
        if isinstance(node, ast.keyword) and node.arg == "strict":
            parts.append(node)
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
            parts.append(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.append(node)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            parts.append(node)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TYPE_CHECKING":
            parts.append(node)
        for part in filter(None, parts):
            yield from ast.walk(part)


def _bound_by(statement: ast.stmt) -> set[str]:
    """Return the names that a statement at the top of a module gives a meaning."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {node.id for node in stored if isinstance(node.ctx, ast.Store)}


@dataclass(frozen=True)
class Mutant:
    """A changed version of a module: what was changed, in which line, and the whole of it."""

    change: str
    line: int
    code: CodeType


def mutants(target: Target) -> Iterator[Mutant]:
    """Yield every changed version of a module."""
    path = _path(target.module)
    tree = ast.parse(path.read_text())
    owners = {
        node: ", ".join(sorted(_bound_by(top))) for top in tree.body for node in ast.walk(top)
    }
    for node, edit in edits(tree, set(target.names)):
        before = ast.unparse(node).partition("\n")[0]
        saved = {k: v[:] if isinstance(v, list) else v for k, v in vars(node).items()}
        edit(node)
        after = ast.unparse(ast.fix_missing_locations(node)).partition("\n")[0]
        if before != after:
            code = compile(tree, str(path), "exec")
            change = f"{target.module}: {owners[node]}: {before}  ->  {after}"
            yield Mutant(change, getattr(node, "lineno", 0), code)
        vars(node).update(saved)


def _path(module: str) -> Path:
    return ROOT / "src" / "nemo_run" / Path(*module.split(".")).with_suffix(".py")


def transplant(module: ModuleType, code: CodeType) -> None:
    """Make a module that has been imported what a changed version of it would be.

    Others hold on to its functions and classes, so these stay the same objects with new insides.
    """
    changed = _executed(module, code)
    for name, new in vars(changed).items():
        old = vars(module).get(name)
        if name.startswith("__"):
            continue
        if getattr(old, "__module__", None) != module.__name__:
            _replace(name, old, new)
        elif isinstance(old, type):
            for key, value in vars(new).items():
                _transplant_attribute(old, key, value)
        else:
            _transplant_function(old, new)


def _executed(module: ModuleType, code: CodeType) -> ModuleType:
    made = ModuleType(module.__name__)
    made.__dict__.update(__file__=module.__file__, __package__=module.__package__)
    sys.modules[module.__name__] = made  # dataclasses look there for the types of fields
    try:
        exec(code, made.__dict__)
    except Exception:  # noqa: BLE001  # it could not even be imported: every test notices
        os._exit(1)
    finally:
        sys.modules[module.__name__] = module
    return made


def _replace(name: str, old: Any, new: Any) -> None:
    """Give a constant another value, also where it was imported to."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)


def _transplant_attribute(owner: type, key: str, new: Any) -> None:
    old = vars(owner).get(key)
    for part in ("__func__", "fget"):
        old, new = getattr(old, part, old), getattr(new, part, new)
    if isinstance(old, FunctionType):
        _transplant_function(old, new)
    elif isinstance(new, (str, int, dict)) and not key.startswith("__"):
        setattr(owner, key, new)


def _transplant_function(old: Any, new: Any) -> None:
    if isinstance(old, FunctionType):
        old.__code__ = new.__code__
        old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__


class Trials:
    """A plugin of pytest's: runs the tests that it has found once for every changed module.

    Each run is in a process of its own, forked when all is imported and no test has run.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.passes = False
        self.left: list[Mutant] = []
        self.count = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # all use one
        path = _path(self.target.module)
        same = Mutant("", 0, compile(path.read_text(), str(path), "exec"))
        self.passes = self._survivors(session, [same]) == [same]
        if self.passes:
            found = [one for one in mutants(self.target) if one.change not in EXPLAINED]
            self.count = len(found)
            self.left = self._survivors(session, found)
        return True

    def _survivors(self, session: pytest.Session, changes: Sequence[Mutant]) -> list[Mutant]:
        """Return the changes with which all tests pass; one that hangs is not among them."""
        found: list[Mutant] = []
        running: dict[int, Mutant] = {}
        waiting = list(changes)
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                change = waiting.pop(0)
                child = os.fork()
                if child == 0:
                    self._test(session, change)
                running[child] = change
            ended, status = os.wait()
            change = running.pop(ended)
            if os.waitstatus_to_exitcode(status) == 0:
                found.append(change)
        return found

    def _test(self, session: pytest.Session, change: Mutant) -> None:
        for descriptor in (1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        # A loop that does not end any more uses processor time, also on a machine that is busy.
        resource.setrlimit(resource.RLIMIT_CPU, (GIVE_UP_S, GIVE_UP_S))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        signal.alarm(20 * GIVE_UP_S)
        failed = False  # what could not be tried counts as not noticed
        try:
            transplant(sys.modules[f"nemo_run.{self.target.module}"], change.code)
            failed = True
            run_all(session)
            failed = bool(session.testsfailed)
        finally:
            os._exit(failed)


def measure(target: Target) -> Trials:
    """Change a module in all ways, and see which changes its tests do not notice."""
    options = ["-x", "-q", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:xdist"]
    files = [name.partition("::") for name in target.tests]
    tests = [f"tests/unit/test_{file}.py{mark}{name}" for file, mark, name in files]
    trials = Trials(target)
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*options, "-m", "not slow and not hypothesis", *tests], plugins=[trials])
    return trials


def main(words: list[str]) -> int:
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["NEMO_RUN_TEST_SLOWNESS"] = "1"
    chosen = [item for item in TARGETS if not words or any(word in item.module for word in words)]
    total = noticed = 0
    lines = []
    for target in chosen:
        trials = measure(target)
        if not trials.passes:
            print(f"{target.module}: its tests fail as it is: {' '.join(target.tests)}")
            return 2
        for one in trials.left:
            print(f"not noticed, line {one.line} of {one.change}", flush=True)
        count, killed = trials.count, trials.count - len(trials.left)
        lines.append(f"{killed:5} of {count:5}  {100 * killed / count:5.1f} %  {target.module}")
        print(lines[-1], flush=True)
        total, noticed = total + count, noticed + killed
    modules = {target.module for target in chosen}
    print("\nChanges that change nothing, and are not counted:")
    for change, why in EXPLAINED.items():
        if change.partition(":")[0] in modules:
            print(f"  {change}\n      {why}")
    print("\nNoticed by a test:", *lines, sep="\n")
    score = 100 * noticed / total
    print(f"{noticed:5} of {total:5}  {score:5.1f} %  score; the goal is {GOAL} %")
    return 0 if score >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
