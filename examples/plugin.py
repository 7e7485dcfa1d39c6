"""A plugin edits task and executor together, so that a habit is written down once."""

import os
from dataclasses import dataclass
from typing import Any

import nemo_run as run


@dataclass(kw_only=True)
class SmokeTest(run.Plugin):
    """Makes any task that has ``steps`` short, and tells it so."""

    steps: int = 2

    def setup(self, task: run.Partial[Any] | run.Script, executor: run.Executor) -> None:
        if isinstance(task, run.Partial):
            task.steps = self.steps
        executor.env_vars["SMOKE_TEST"] = "1"


def fit(steps: int = 1000) -> None:
    print(f"{steps} steps, SMOKE_TEST={os.environ.get('SMOKE_TEST')}")


def main() -> None:
    task = run.Partial(fit)
    run.run(task, executor=run.LocalExecutor(), plugins=[SmokeTest()])
    print("the task itself still has", task.steps, "steps")


if __name__ == "__main__":
    main()
