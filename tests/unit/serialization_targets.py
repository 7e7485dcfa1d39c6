"""Classes and functions for the serialization tests to point at, importable by name."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import fiddle as fdl


@dataclass
class Point:
    x: int = 0
    y: int = 0


@dataclass
class Model:
    layers: Any = None
    origin: Any = None
    name: str = "model"


@dataclass
class Fitted:
    width: int
    cells: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.cells = self.width**2


@dataclass
class TwoWords:
    value: Any = None


class Plain:
    """Neither a dataclass nor anything else the format knows."""


CONSTANT = Plain()


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"
    CRIMSON = "red"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(str, enum.Enum):
    FAST = "fast"


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    RUN = enum.auto()


class Outer:
    @dataclass
    class Inner:
        size: int = 1

    class Shade(enum.Enum):
        DARK = 0

    @staticmethod
    def fixed(size: int = 2) -> int:
        return size


class Base:
    @classmethod
    def make(cls, size: int = 0) -> tuple[str, int]:
        return cls.__name__, size

    def method(self) -> None: ...


class Child(Base):
    """Inherits ``make``, which must come back bound to ``Child``."""


class Pair(NamedTuple):
    left: Any
    right: Any = None


def train(model: Any = None, lr: float = 0.1, **extra: Any) -> dict[str, Any]:
    return {"model": model, "lr": lr, **extra}


def needs(steps: int, data: Any) -> tuple[int, Any]:
    return steps, data


def collect(*values: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return values, named


def annotated(
    steps: int = 0, name: str = "", rate: float = 0.0, model: Point | None = None
) -> None:
    """Has annotations that a reader might bend values to."""


def _counted(fn: Callable[[], int]) -> Callable[[], int]:
    @functools.wraps(fn)
    def wrapper() -> int:
        return fn() + 1

    return wrapper


def _shadowed() -> int:
    return 1


# Its __qualname__ leads to _shadowed, which is another object.
impostor = _counted(_shadowed)

anonymous = lambda: 0  # noqa: E731 - a lambda that has a name, but not in its __qualname__


def local_function() -> Callable[[], int]:
    def inner() -> int:
        return 1

    return inner


class LearningRate(fdl.Tag):
    """Marks learning rates."""
