"""A small zoo of models: recipes, the parts they are made of, and commands to run them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Optional

import nemo_run as run


@dataclass
class Optimizer:
    lr: float = 0.1
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])


@dataclass
class Model:
    width: int
    depth: int = 2
    optimizer: Optional[Optimizer] = None  # noqa: UP045 - as annotations were written for years


@dataclass
class Data:
    path: str = "/data"
    shards: int = 1


@run.cli.factory
@run.autoconvert
def tiny() -> Model:
    """A model for tests."""
    return Model(width=8, depth=2, optimizer=Optimizer(lr=0.01))


@run.cli.factory
@run.autoconvert
def wide(width: int = 512) -> Model:
    """A model whose width is to be chosen."""
    return Model(width=width, optimizer=Optimizer())


@run.cli.factory(is_target_default=True)
def mock_data() -> run.Config[Data]:
    return run.Config(Data, path="/mock")


@run.cli.factory
def here() -> run.Config[run.LocalExecutor]:
    """Jobs on this machine."""
    return run.Config(run.LocalExecutor, env_vars={"FROM_EXECUTOR": "here"})


def note(name: str, **values: object) -> None:
    found = {**values, "executor": os.environ.get("FROM_EXECUTOR"), "pid": os.getpid()}
    (Path(os.environ["OUT"]) / name).write_text(json.dumps(found, default=asdict))


@run.cli.entrypoint(namespace="zoo")
def pretrain(model: Model, data: Data, steps: int = 10, tags: Optional[list[str]] = None) -> None:  # noqa: UP045
    """Train a model from nothing."""
    note("pretrain", model=model, data=data, steps=steps, tags=tags)


@run.cli.factory(target=pretrain)
def tiny_recipe(steps: int = 5) -> run.Partial[pretrain]:  # type: ignore[valid-type]
    """The recipe that all tests use."""
    return run.Partial(pretrain, model=tiny(), data=mock_data(), steps=steps)


@run.cli.entrypoint(namespace="zoo", name="tune")
def finetune(model: Model, rate: float = 1.0) -> None:
    """Train a model that has been trained before."""
    note("tune", model=model, rate=rate)


@run.cli.entrypoint(namespace="zoo.tools", enable_executor=False)
def convert(source: str, target: str = "hf") -> None:
    """Change the format of a model."""
    note("convert", source=source, target=target)


@run.cli.entrypoint(namespace="zoo", type="experiment")
def sweep(
    ctx: run.cli.RunContext,
    recipe: run.Partial[pretrain] = tiny_recipe(),  # type: ignore[valid-type]  # noqa: B008
    widths: list[int] = [4, 5],  # noqa: B006
) -> None:
    """Train several widths, one after the other."""
    with run.Experiment("sweep", executor=run.LocalExecutor()) as experiment:
        for width in widths:
            task = recipe.clone()
            task.model.width = width
            experiment.add(task, name=f"width-{width}")
        ctx.launch(experiment, sequential=True)


if __name__ == "__main__":
    run.cli.main(pretrain)
