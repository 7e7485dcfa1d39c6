"""Tasks that are put together later, run by programs."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cli import commands

PROGRAM = """
import nemo_run as run

class Double(run.Plugin):
    def setup(self, task, executor):
        if not isinstance(task, run.LazyEntrypoint):
            task.steps = task.steps * 2

if __name__ == "__main__":
    task = run.LazyEntrypoint("{target}")
    task.steps = 4
    run.run(task, executor=run.LocalExecutor(), plugins=Double(), dryrun={dryrun})
"""


def test_plugins_read_the_arguments_of_a_task_whose_code_is_here(here: Path) -> None:
    (here / "recipes.py").write_text("def fit(steps: int = 1):\n    print('steps', steps)\n")
    (here / "launch.py").write_text(PROGRAM.format(target="recipes.fit", dryrun=False))
    result = commands.run([sys.executable, "launch.py"], cwd=here)
    assert result.code == 0, result.err
    assert "steps 8" in result.lines
    assert any(line.startswith("0  recipes.fit  SUCCEEDED") for line in result.lines)


def test_a_task_whose_code_is_not_here_keeps_its_name_and_is_put_together_later(here: Path) -> None:
    (here / "launch.py").write_text(PROGRAM.format(target="elsewhere.fit", dryrun=True))
    result = commands.run([sys.executable, "launch.py"], cwd=here)
    assert result.code == 0, result.err
    assert "Entering Experiment elsewhere.fit" in result.out
