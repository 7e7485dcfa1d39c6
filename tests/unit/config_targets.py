"""Importable classes, functions and enums for configs to point at."""

# The older spellings of annotations are part of what is tested.
# ruff: noqa: UP007, UP045

import dataclasses
import enum
from typing import Any, NamedTuple, Optional, Union

from nemo_run.config import ConfigurableMixin, OptionalDefaultConfig, OptionalDefaultPartial


@dataclasses.dataclass
class Point:
    """A required and an optional field."""

    x: int
    y: int = 2


@dataclasses.dataclass
class Model:
    """Only plain defaults."""

    width: int = 8
    depth: int = 2


@dataclasses.dataclass
class Optimizer:
    """A default that is made anew for every instance."""

    lr: float = 0.1
    betas: list[float] = dataclasses.field(default_factory=lambda: [0.9, 0.95])


@dataclasses.dataclass
class Trainer:
    """Dataclasses inside a dataclass."""

    model: Model = dataclasses.field(default_factory=Model)
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)
    steps: int = 10


@dataclasses.dataclass
class Derived:
    """A field that only ``__post_init__`` may set."""

    size: int = 3
    area: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.area = self.size**2


@dataclasses.dataclass
class Box:
    """Holds anything."""

    value: Any = None
    other: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Cannot be changed once made."""

    name: str = "frozen"
    size: Any = 0


@dataclasses.dataclass
class Settings(ConfigurableMixin):
    """A dataclass that can describe itself as a config."""

    name: str = "run"
    model: Model = dataclasses.field(default_factory=Model)
    derived: int = dataclasses.field(init=False, default=7)


@dataclasses.dataclass
class Bare(ConfigurableMixin):
    """Conversion fails once its field was deleted."""

    x: int


class Steps(list[Any], ConfigurableMixin):
    """A list that can describe itself."""


class Pair(tuple[Any, ...], ConfigurableMixin):
    """A tuple that can describe itself."""


class Table(dict[str, Any], ConfigurableMixin):
    """A dict that can describe itself."""


class Opaque(ConfigurableMixin):
    """Neither a dataclass nor a container."""


class Size(NamedTuple):
    """A named tuple whose items may be configs."""

    height: Any
    width: Any


class Outer:
    """Has a class of its own."""

    @dataclasses.dataclass
    class Inner:
        """Its qualified name has a dot."""

        size: int = 1


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    RUN = enum.auto()


class IntMode(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass
class Layer:
    size: int = 1
    name: str = "layer"


@dataclasses.dataclass
class Stack:
    """What ``from_dict`` reads: lists, optionals and defaults."""

    layers: list[Layer]
    head: Optional[Layer] = None
    extra: list = dataclasses.field(default_factory=lambda: ["a"])
    title: str = "stack"


@dataclasses.dataclass
class Modern:
    """The same with the newer way to write a union."""

    head: Layer | None = None


@dataclasses.dataclass
class Ambiguous:
    """Nothing says which member of the union a dict stands for."""

    part: Union[Layer, Model, None] = None


def train(model: Any, optimizer: Any = None, steps: int = 10) -> tuple[Any, Any, int]:
    """Return what was passed."""
    return model, optimizer, steps


def identity(value: Any) -> Any:
    """Return the value itself."""
    return value


def gather(**parts: Any) -> dict[str, Any]:
    """Take any keyword."""
    return parts


def spread(first: Any, /, second: Any = 2, *rest: Any, **named: Any) -> Any:
    """Take arguments of every kind."""
    return first, second, rest, named


def fail(message: str = "no luck") -> None:
    """Fail while being built."""
    raise LookupError(message)


def fit(
    steps: int = 1,
    model: OptionalDefaultConfig[Model] = None,
    head: OptionalDefaultPartial[Layer] = None,
) -> tuple[int, Any, Any]:
    """Return what was passed, with arguments that a config fills in."""
    return steps, model, head


def fit_steps(steps: int, model: OptionalDefaultConfig[Model] = None) -> tuple[int, Any]:
    """Need an argument besides the one that a config fills in."""
    return steps, model


def fit_text(model: "OptionalDefaultConfig[Model]" = None) -> Any:
    """Have an annotation that is text, as after ``from __future__ import annotations``."""
    return model
