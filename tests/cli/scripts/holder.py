"""A command whose parameters hold what files have trouble with; it prints them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import nemo_run as run


@dataclass
class Net:
    sizes: dict[str, int] = field(default_factory=lambda: {"a": 1})


def hold(
    entries: dict[str, int] = {"a": 1},  # noqa: B006 - users write this
    net: Net = Net(),  # noqa: B008
    unset: int | None = 3,
    several: list[Any] = [],  # noqa: B006
    letters: set[str] = set(),  # noqa: B006
    text: str = "",
    anything: Any = 3,
) -> None:
    given = locals()
    letters = sorted(letters)  # type: ignore[assignment]  # to be printed
    print({**given, "letters": letters})


if __name__ == "__main__":
    run.cli.main(hold)
