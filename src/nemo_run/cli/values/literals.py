"""Python literals in texts, read without running anything."""

from __future__ import annotations

import ast
import warnings
from typing import Any

NONE_WORDS = frozenset({"none", "null"})


class NotALiteralError(ValueError):
    """A text is not the notation of a Python value."""


def read(text: str) -> Any:
    """Return the value that ``text`` is the Python notation of.

    Raises:
        NotALiteralError: it is something else.
    """
    try:
        with warnings.catch_warnings():
            # The compiler warns about "\d" and the like, which a user's text may well contain.
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as err:
        # The last two are how the compiler refuses what is nested too deeply.
        raise NotALiteralError(text) from err


def read_or_text(text: str) -> Any:
    """Return the value that ``text`` is the Python notation of, or else the text itself."""
    try:
        return read(text)
    except NotALiteralError:
        return text


def unquote(text: str, quotes: str = "\"'") -> str:
    """Remove one pair of quotes that encloses the whole text, and what keeps others inside it."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in quotes:
        quote, inside = text[0], text[1:-1]
        escaped = "\\" + quote
        if quote not in inside.replace(escaped, "") and not inside.endswith("\\"):
            return inside.replace(escaped, quote)
    return text
