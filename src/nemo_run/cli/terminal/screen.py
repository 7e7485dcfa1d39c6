"""Text for a terminal, or for whatever else reads it: widths, colours and tables."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from nemo_run._experiments.display.tables import GAP, laid_out
from nemo_run._jobs.shown_text import in_message

BOLD, DIM, RED, GREEN, YELLOW, MAGENTA, CYAN = "1", "2", "31", "32", "33", "35", "36"

STATE_COLOURS = {
    "SUCCEEDED": GREEN,
    "FAILED": RED,
    "CANCELLED": MAGENTA,
    "RUNNING": CYAN,
    "UNKNOWN": YELLOW,
}

DEFAULT_WIDTH = 100
"""Columns of texts for people where the output has no width."""

_MIN_WIDTH = 20


class Screen:
    """Where answers go.

    Attributes:
        width: how many columns there are; None where the output has no width, as a pipe.
        coloured: whether colours are wanted.
    """

    def __init__(
        self, stream: TextIO | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.stream = stream or sys.stdout
        if isinstance(self.stream, io.TextIOWrapper):
            # Names of files need not be text in any encoding.
            self.stream.reconfigure(errors="backslashreplace")
        self._is_terminal = is_terminal = self.stream.isatty()
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
        """Print a text; what others wrote in it does not steer a terminal."""
        print(in_message(text) if self._is_terminal else text, file=self.stream)

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
        column = max((len(name) for name, _ in rows), default=0) + len(GAP)
        for name, about in rows:
            for line in two_columns(name, about, self.width or DEFAULT_WIDTH, column):
                self.print(line)

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        dispensable: Sequence[str] = (),
    ) -> list[list[str]]:
        """Print rows under a header, and return what was printed: see `laid_out`."""
        text = []
        table = laid_out(header, rows, self.width, dispensable=dispensable)
        for number, cells in enumerate(table):
            text.append(GAP.join(self._cell(cell, heading=number == 0) for cell in cells).rstrip())
        self.print("\n".join(text))
        return table

    def _cell(self, cell: str, *, heading: bool) -> str:
        word = cell.rstrip()
        # A state is a word of its own, so nothing else can be mistaken for one.
        colour = BOLD if heading else STATE_COLOURS.get(word, "")
        return self.style(word, colour) + cell[len(word) :] if colour else cell


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
