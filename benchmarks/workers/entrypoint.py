"""A script with a command, a class and a factory, for every candidate alike."""

# Without annotations from the future, which NeMo Run 0.11.1 cannot read here.
from dataclasses import dataclass

import nemo_run as run


@dataclass
class Net:
    width: int = 8
    depth: int = 2


def fit(net: Net, steps: int = 10) -> None:
    """Fit a net."""


@run.cli.factory
@run.autoconvert
def small(width: int = 2) -> Net:
    """A small net."""
    return Net(width=width)


if __name__ == "__main__":
    run.cli.main(fit)
