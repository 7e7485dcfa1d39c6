"""The commands in examples/command_line do what their first lines say."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from tests.cli import commands
from tests.cli.commands import Result

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "command_line"

# Each command, as it is written in an example, and what a reader waits for.
SHOWN = {
    "task.py --help": r"model: Model  \(required\)\n +one of: small",
    "task.py model=small steps=5 --yes": r"^5 steps at 0\.1 on Model\(width=2, depth=2\)$",
    'task.py "model=small(width=4)" model.depth=3 "steps*=2" --yes': (
        r"^20 steps at 0\.1 on Model\(width=4, depth=3\)$"
    ),
    "task.py --factory recipe steps=1 --yes": r"^1 steps at 0\.01 on Model\(width=64, depth=2\)$",
    "task.py --yaml examples/command_line/task.yaml --yes": (
        r"Entering Experiment from-a-file (.|\n)*15 steps at 0\.5 on Model\(width=16, depth=4\)"
    ),
    "task.py model=@examples/command_line/model.toml --dryrun": r"Model\(width=32, depth=6\)",
    "task.py model=@examples/command_line/task.yaml:model --dryrun": r"Model\(width=16, depth=4\)",
    "task.py model=small run.executor=local run.plugins=double --yes": (
        r"20 steps at 0\.1 on Model\(width=2, depth=2\)"
    ),
    "task.py model=small rate=0.1,0.01 --sweep --yes": r": 2 jobs: 2 SUCCEEDED$",
    "defaults.py": r"60 steps at 0\.01 on Model\(width=64, depth=2\)",
    "defaults.py steps=3 run.plugins.factor=10 run.executor.retries=1": r"30 steps",
    "defaults.py run.executor.ntasks_per_node=2 run.plugins=double": r"40 steps",
    "experiment.py --yes": r"model-1/0 10 steps at 0\.1 on Model\(width=8, depth=2\)",
    'experiment.py "models[0].width=1" sequential=True --yes': (
        r"model-0/0 10 steps at 0\.1 on Model\(width=1, depth=2\)\n(.|\n)*model-1/0 10 steps"
    ),
    "experiment.py ctx.executor=local --dryrun": r"\[DRYRUN\] Task model-1",
    "nested.py left.width=1 right.width=2 --yes": (
        r"^left Model\(width=1, depth=2\) right Model\(width=2, depth=2\)$"
    ),
    'nested.py "more[0].width=5" "more[1].depth+=1" extra.depth=9 --yes': (
        r"^more \[Model\(width=5, depth=2\), Model\(width=40, depth=3\)\] "
        r"extra Model\(width=8, depth=9\)$"
    ),
}


def run(line: str) -> Result:
    script, *words = shlex.split(line)
    return commands.run([sys.executable, EXAMPLES / script, *words], cwd=ROOT)


@pytest.mark.parametrize("line", SHOWN)
def test_an_example_shows_what_it_is_about(line: str) -> None:
    result = run(line)
    assert result.code == 0, result.err
    assert re.search(SHOWN[line], result.out, re.MULTILINE), result.out


def test_every_command_in_the_examples_is_tested() -> None:
    written = [
        line.strip().removeprefix("python examples/command_line/")
        for script in sorted(EXAMPLES.glob("*.py"))
        for line in script.read_text().splitlines()
        if line.startswith("    python examples/")
    ]
    assert sorted(written) == sorted(SHOWN)


# What a reader of the tour waits for, in order.
TOUR = (
    r"Continue\? \[y/N\] 1 steps at 0\.01 on Model\(width=64, depth=2\)",
    r"\n5 steps at 0\.1 on Model\(width=2, depth=9\)",
    r"No parameter named 'modle' exists for train\. Did you mean 'model'\?\nexit code 2\n",
    r"7 steps at 0\.1 on Model\(width=2, depth=2\)",
    r"\nhello reader\n",
    r"LocalExecutor\((.|\n)*retries=3",
    r"\n1 experiment: 1 (RUNNING|PENDING|SUBMITTED)\n",
    r"\nnap: CANCELLED\n",
    r"\n1 job: 1 CANCELLED\n",
    r"\n\$ nemorun experiment logs nap 0\n",
    r"10 steps at 0\.1 on Model\(width=2, depth=2\)",
    r"\ndone_\d+: 1 job: 1 SUCCEEDED\n",
    r"--ids\ndone_\d+\n$",
)


@pytest.mark.timeout(300)
def test_the_tour_leads_through_the_command_line(tmp_path: Path) -> None:
    path = {"PATH": f"{commands.BIN}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    env = {**path, "INCLUDE_WORKSPACE_FILE": "true"}
    done = commands.run(["bash", EXAMPLES / "tour.sh"], cwd=tmp_path, env=env, timeout_s=280)
    assert done.code == 0, done.out + done.err
    position = 0
    for pattern in TOUR:
        found = re.compile(pattern).search(done.out, position)
        assert found, f"no {pattern!r} in\n{done.out[position:]}"
        position = found.end()


def test_an_installed_package_brings_its_commands(tmp_path: Path) -> None:
    source, site = tmp_path / "lab", tmp_path / "site"
    shutil.copytree(EXAMPLES / "lab", source, ignore=shutil.ignore_patterns("__pycache__"))
    # Building in isolation downloads the build system; without it, it has to be here.
    local = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *local]
    installed = commands.run([*pip, "--target", site, source], cwd=tmp_path)
    assert installed.code == 0, installed.err
    env = {"PYTHONPATH": str(site)}
    for line, said in {
        "lab measure times=2 --yes": "measured 2 times",
        "lab rooms clean": "cleaned all",
    }.items():
        done = commands.nemorun(*line.split(), cwd=tmp_path, env=env)
        assert (done.code, done.lines[-1]) == (0, said), done.err
