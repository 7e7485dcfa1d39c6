"""What the recorded experiments run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Optimizer:
    """A setting that is a configuration of its own."""

    rate: float = 0.1
    name: str = "sgd"


def train(steps: int, optimizer: Optimizer, label: str = "a b") -> None:
    """Say what was given."""
    print(f"trained {steps} steps, {optimizer.name} at {optimizer.rate}, {label!r}")
