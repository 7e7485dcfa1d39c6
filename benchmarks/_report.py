"""What was measured, against what, and whether that is what is promised."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

HEADINGS = ("", "nemo_run", "against", "", "ratio", "target", "")


@dataclass(frozen=True)
class Limit:
    """A promise about the ratio, or where there is nothing to compare with about the figure."""

    sense: Literal["<=", "<"]
    number: float

    def holds(self, value: float) -> bool:
        return value <= self.number if self.sense == "<=" else value < self.number


@dataclass(frozen=True)
class Row:
    """One figure of ours, and what it was compared with.

    Without a ``limit`` it is for information. A ``limit`` is about ours divided by ``theirs``, or
    about ``ours`` where there is no other.
    """

    what: str
    ours: float
    unit: str
    against: str = ""
    theirs: float | None = None
    limit: Limit | None = None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.theirs else None

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        judged = self.ours if self.ratio is None else self.ratio
        return "ok" if self.limit.holds(judged) else "MISSED"

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else _as_ratio(self.ratio)
        return (
            self.what,
            _amount(self.ours, self.unit),
            self.against,
            "" if self.theirs is None else _amount(self.theirs, self.unit),
            ratio,
            self._target(),
            self.verdict,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "unit": self.unit,
            "nemo_run": self.ours,
            "against": self.against or None,
            "theirs": self.theirs,
            "ratio": self.ratio,
            "target": self._target() or None,
            "verdict": self.verdict or None,
        }

    def _target(self) -> str:
        if self.limit is None:
            return ""
        number = self.limit.number
        shown = f"{number:g} {self.unit}" if self.theirs is None else _as_ratio(number)
        return f"{self.limit.sense} {shown.strip()}"


@dataclass(frozen=True)
class Fact:
    """Something that holds or not, and needs no number."""

    what: str
    finding: str
    holds: bool

    @property
    def verdict(self) -> str:
        return "ok" if self.holds else "MISSED"

    def cells(self) -> tuple[str, ...]:
        return (self.what, self.finding, "", "", "", "", self.verdict)

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "finding": self.finding, "verdict": self.verdict}


def table(rows: Iterable[Row | Fact]) -> str:
    """Lay rows out in columns."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(_line(cells, widths) for cells in lines)


def machine() -> dict[str, Any]:
    """Return what a reader of the figures should know about where they come from."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = {1, 3, 4}
    padded = [
        cell.rjust(width) if column in numbers else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def _amount(value: float, unit: str) -> str:
    if unit == "s" and value < 0.0995:
        return f"{value * 1000:.3g} ms"
    if unit == "s":
        return f"{value:.2f} s"
    return f"{value:.4g} {unit}".strip()


def _as_ratio(value: float) -> str:
    return f"{value:.3g}x" if value > 0.6 else f"1/{1 / value:.3g}"
