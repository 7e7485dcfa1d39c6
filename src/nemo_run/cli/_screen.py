"""Text for a terminal, or for whatever else reads it: widths, colours and tables."""

from __future__ import annotations

import io
import os
import sys
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

DEFAULT_WIDTH = 100
"""Of texts for people where nobody counts the columns."""

_MIN_WIDTH = 20
_WORTH_CUTTING = 24
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
            self.width = max(_MIN_WIDTH, _columns(self.stream))
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

    def usage(self, text: str) -> None:
        """Print how a command is called; what does not fit goes below, further in."""
        for line in wrapped(text, self.width, below="    "):
            self.print(line)

    def paragraph(self, text: str) -> None:
        """Print a text a little in from the margin, its lines as long as fits."""
        for line in wrapped(text, self.width, before="  ", below="  "):
            self.print(line)

    def rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print names and what there is to say about each, in two columns."""
        column = max((len(name) for name, _ in rows), default=0) + len(_GAP)
        for name, about in rows:
            for line in two_columns(name, about, self.width or DEFAULT_WIDTH, column):
                self.print(line)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a header; cells in the way of a narrow terminal are cut, last first."""
        lines = [header, *([one_line(cell) for cell in row] for row in rows)]
        measured = [list(map(display_width, line)) for line in lines]
        needed = [max(column) for column in zip(*measured, strict=True)]
        widths = fitted(needed, self.width)
        text = []
        for number, line in enumerate(lines):
            cells = (
                list(line)
                if widths == needed
                else [cut(c, w) for c, w in zip(line, widths, strict=True)]
            )
            text.append(self._row(cells, widths, heading=number == 0))
        self.print("\n".join(text))

    def _row(self, cells: Sequence[str], widths: Sequence[int], *, heading: bool) -> str:
        shown = []
        for cell, width in zip(cells, widths, strict=True):
            if width > 0:
                padding = " " * (width - display_width(cell))
                # A state is a word of its own, so nothing else can be mistaken for one.
                colour = BOLD if heading else STATE_COLOURS.get(cell, "")
                shown.append(self.style(cell, colour) + padding if colour else cell + padding)
        return _GAP.join(shown).rstrip()


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def wrapped(text: str, width: int | None, *, before: str = "", below: str = "") -> list[str]:
    """Return the lines of a text, none of them longer than there is room for."""
    room = width or DEFAULT_WIDTH
    if len(before) + len(text) <= room:
        return [before + text]  # without textwrap, which takes longer to import than to use
    import textwrap

    return textwrap.wrap(
        text,
        room,
        initial_indent=before,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )


def two_columns(left: str, right: str, width: int, column: int) -> list[str]:
    """Return the lines of an entry of a help text, one below the other on a narrow terminal."""
    start = " " * (column + 2)
    if width < column + _MIN_WIDTH:
        return [f"  {left}", *wrapped(right, width, before=" " * 6, below=" " * 6)]
    if len(left) >= column:
        return [f"  {left}", *wrapped(right, width, before=start, below=start)]
    return [
        line.rstrip() for line in wrapped(right, width, before=f"  {left:<{column}}", below=start)
    ]


def fitted(widths: Sequence[int], available: int | None) -> list[int]:
    """Return column widths that fit: long ones are cut, then the last are dropped (0)."""
    result = list(widths)
    if available is None:
        return result

    def excess() -> int:
        return sum(result) + len(_GAP) * (sum(map(bool, result)) - 1) - available

    for column in reversed(range(1, len(result))):
        if excess() > 0 and result[column] > _WORTH_CUTTING:
            result[column] = max(_WORTH_CUTTING, result[column] - excess())
    for column in reversed(range(1, len(result))):
        if excess() > 0:
            result[column] = 0
    result[0] = min(result[0], available)
    return result


def display_width(text: str) -> int:
    """Return how many columns a text takes; most scripts take one a letter, some take two."""
    if text.isascii():
        return len(text)
    import unicodedata

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
