"""What a config becomes when it is built: the objects it describes, or a call to make later.

    python examples/building.py

A config is built where its task runs; here it is done by hand.
"""

import functools
from dataclasses import dataclass

import fiddle as fdl

import nemo_run as run


@dataclass
class Optimizer:
    rate: float = 0.1


@dataclass
class Model:
    width: int
    optimizer: Optimizer


def fit(steps: int, rate: float = 0.1) -> None:
    print(f"{steps} steps at {rate}")


def train(model: str, optimizer: run.config.OptionalDefaultConfig[Optimizer] = None) -> None:
    print(f"{model} with {optimizer}")


def main() -> None:
    # A Partial is a call to make later.
    later = fdl.build(run.Partial(fit, steps=1))
    print("a functools.partial:", isinstance(later, functools.partial))
    later()

    # A Config is an object to make; configs inside are made first.
    model = fdl.build(run.Config(Model, width=8, optimizer=run.Config(Optimizer, rate=0.5)))
    print("as if made by hand:", model == Model(width=8, optimizer=Optimizer(rate=0.5)))

    # A parameter that is annotated so is there to be edited, also if it was left out.
    task = run.Partial(train, model="small")
    task.optimizer.rate = 0.9
    run.run(task, direct=True)


if __name__ == "__main__":
    main()
