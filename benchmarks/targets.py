"""A training configuration of 1,100 configs, and the functions it and the other jobs name.

Every candidate imports this module, so it needs nothing but `nemo_run`, whichever that is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

NODES = 1100
LAYERS = 200
DATASETS = 40
CALLBACKS = 15


@dataclass
class Norm:
    eps: float = 1e-5
    affine: bool = True


@dataclass
class Attention:
    heads: int
    head_dim: int = 128
    dropout: float = 0.0
    window: tuple[int, int] | None = None


@dataclass
class Feedforward:
    hidden: int
    activation: Callable[..., float]
    bias: bool = False


@dataclass
class Layer:
    attention: Attention
    feedforward: Feedforward
    norm: Norm
    name: str = ""


@dataclass
class Model:
    layers: list[Layer]
    vocabulary: int = 32_000
    tied: bool = True


@dataclass
class Tokenizer:
    path: str
    special: dict[str, int] = field(default_factory=dict)


@dataclass
class Sampler:
    seed: int
    shuffle: bool = True


@dataclass
class Dataset:
    paths: list[str]
    weight: float
    tokenizer: Tokenizer
    sampler: Sampler


@dataclass
class Schedule:
    warmup: int = 2000
    betas: tuple[float, float] = (0.9, 0.95)


@dataclass
class Optimizer:
    schedule: Schedule
    lr: float = 3e-4
    groups: dict[str, float] = field(default_factory=dict)


@dataclass
class Callback:
    every: int
    optimizer: Optimizer
    tags: list[str] = field(default_factory=list)


def gelu(x: float, approximate: str = "tanh") -> float:
    return x if approximate else 0.0


def train(
    model: Model,
    data: dict[str, Dataset],
    optimizer: Optimizer,
    callbacks: list[Callback],
    steps: int = 100_000,
) -> None:
    """Stand in for a training run; nobody calls it."""


def hello(name: str) -> None:
    print(f"hi {name}")


def training() -> Any:
    """Return a Partial with `NODES` configs in it, counting a shared one once."""
    import nemo_run as run

    optimizer = run.Config(Optimizer, schedule=run.Config(Schedule), groups={"bias": 0.0, "w": 0.1})
    tokenizer = run.Config(Tokenizer, path="/data/tokenizer.model", special={"<s>": 1, "</s>": 2})
    layers = [
        run.Config(
            Layer,
            attention=run.Config(Attention, heads=32, window=(0, 4096) if i % 2 else None),
            feedforward=run.Config(
                Feedforward, hidden=11_008, activation=run.Partial(gelu, approximate="tanh")
            ),
            norm=run.Config(Norm, eps=1e-6),
            name=f"layer {i}",
        )
        for i in range(LAYERS)
    ]
    data = {
        f"set-{i}": run.Config(
            Dataset,
            paths=[f"/data/{i}/{part}.bin" for part in range(4)],
            weight=1.0 / (i + 1),
            tokenizer=tokenizer,
            sampler=run.Config(Sampler, seed=i),
        )
        for i in range(DATASETS)
    }
    callbacks = [
        run.Config(Callback, every=i + 1, optimizer=optimizer, tags=["a", str(i)])
        for i in range(CALLBACKS)
    ]
    return run.Partial(
        train,
        model=run.Config(Model, layers=layers),
        data=data,
        optimizer=optimizer,
        callbacks=callbacks,
    )
