"""Tables of text that fit a terminal, for the command line and for Python."""

from __future__ import annotations

from collections.abc import Sequence

GAP = "  "
WORTH_CUTTING = 24
_NARROWEST = 14


def laid_out(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    dispensable: Sequence[str] = (),
) -> list[list[str]]:
    """Return the lines of a table, each as its cells, filled up with blanks.

    Cells in the way of a narrow terminal are cut, the last first. Where that is not enough columns
    are left out: first the ``dispensable`` ones, by their headers. A width of None is no limit.
    """
    lines = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    measured = [list(map(display_width, line)) for line in lines]
    needed = [max(column) for column in zip(*measured, strict=True)]
    widths = fitted(needed, width, [list(header).index(name) for name in dispensable])
    return [
        [filled(cut(cell, w), w) for cell, w in zip(line, widths, strict=True) if w > 0]
        for line in lines
    ]


def filled(text: str, width: int) -> str:
    """Return a text with blanks after it, as wide as a column."""
    return text + " " * (width - display_width(text))


def fitted(
    widths: Sequence[int], available: int | None, dispensable: Sequence[int] = ()
) -> list[int]:
    """Return column widths that fit: long ones are cut, then some are dropped (0).

    Of those that are dropped, the ``dispensable`` come first, in their order; then the last.
    """
    result = list(widths)
    if available is None:
        return result

    def excess() -> int:
        return sum(result) + len(GAP) * (sum(map(bool, result)) - 1) - available

    for column in dispensable:
        spare = sum(width - _NARROWEST for width in result[1:] if width > WORTH_CUTTING)
        if excess() > spare:
            result[column] = 0
    for least in (WORTH_CUTTING, _NARROWEST):
        for column in reversed(range(1, len(result))):
            if excess() > 0 and widths[column] > WORTH_CUTTING and result[column] > least:
                result[column] = max(least, result[column] - excess())
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
