"""Python tracebacks in a log: which exceptions ended a program, and where they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_BEGIN = re.compile(
    r"^(\s*(?:[|+]\s*)?)(?:\+ )?(?:Exception Group |Original )?Traceback \(most recent call last\):"
)
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*)|:)?$")
_SYNTAX = re.compile(r"^(?:SyntaxError|IndentationError|TabError): ")
_CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_LAUNCHERS = ("ChildFailedError", "ProcessRaisedException", "_RemoteTraceback", "SystemExit")
"""What says only that something else failed, which stands before or after it."""
_GROUP_MARK = re.compile(r"^\s*\| ?")


class Raised(NamedTuple):
    """An exception in a log.

    Attributes:
        name: its class, without the module.
        message: its text, as far as it stands in the first line.
        line: where that line is.
    """

    name: str
    message: str
    line: int

    @property
    def text(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


def last_raised(lines: Sequence[str]) -> list[Raised]:
    """Return the last exception of a log, after those that it was raised from.

    What a launcher raises for one of its processes is left out.
    """
    chain: list[Raised] = []
    for raised, linked in _all(lines):
        if raised.name not in _LAUNCHERS:
            chain = [*chain, raised] if linked else [raised]
    return chain


def _all(lines: Sequence[str]) -> list[tuple[Raised, bool]]:
    found: list[tuple[Raised, bool]] = []
    number = 0
    linked = False
    while number < len(lines):
        line = lines[number]
        if line.strip() in _CHAINED:
            linked = True
        elif _BEGIN.match(line) or (line.startswith("  File ") and not _inside(lines, number)):
            in_thread = number > 0 and lines[number - 1].startswith("Exception in thread ")
            end = _end(lines, number + 1)
            raised = _read(lines, end)
            if raised is not None and not in_thread:
                found.append((raised, linked))
            linked = False
            number = end
        number += 1
    return found


def _inside(lines: Sequence[str], number: int) -> bool:
    """Tell whether a line that names a file is not the begin of a SyntaxError's own report."""
    return not any(_SYNTAX.match(line) for line in lines[number : number + 5])


def _end(lines: Sequence[str], number: int) -> int:
    """Return where the frames of a traceback end: the line with the exception."""
    while number < len(lines):
        text = _GROUP_MARK.sub("", lines[number])
        if text and not text.startswith((" ", "\t")):
            return number
        number += 1
    return number


def _read(lines: Sequence[str], number: int) -> Raised | None:
    if number >= len(lines):
        return None
    text = _GROUP_MARK.sub("", lines[number]).strip()
    match = _ERROR.match(text)
    if match is None:
        return None
    return Raised(match[1].rpartition(".")[2], (match[2] or "").strip(), number)
