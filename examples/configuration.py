"""Describe a task as data, change it, and only then run it."""

from dataclasses import dataclass

import nemo_run as run


@dataclass
class Optimizer:
    rate: float = 0.1
    momentum: float = 0.9


@dataclass
class Model:
    width: int = 64
    layers: int = 2


def fit(model: Model, optimizer: Optimizer, steps: int = 100) -> None:
    print(f"{steps} steps on {model} with {optimizer}")


@run.autoconvert
def wide_model(width: int = 256) -> Model:
    """Looks like code that makes a model; returns the config of one."""
    return Model(width=width, layers=4)


def main() -> None:
    # An instance of a dataclass becomes a config too, so that it can be edited and stored.
    task = run.Partial(fit, model=wide_model(width=128), optimizer=Optimizer(momentum=0.5))
    task.model.layers *= 2
    task.steps = 5
    task.steps += 5

    quick = task.clone().broadcast(width=8, rate=0.5)  # wherever a config inside has that name
    quick.walk(layers=lambda config: config.layers + 1)  # the same, by what is there
    print("changed:", quick != task)

    run.run(task, direct=True)
    run.run(quick, direct=True)


if __name__ == "__main__":
    main()
