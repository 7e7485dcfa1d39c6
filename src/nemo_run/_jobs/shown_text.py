"""Text that jobs, servers and stored files contain, made fit for a terminal."""

from __future__ import annotations

import re
import sys

# Colours and the erasing of a line, or else one control character, of those in 8 bits too.
_STEERING = re.compile(r"\033\[[0-9;:]{0,30}m|\033\[[0-2]?K|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SEQUENCE = re.compile(r"\033\[[0-9;:?]*[A-Za-z]")
_COLOURED_LINE = re.compile(r"[^\n]*\033\[[0-9;:]*m[^\n]*")
# A carriage return has the rest of a line written over its beginning, and so over our own words.
_WRITES_OVER = re.compile(r"\033\[[0-2]?K|\r(?!\n)")


def for_terminal(text: str) -> str:
    """Return what a job wrote without what would steer a terminal.

    Colours, tabs, carriage returns and the erasing of a line stay, and a colour ends with its
    line. Other control characters are shown: ``^[`` for an escape, ``^G`` for a bell.
    """
    if _STEERING.search(text) is None:
        return text
    shown = _STEERING.sub(_shown, text)
    return _COLOURED_LINE.sub(r"\g<0>\033[0m", shown)


def in_message(text: str) -> str:
    """Return a text that has words of others among ours: nothing is written over ours, either."""
    if text.isprintable():
        return text
    return _WRITES_OVER.sub(lambda match: as_text(match[0]), for_terminal(text))


def as_text(text: str) -> str:
    """Return a text with all control characters shown, but for ends of lines and tabs."""
    if text.isprintable():
        return text
    return "".join(char if char in "\n\t" else _letters(char) for char in text)


def plain(line: str) -> str:
    """Return a line as a terminal would show it in the end, without colours."""
    return _SEQUENCE.sub("", line.rstrip("\r\n")).rpartition("\r")[2]


def show(text: str) -> None:
    """Print what a job wrote, as it is where no terminal reads it."""
    print(for_terminal(text) if sys.stdout.isatty() else text, end="")


def _shown(match: re.Match[str]) -> str:
    found = match[0]
    # More than one character is a colour, or the erasing of a line.
    return found if len(found) > 1 else _letters(found)


def _letters(char: str) -> str:
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return f"^{chr(code ^ 0x40)}"
    return f"\\x{code:02x}" if 0x80 <= code < 0xA0 else char
