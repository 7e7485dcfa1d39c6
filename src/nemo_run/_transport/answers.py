"""JSON of servers, read field by field: what does not have the form it should is said so.

Answers are read where they arrive, into values with names and types; nothing behind that has to
expect anything else.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from nemo_run._transport.timestamps import seconds

T = TypeVar("T")

_MOST_TEXT = 10_000
_SHOWN = 200


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _SHOWN


class OddAnswerError(ValueError):
    """An answer is not what it should be; says what was expected, and what came."""


def decoded(data: bytes) -> Any:
    """Return what JSON says.

    Raises:
        OddAnswerError: it is none, or nested deeper than any answer is.
    """
    try:
        return json.loads(data)
    except RecursionError as err:
        raise OddAnswerError("expected JSON, got some that is nested without end") from err
    except ValueError as err:
        shown = data[:_SHOWN].decode("utf-8", "replace")
        raise OddAnswerError(f"expected JSON, got {shown!r}") from err


class Answer:
    """A JSON object. A field that is null counts as one that is not there."""

    def __init__(self, data: Any, where: str = "the answer") -> None:
        """``where`` is what to call it in an error."""
        if not isinstance(data, Mapping):
            raise OddAnswerError(f"expected an object as {where}, got {_shown(data)}")
        self.data = data
        self.where = where

    def has(self, name: str) -> bool:
        return self.data.get(name) is not None

    @overload
    def text(self, name: str) -> str: ...
    @overload
    def text(self, name: str, otherwise: T) -> str | T: ...
    def text(self, name: str, otherwise: Any = ...) -> Any:
        """Return a text, cut where it is too long for people."""
        found = self._found(name, str, "a text", otherwise)
        if not isinstance(found, str):
            return found
        # JSON can write halves of characters, which no file or terminal takes.
        return found[:_MOST_TEXT].encode("utf-8", "replace").decode()

    def id(self, name: str) -> str:
        """Return what names a thing: a text or a number, but not nothing."""
        found = self._found(name, (str, int), "an id", ...)
        if found == "" or isinstance(found, bool):
            raise OddAnswerError(f"expected an id at {self._at(name)}, got {_shown(found)}")
        return str(found)[:_MOST_TEXT].encode("utf-8", "replace").decode()

    @overload
    def number(self, name: str) -> int: ...
    @overload
    def number(self, name: str, otherwise: T) -> int | T: ...
    def number(self, name: str, otherwise: Any = ...) -> Any:
        """Return a whole number."""
        found = self._found(name, int, "a whole number", otherwise)
        if isinstance(found, bool):
            raise OddAnswerError(f"expected a whole number at {self._at(name)}, got {found}")
        return found

    def amount(self, name: str) -> float | None:
        """Return a number that is finite; None where there is none."""
        found: float | None = self._found(name, (int, float), "a number", None)
        if isinstance(found, float) and not math.isfinite(found):
            raise OddAnswerError(f"expected a number at {self._at(name)}, got {found}")
        return found

    def flag(self, name: str) -> bool:
        """Return whether something is so; no where that is not said."""
        return bool(self._found(name, bool, "true or false", False))

    def moment(self, name: str) -> float | None:
        """Return a time as seconds since the epoch; None where there is none."""
        text = self.text(name, None)
        if not text:
            return None
        try:
            return seconds(text)
        except (ValueError, OverflowError) as err:
            raise OddAnswerError(f"expected a time at {self._at(name)}, got {text!r}") from err

    def inner(self, name: str) -> Answer:
        """Return the object in a field; an empty one where there is none."""
        found = self.data.get(name)
        return Answer({} if found is None else found, self._at(name))

    def items(self, name: str, *, required: bool = False) -> list[Answer]:
        """Return the objects of a list; none where there is no list, unless one is required."""
        found = self._found(name, list, "a list", ... if required else [])
        return [Answer(item, f"{self._at(name)}[{index}]") for index, item in enumerate(found)]

    def texts(self, name: str) -> dict[str, str]:
        """Return an object whose fields are texts, such as labels."""
        inner = self.inner(name)
        return {str(key): inner.text(key) for key in inner.data}

    def _found(self, name: str, kind: Any, expected: str, otherwise: Any) -> Any:
        found = self.data.get(name)
        if found is None and otherwise is not ...:
            return otherwise
        if not isinstance(found, kind):
            raise OddAnswerError(f"expected {expected} at {self._at(name)}, got {_shown(found)}")
        return found

    def _at(self, name: str) -> str:
        return f"{self.where}.{name}"


def expect(what: str, wanted: str, got: str) -> None:
    """Raise OddAnswerError where an answer is about another thing than was asked for."""
    if wanted != got:
        raise OddAnswerError(f"expected {what} {wanted!r}, got {got[:_SHOWN]!r}")


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return _REPR.repr(value)
