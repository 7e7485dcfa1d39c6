"""The commands in examples/command_line do what their first lines say."""

from __future__ import annotations

import re
import shlex
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
    "task.py model=small run.executor=local run.plugins=double --yes": (
        r"20 steps at 0\.1 on Model\(width=2, depth=2\)"
    ),
    "task.py model=small rate=0.1,0.01 --sweep --yes": r": 2 jobs: 2 SUCCEEDED$",
    "defaults.py": r"60 steps at 0\.01 on Model\(width=64, depth=2\)",
    "defaults.py steps=3 run.plugins.factor=10 run.executor.retries=1": r"30 steps",
    "experiment.py --yes": r"model-1/0 10 steps at 0\.1 on Model\(width=8, depth=2\)",
    'experiment.py "models[0].width=1" sequential=True --yes': (
        r"model-0/0 10 steps at 0\.1 on Model\(width=1, depth=2\)\n(.|\n)*model-1/0 10 steps"
    ),
    "experiment.py --dryrun": r"\[DRYRUN\] Task model-1",
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
