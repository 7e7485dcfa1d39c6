"""Text for a terminal, or for whatever else reads it: widths, colours and tables."""

from __future__ import annotations

import io
import os
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TextIO

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"

STATE_COLOURS = {
    "SUCCEEDED": GREEN,
    "FAILED": RED,
    "CANCELLED": RED,
    "RUNNING": CYAN,
    "UNKNOWN": YELLOW,
}

_MIN_WIDTH = 20
_GAP = "  "


class Screen:
    """Where answers go.

    Attributes:
        width: how many columns there are; None where nobody counts them, as in a pipe.
        coloured: whether colours are wanted.
    """

    def __init__(
        self, stream: TextIO | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.stream = stream or sys.stdout
        if isinstance(self.stream, io.TextIOWrapper):
            # Names of files need not be text in any encoding.
            self.stream.reconfigure(errors="backslashreplace")
        is_terminal = self.stream.isatty()
        asked = environ.get("COLUMNS", "")
        self.width: int | None = None
        if asked.isdecimal() and int(asked) > 0:
            self.width = max(_MIN_WIDTH, int(asked))
        elif is_terminal:
            self.width = max(_MIN_WIDTH, shutil.get_terminal_size().columns)
        self.coloured = (
            is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        )

    def print(self, text: str = "") -> None:
        print(text, file=self.stream)

    def style(self, text: str, *codes: str) -> str:
        """Return text in a colour, where colours are wanted."""
        if not (self.coloured and codes and text):
            return text
        return f"\033[{';'.join(codes)}m{text}\033[0m"

    def heading(self, text: str) -> None:
        self.print(self.style(text, BOLD))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a header; cells in the way of a narrow terminal are cut, last first."""
        cells = [[one_line(cell) for cell in row] for row in rows]
        widths = [
            max(display_width(line[column]) for line in [list(header), *cells])
            for column in range(len(header))
        ]
        widths = fitted(widths, self.width)
        self.print(self.style(self._row(header, widths), BOLD))
        for row in cells:
            self.print(self._row(row, widths))

    def _row(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        shown = []
        for cell, width in zip(cells, widths, strict=True):
            if width > 0:
                text = cut(cell, width)
                padded = text + " " * (width - display_width(text))
                # A state is a word of its own, so nothing else can be mistaken for one.
                colour = STATE_COLOURS.get(cell.split(" ", 1)[0])
                shown.append(self.style(padded, colour) if colour else padded)
        return _GAP.join(shown).rstrip()


def fitted(widths: Sequence[int], available: int | None) -> list[int]:
    """Return column widths that fit, taking from the last columns first; 0 drops a column."""
    result = list(widths)
    if available is None:
        return result
    smallest = 8
    for floor in (smallest, 0):
        for column in reversed(range(1, len(result))):
            over = sum(result) + len(_GAP) * (sum(map(bool, result)) - 1) - available
            if over <= 0:
                return result
            kept = max(min(result[column], floor), result[column] - over)
            # A column of three letters says nothing.
            result[column] = kept if kept >= min(smallest, widths[column]) else 0
    result[0] = min(result[0], available)
    return result


def display_width(text: str) -> int:
    """Return how many columns a text takes; most scripts take one a letter, some take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def cut(text: str, width: int) -> str:
    """Return as much of a text as fits, with a sign that there was more."""
    if display_width(text) <= width:
        return text
    while text and display_width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def one_line(text: str) -> str:
    """Return a text in a form that can neither break a table nor steer a terminal."""
    text = " ".join(text.split())
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
