"""Single values from text: numbers, words, paths, members of enums and literals."""

from __future__ import annotations

import enum
import os
import pathlib
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from nemo_run.cli.values import literals
from nemo_run.cli.values.errors import LiteralParseError, ParseError
from nemo_run.cli.values.importing import locate
from nemo_run.cli.values.literals import NONE_WORDS, unquote
from nemo_run.cli.values.suggestions import did_you_mean

BOOL_WORDS = {
    **dict.fromkeys(("true", "yes", "1", "on"), True),
    **dict.fromkeys(("false", "no", "0", "off"), False),
}


def is_scalar(hint: Any) -> bool:
    """Tell whether `parse` and `conform` know the values of a hint."""
    origin = typing.get_origin(hint) or hint
    if origin in _PARSERS or origin is Literal:
        return True
    return isinstance(origin, type) and (issubclass(origin, enum.Enum) or _is_path(origin))


def parse(text: str, hint: Any) -> Any:
    """Return ``text`` as a value of a scalar hint.

    Raises:
        ParseError: it does not fit.
    """
    if hint in _PARSERS:
        return _PARSERS[hint](text)
    if typing.get_origin(hint) is Literal:
        return _parse_literal(text, hint)
    cls = typing.get_origin(hint) or hint
    return _parse_enum(text, cls) if issubclass(cls, enum.Enum) else _parse_path(text, cls)


def conform(value: Any, hint: Any) -> Any:
    """Return ``value``, which is not text, as a value of a scalar hint.

    Raises:
        ParseError: it does not fit.
    """
    if hint in _CONFORMERS:
        return _CONFORMERS[hint](value)
    if typing.get_origin(hint) is Literal:
        return _conform_literal(value, hint)
    cls = typing.get_origin(hint) or hint
    if isinstance(value, cls):
        return value
    if issubclass(cls, enum.Enum):
        return _enum_by_value(value, cls)
    raise ParseError(str(value), hint, got(value))


def got(value: Any) -> str:
    """Say what kind of value there is instead of the one asked for."""
    noun = type(value).__name__
    return f"got {'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        found = _named_number(text)
        if isinstance(found, int):
            return found
        raise ParseError(text, int, _not_a_number(text, "integer")) from None


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        found = _named_number(text)
        if found is not None:
            return float(found)
        raise ParseError(text, float, _not_a_number(text, "float")) from None


def _not_a_number(text: str, kind: str) -> str:
    plain = text.strip()
    quoted = "; what is in quotes is text" if unquote(plain) != plain else ""
    return f"Invalid {kind} literal{quoted}"


def without_named_numbers(text: str, options: list[Any]) -> list[Any]:
    """Return ``options`` without numbers where ``text``, a dotted name, may be meant as a text.

    Looking for the number would import, and so execute, a file whose name is only passed on.
    """
    is_name = all(part.isidentifier() for part in text.strip().split("."))
    if (
        "." not in text
        or not is_name
        or all(option in (int, float, bool, type(None)) for option in options)
    ):
        return options
    return [option for option in options if option not in (int, float)]


def _named_number(text: str) -> int | float | None:
    """Return the number that ``module.name`` is, such as ``math.pi``, or None."""
    if "." not in text:
        return None
    try:
        found = locate(text.strip())
    except (ImportError, AttributeError):
        return None
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return found if is_number else None


def _parse_complex(text: str) -> complex:
    try:
        return complex(text.strip())
    except ValueError:
        raise ParseError(text, complex, "Invalid complex literal") from None


def _parse_bool(text: str) -> bool:
    try:
        return BOOL_WORDS[unquote(text.strip()).lower()]
    except KeyError:
        raise ParseError(text, bool, f"Not one of {', '.join(BOOL_WORDS)}") from None


def _parse_bytes(text: str) -> bytes:
    value = literals.read_or_text(text)
    if isinstance(value, bytes):
        return value
    raise ParseError(text, bytes, "Not a Python bytes literal such as b'abc'")


def _parse_none(text: str) -> None:
    if text.strip().lower() not in NONE_WORDS:
        raise ParseError(text, None, "Only None is allowed")


_PARSERS: Mapping[Any, Callable[[str], Any]] = {
    int: _parse_int,
    float: _parse_float,
    complex: _parse_complex,
    bool: _parse_bool,
    bytes: _parse_bytes,
    str: unquote,
    type(None): _parse_none,
}


def _conform_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ParseError(str(value), int, got(value))


def _conform_float(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ParseError(str(value), float, "Too large") from None
    raise ParseError(str(value), float, got(value))


def _conform_complex(value: Any) -> complex:
    return value if isinstance(value, complex) else complex(_conform_float(value))


def _conform_bool(value: Any) -> bool:
    return value if isinstance(value, bool) else _parse_bool(str(value))


def _conform_str(value: Any) -> str:
    if isinstance(value, (int, float)):
        return str(value)
    raise ParseError(str(value), str, got(value))


def _conform_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    raise ParseError(str(value), bytes, got(value))


def _conform_none(value: Any) -> None:
    if value is not None:
        raise ParseError(str(value), None, "Only None is allowed")


_CONFORMERS: Mapping[Any, Callable[[Any], Any]] = {
    int: _conform_int,
    float: _conform_float,
    complex: _conform_complex,
    bool: _conform_bool,
    bytes: _conform_bytes,
    str: _conform_str,
    type(None): _conform_none,
}


def _parse_literal(text: str, hint: Any) -> Any:
    allowed = typing.get_args(hint)
    plain = unquote(text)
    for value in allowed:
        if isinstance(value, enum.Enum):
            if plain in (value.name, f"{type(value).__name__}.{value.name}"):
                return value
        elif isinstance(value, str) and plain == value:
            return value
    try:
        return _conform_literal(literals.read(text), hint)
    except (literals.NotALiteralError, LiteralParseError):
        pass
    word = text.strip().lower()
    for value in allowed:
        if value is None and word in NONE_WORDS:
            return value
        if isinstance(value, bool) and BOOL_WORDS.get(word) is value:
            return value
    raise _not_allowed(text, hint)


def _conform_literal(value: Any, hint: Any) -> Any:
    for allowed in typing.get_args(hint):
        # 1 == True, but perhaps only one of them is allowed.
        if allowed == value and type(allowed) is type(value):
            return allowed
    raise _not_allowed(str(value), hint)


def _not_allowed(text: str, hint: Any) -> LiteralParseError:
    expected = ", ".join(map(repr, typing.get_args(hint)))
    return LiteralParseError(text, hint, f"Expected one of {expected}")


def _parse_enum(text: str, cls: type[enum.Enum]) -> enum.Enum:
    plain = unquote(text.strip())
    name = plain.removeprefix(f"{cls.__name__}.")
    if name in cls.__members__:
        return cls.__members__[name]
    for candidate in (plain, literals.read_or_text(plain)):
        try:
            return cls(candidate)
        except (ValueError, TypeError):
            continue
    raise ParseError(
        text, cls, f"No member has that name or value. {did_you_mean(name, cls.__members__)}"
    )


def _enum_by_value(value: Any, cls: type[enum.Enum]) -> enum.Enum:
    try:
        return cls(value)
    except (ValueError, TypeError):
        values = ", ".join(repr(member.value) for member in cls)
        raise ParseError(str(value), cls, f"Expected one of {values}") from None


def _is_path(cls: type) -> bool:
    return cls is os.PathLike or issubclass(cls, pathlib.PurePath)


def _parse_path(text: str, cls: type) -> Any:
    plain = unquote(text.strip()).strip()
    if "\0" in plain:
        raise ParseError(text, cls, "A path cannot contain a NUL character")
    return pathlib.Path(plain) if cls is os.PathLike else cls(plain)
