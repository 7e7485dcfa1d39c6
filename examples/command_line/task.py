"""A function as a command: arguments, factories, config files, executors and plugins by name.

    python examples/command_line/task.py --help
    python examples/command_line/task.py model=small steps=5 --yes
    python examples/command_line/task.py "model=small(width=4)" model.depth=3 "steps*=2" --yes
    python examples/command_line/task.py --factory recipe steps=1 --yes
    python examples/command_line/task.py --yaml examples/command_line/task.yaml --yes
    python examples/command_line/task.py model=@examples/command_line/model.toml --dryrun
    python examples/command_line/task.py model=@examples/command_line/task.yaml:model --dryrun
    python examples/command_line/task.py model=small run.executor=local run.plugins=double --yes
    python examples/command_line/task.py model=small rate=0.1,0.01 --sweep --yes

Needs nothing but nemo_run.
"""

from dataclasses import dataclass
from typing import Any

import nemo_run as run


@dataclass
class Model:
    width: int = 8
    depth: int = 2


def train(model: Model, rate: float = 0.1, steps: int = 10) -> None:
    """Train a model."""
    print(f"{steps} steps at {rate} on {model}")


@run.cli.factory
@run.autoconvert
def small(width: int = 2) -> Model:
    """A model for trying things out."""
    return Model(width=width)


@run.cli.factory(target=train)
def recipe() -> run.Partial[Any]:
    """All arguments at once, to start from."""
    return run.Partial(train, model=run.Config(Model, width=64), rate=0.01, steps=1000)


@run.cli.factory
def local() -> run.Config[run.LocalExecutor]:
    """This machine."""
    return run.Config(run.LocalExecutor)


@dataclass(kw_only=True)
class MoreSteps(run.Plugin):
    factor: int = 2

    def setup(self, task: Any, executor: run.Executor) -> None:
        task.steps *= self.factor


@run.cli.factory
@run.autoconvert
def double() -> MoreSteps:
    """Train twice as long."""
    return MoreSteps(factor=2)


if __name__ == "__main__":
    run.cli.main(train)
