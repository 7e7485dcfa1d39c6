"""Classes, functions and factories for the command-line tests to point at.

Annotations are strings here, as in any module with this import, so every test that goes through
these resolves them.
"""

# ruff: noqa: UP007, UP045 - unions are written in every way that users write them

from __future__ import annotations

import enum
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, Union

import nemo_run as run

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction as Ratio

    from not_installed_anywhere import Missing  # type: ignore[import-not-found]


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(TypedDict):
    sides: int
    name: str


@dataclass
class Net:
    width: int = 8
    depth: int = 2
    name: str = "net"


@dataclass
class Wide(Net):
    factor: float = 1.0


@dataclass
class Optim:
    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)


@dataclass
class Model:
    net: Net = field(default_factory=Net)
    optim: Optional[Optim] = None
    tags: list[str] = field(default_factory=lambda: ["a"])


class Celsius:
    """Has a parser of its own, once a test has registered one."""

    def __init__(self, degrees: float):
        self.degrees = degrees


class Plain:
    """Neither a dataclass nor otherwise known."""

    def __init__(self, size: int = 1):
        self.size = size


DEFAULT_NET = run.Config(Net, width=64, depth=3)
CALLS: list[str] = []
"""What the functions below note when they are called."""


def double(value: int) -> int:
    CALLS.append("double")
    return 2 * value


def note() -> str:
    CALLS.append("note")
    return "called"


def fit(
    net: Net,
    steps: int = 10,
    lr: float = 0.1,
    name: str = "run",
    flag: bool = False,
    tags: list[str] = ["a"],  # noqa: B006 - that defaults stay as they are is what is tested
    sizes: dict[str, int] = {"a": 1},  # noqa: B006
    optim: Optional[Optim] = None,
    other: Net | None = None,
    nets: list[Net] = [],  # noqa: B006
    default_net: Net = DEFAULT_NET,  # type: ignore[assignment]  # configs may stand for objects
    anything: Any = None,
    plain: Plain | None = None,
    text_or_net: Union[Net, str, None] = None,
) -> None:
    """Fit a net.

    Args:
        net: what to fit.
    """


def kinds(
    i: int = 0,
    f: float = 0.0,
    s: str = "",
    b: bool = False,
    by: bytes = b"",
    c: complex = 0j,
    n: None = None,
    p: pathlib.Path = pathlib.Path(),
    oi: Optional[int] = None,
    iu: int | None = None,
    us: Union[int, str] = 0,
    fi: float | int = 0,
    lit: Literal["x", "y", 1, True, None] = "x",
    mode: Literal["fast", "slow"] = "fast",
    color: Color = Color.RED,
    level: Level = Level.LOW,
    li: list[int] = [],  # noqa: B006
    ll: list[list[float]] = [],  # noqa: B006
    bare_list: list = [],  # noqa: B006
    bare_dict: dict = {},  # noqa: B006
    d: dict[str, int] = {},  # noqa: B006
    dl: dict[str, list[int]] = {},  # noqa: B006
    t: tuple[int, str] = (0, ""),
    tv: tuple[int, ...] = (),
    bare_tuple: tuple = (),
    si: set[int] = set(),  # noqa: B006
    fs: frozenset[str] = frozenset(),
    seq: Sequence[int] = (),
    shape: Shape | None = None,
    net: Net | None = None,
    fn: Callable[..., Any] | None = None,
    cls: type[Net] | None = None,
    any_: Any = None,
    implicit: int = None,  # type: ignore[assignment]  # noqa: RUF013 - common all the same
    checked: Decimal | None = None,
    warmth: Celsius | None = None,
    missing: Missing | None = None,
    ratio: Ratio | None = None,
    unannotated=None,
    **extra: int,
) -> None:
    """Have a parameter of every kind."""


def untyped(a, b=1, c="x", d=None):
    return a, b, c, d


def positional_only(a: int, b: str = "x", /, c: float = 0.0) -> None: ...


def with_any_extras(a: int = 1, **kwargs) -> None: ...


def partials(
    by_default: run.config.OptionalDefaultPartial[Net] = None,
    config: run.config.OptionalDefaultConfig[Net] = None,
    explicit: run.Partial[Net] | None = None,
    net_config: run.Config[Net] | None = None,
) -> None: ...


@run.cli.factory
def small(width: int = 4) -> run.Config[Net]:
    """Make a small net."""
    return run.Config(Net, width=width)


@run.cli.factory(name="huge", is_target_default=True)
@run.autoconvert
def huge_net() -> Net:
    return Net(width=1000)


@run.cli.factory(target=fit)
def recipe(net: Net = Net(width=5), steps: int = 3) -> run.Partial[Any]:  # noqa: B008
    assert isinstance(net, Net), "a factory gets objects for parameters annotated with a class"
    return run.Partial(fit, net=net, steps=steps)


@run.cli.factory(target=fit)
def config_taker(net: run.Config[Net]) -> run.Partial[Any]:
    assert isinstance(net, run.Config)
    return run.Partial(fit, net=net)


@run.cli.factory(target=fit, target_arg="net")
def for_the_argument(width: int = 7, label: str = "") -> run.Config[Net]:
    return run.Config(Net, width=width, name=label or "net")


@run.cli.factory(target=fit, target_arg="lr")
def warm() -> float:
    return 0.5


@run.cli.factory
def broken() -> run.Config[Net]:
    raise RuntimeError("out of\nnets")


@run.cli.factory
def nothing() -> run.Config[Net]:
    return None  # type: ignore[return-value]  # what a factory should not do


SHARED = run.Config(Net, width=77)


@run.cli.factory
def shared() -> run.Config[Net]:
    return SHARED
