"""Write a config as the code that would make the objects.

python examples/recipes.py
"""

from dataclasses import dataclass

import nemo_run as run


@dataclass
class Optimizer:
    rate: float = 0.1


@dataclass
class Model:
    width: int
    optimizer: Optimizer


def fit(model: Model, steps: int = 10) -> None:
    print(f"{steps} steps on {model}")


@run.autoconvert
def model(width: int = 8) -> Model:
    return Model(width=width, optimizer=Optimizer(rate=1 / width))


@run.autoconvert(partial=True)
def recipe(steps: int = 100) -> None:
    # What is called last is called later, as a task; what is inside is made just before.
    return fit(model=Model(width=4, optimizer=Optimizer(rate=0.25)), steps=steps)


def main() -> None:
    by_hand = run.Config(Model, width=4, optimizer=run.Config(Optimizer, rate=0.25))
    print("the same config:", model(width=4) == by_hand)

    task = recipe(steps=3)
    print("a task:", type(task).__name__, "of a", type(task.model).__name__)
    run.run(task, direct=True)

    try:

        @run.autoconvert
        def varied(wide: bool) -> Model:
            if wide:
                return Model(width=512, optimizer=Optimizer())
            return Model(width=8, optimizer=Optimizer())

    except Exception as err:  # noqa: BLE001 - to show what it says
        print("refused:", str(err).splitlines()[0])


if __name__ == "__main__":
    main()
