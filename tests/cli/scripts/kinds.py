"""A function with a parameter of every kind, which reports what it gets."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, Union  # noqa: UP035

import nemo_run as run

if TYPE_CHECKING:
    from pathlib import Path as LaterPath


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: int = 0
    y: int = 0


def kinds(
    integer: int = 0,
    number: float = 0.0,
    text: str = "",
    flag: bool = False,
    other_flag: bool = True,
    several: list[int] = [],  # noqa: B006
    old_style: List[str] = [],  # noqa: B006, UP006
    table: dict[str, int] = {},  # noqa: B006
    old_table: Dict[str, float] = {},  # noqa: B006, UP006
    entries: dict[str, int] = {},  # noqa: B006
    plain_list: list = [],  # noqa: B006
    plain_dict: dict = {},  # noqa: B006
    maybe: Optional[int] = 1,  # noqa: UP045
    either: Union[int, str] = 0,  # noqa: UP007
    new_either: int | str | None = 0,
    choice: Literal["fast", "slow", 3] = "fast",
    number_choice: Literal["fast", "slow", 3] = "fast",
    path: Path = Path(),
    anything: Any = 0,
    any_word: Any = 0,
    quoted: "int" = 0,
    pair: tuple[int, str] = (0, ""),
    row: tuple[int, ...] = (),
    group: set[int] = set(),  # noqa: B006
    colour: Colour = Colour.RED,
    point: Point = Point(),  # noqa: B008
    later: "LaterPath" = Path(),
    raw: bytes = b"",
    function: Callable[[str], str] = str.lower,
    kind: type[Point] = Point,
    unannotated=0,
    unannotated_list=(),
    unannotated_none=0,
    *,
    keyword_only: int = 0,
    **extra: int,
) -> None:
    for name, value in {**locals(), **locals().pop("extra")}.items():
        print(f"{name}: {value!r}")


if __name__ == "__main__":
    run.cli.main(kinds, cmd_defaults={"skip_confirmation": True, "direct": True})
