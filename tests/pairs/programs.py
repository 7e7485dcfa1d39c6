"""Write the program of a row, as a user of the package would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.pairs.rows import Row

HEAD = '''\
"""{row}"""

import os
import tarfile
from dataclasses import dataclass, field

import nemo_run as run
from lab import steps


@dataclass
class Net:
    width: int = 1


@dataclass(kw_only=True)
class Mine(run.Packager):
    """Takes along what it is told to."""

    names: list[str] = field(default_factory=list)

    def package(self, path, job_dir, name):
        archive = os.path.join(job_dir, f"{{name}}.tar.gz")
        with tarfile.open(archive, "w:gz") as tar:
            for item in self.names:
                tar.add(os.path.join(path, item), arcname=item)
        return archive


@dataclass(kw_only=True)
class Tag(run.Plugin):
    """Sets a variable, and adds a word to those of the task."""

    def setup(self, task, executor):
        executor.env_vars["PLUGGED"] = "by a plugin"
        if isinstance(task, run.Script):
            task.args = [*task.args, "plugged"]
        else:
            task.words = [*task.words, "plugged"]


def fit(name: str, words: list[str], rate: float = 0.1) -> None:
    steps.tell(name, words, rate=rate)


WORDS = {words}


def task(name):
    return {task}


{decorators}def executor() -> {kind}:
    return {executor}


def add_to(exp, executor):
{add}

'''

FACTORY = "@run.cli.factory\n@run.autoconvert\n"

SCRIPT = """\
if __name__ == "__main__":
    with run.Experiment("row") as exp:
        add_to(exp, executor)
        exp.run(detach={detach})
"""

WORKSPACE = """\
@run.cli.entrypoint(type="experiment", namespace="row", name="launch")
def launch(ctx: run.cli.RunContext) -> None:
    with run.Experiment("row") as exp:
        add_to(exp, ctx.executor.clone)
        ctx.launch(exp)
"""

ODD = "a b 'c' \"d\" \\ ü \t;#&|> \n*? ~"
TOKEN = "hf_0123456789abcdefghijKLMNOP$x'y"
VARIABLES = {"usual": ("STEPS", "3"), "odd": ("NOTE", ODD), "secret": ("HF_TOKEN", TOKEN)}
WORDS = ["plain", "two words", 'it\'s "so"', "ünï", "50%; #1 & x > y"]

TASKS = {
    "file": 'run.Script("{told}", entrypoint="python", args=[name, *WORDS])',
    "inline": "run.Script(inline='python -m lab.steps \"$@\"', args=[name, *WORDS])",
    "own": "run.Partial(fit, name=name, words=WORDS, rate=0.5)",
    "package": "run.Partial(steps.train, name=name, words=WORDS, rate=0.5)",
    "class": "run.Partial(steps.measure, net=run.Config(Net, width=7), name=name, words=WORDS)",
}
MORE_TOLD: dict[str, dict[str, Any]] = {
    "own": {"rate": 0.5},
    "package": {"rate": 0.5},
    "class": {"net": "Net 7"},
}

PACKAGERS = {
    "plain": "run.Packager()",
    "pattern": "run.PatternPackager(include_pattern={names}, relative_path={beside})",
    "git": "run.GitArchivePackager()",
    "hybrid": "run.HybridPackager(extract_at_root=True, sub_packagers={{"
    '"one": run.GitArchivePackager(), '
    '"two": run.PatternPackager(include_pattern="told.py", relative_path=".")}})',
    "mine": "Mine(names={names})",
}

ONE = "    exp.add(task({name!r}), executor=executor(), name={name!r}{more})"
SEVERAL = '    exp.add([task("main-0"), task("main-1")], executor={executor}, name="main"{more})'


def program(row: Row, kind: str, settings: Mapping[str, str], told: str) -> str:
    """Return the text; ``settings`` of the executor ``kind`` are expressions of Python.

    ``told`` is where the job finds the script file.
    """
    head = HEAD.format(
        row=row,
        words=repr(WORDS),
        task=TASKS[row["task"]].format(told=told),
        decorators=FACTORY if row["origin"] == "nemorun" else "",
        kind=kind,
        executor=f"{kind}({', '.join(f'{k}={v}' for k, v in settings.items())})",
        add="\n".join(additions(row)),
    )
    if row["origin"] == "nemorun":
        return head + WORKSPACE
    return head + SCRIPT.format(detach=row["how"] == "detached")


def additions(row: Row) -> list[str]:
    """Return the lines that add the jobs."""
    more = ", plugins=[Tag()]" if row["plugin"] == "one" else ""
    if row["shape"] in ("group", "het"):
        executor = "[executor(), executor()]" if row["shape"] == "het" else "executor()"
        return [SEVERAL.format(executor=executor, more=more)]
    if row["shape"] == "alone":
        return [ONE.format(name="main", more=more)]
    first = ONE.format(name="first", more=more)
    return [first, ONE.format(name="main", more=f", dependencies=['first']{more}")]


def packager(row: Row) -> str:
    """Return the expression that makes the packager."""
    names = ["lab", "told.py"]
    if row["origin"] == "nemorun":  # a file that is a module, and travels as others do
        names.append("workspace.py")
    return PACKAGERS[row["packager"]].format(names=names, beside=["."] * len(names))
