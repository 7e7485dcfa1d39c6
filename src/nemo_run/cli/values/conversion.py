"""Values from text, as the annotation of a parameter asks for them."""

from __future__ import annotations

import collections.abc
import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ForwardRef, TypeVar

from nemo_run._config.fiddle import fdl
from nemo_run.cli.values import literals, scalars
from nemo_run.cli.values.errors import (
    CLIException,
    CollectionParseError,
    DictParseError,
    ListParseError,
    ParseError,
    UnknownTypeError,
    summary,
)
from nemo_run.cli.values.hints import (
    UNANNOTATED,
    allows_none,
    constituents,
    evaluate,
    hint_for,
    members,
    parameters,
    simplify,
    type_name,
)
from nemo_run.cli.values.literals import unquote
from nemo_run.cli.values.scalars import got
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.config import Config

Parser = Callable[[str, Any], Any]
ParserT = TypeVar("ParserT", bound=Parser)

_LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)


class TypeParser:
    """Makes values from text by annotation.

    With ``strict_mode`` an annotation that nothing is known about is an error; without, the text
    is returned as it is.
    """

    def __init__(self, strict_mode: bool = True):
        self.strict_mode = strict_mode
        self._custom: dict[Any, Parser] = {}

    def register_parser(self, type_: Any) -> Callable[[ParserT], ParserT]:
        """Use the decorated function, which gets text and annotation, for values of ``type_``."""

        def register(parser: ParserT) -> ParserT:
            self._custom[type_] = parser
            return parser

        return register

    def parse(self, value: str, annotation: Any) -> Any:
        """Return ``value``, as typed on a command line, as what ``annotation`` asks for.

        Each call gives a value of its own.

        Raises:
            ParseError: the text does not fit; a subclass says what was asked for.
        """
        hint = _resolved(annotation)
        custom = self._custom_parser(hint)
        if custom is not None:
            return _guarded(custom, value, hint)
        if value.strip().lower() in literals.NONE_WORDS and allows_none(hint):
            return None
        text = unquote(value, '"')
        if text != value and _takes_text(hint) and _is_number(text):
            return text
        return self._parse(text, hint)

    def conform(self, value: Any, annotation: Any) -> Any:
        """Return ``value``, which came from a file or a literal, as ``annotation`` asks for it.

        Configs are taken for what they build.

        Raises:
            ParseError: it does not fit.
        """
        hint = _resolved(annotation)
        if isinstance(value, fdl.Buildable) or hint in (Any, object, UNANNOTATED):
            return value
        options = members(hint)
        if len(options) > 1:
            return self._conform_to_one_of(value, options, hint)
        if isinstance(value, str):
            return value if hint is str else self.parse(value, hint)
        return self._conform(value, hint)

    def infer_type(self, value: str) -> type:
        """Return the type of the Python literal that ``value`` is, or else ``str``."""
        return type(literals.read_or_text(value))

    def _custom_parser(self, hint: Any) -> Parser | None:
        for key in (hint, typing.get_origin(hint)):
            try:
                if key in self._custom:
                    return self._custom[key]
            except TypeError:  # an annotation that cannot be hashed
                continue
        return None

    def _parse(self, text: str, hint: Any) -> Any:
        options = members(hint)
        if len(options) > 1:
            return self._parse_one_of(text, options, hint)
        if hint in (Any, object, UNANNOTATED):
            return literals.read_or_text(text)
        if isinstance(hint, ForwardRef):
            return text
        if scalars.is_scalar(hint):
            return scalars.parse(text, hint)
        if _is_collection(hint):
            return self._parse_collection(text, hint)
        if _has_fields(hint):
            fields = literals.read_or_text(text)
            if isinstance(fields, Mapping):
                return self._conform(fields, hint)
        if self.strict_mode:
            raise UnknownTypeError(text, hint, f"Unsupported type: {type_name(hint)}")
        return text

    def _parse_one_of(self, text: str, options: Iterable[Any], hint: Any) -> Any:
        reasons: list[str] = []
        for option in scalars.without_named_numbers(text, list(options)):
            try:
                return self.parse(text, option)
            except ParseError as err:
                if option is not type(None):
                    reasons.append(err.reason)
        raise ParseError(text, hint, "; ".join(dict.fromkeys(reasons)))

    def _parse_collection(self, text: str, hint: Any) -> Any:
        error, noun = _collection(hint)
        try:
            value = literals.read(text)
            if isinstance(value, str):  # in quotes, as strings from files and scripts may be
                value = literals.read(value)
        except literals.NotALiteralError:
            raise error(text, hint, f"Not a Python {noun}") from None
        try:
            return self._conform(value, hint)
        except ParseError as err:
            reason = err.reason
            if err.value != str(value):
                reason = f"{err.value!r} is not {type_name(err.expected_type)}: {reason}"
            raise error(text, hint, reason) from None

    def _conform_to_one_of(self, value: Any, options: list[Any], hint: Any) -> Any:
        # 3 for `float | int` is an int and "3" for `int | str` a text, whatever the order.
        exact = [
            option for option in options if (typing.get_origin(option) or option) is type(value)
        ]
        reasons: list[str] = []
        for option in (*exact, *options):
            try:
                return self.conform(value, option)
            except ParseError as err:
                if option is not type(None):
                    reasons.append(err.reason)
        raise ParseError(str(value), hint, "; ".join(dict.fromkeys(reasons)))

    def _conform(self, value: Any, hint: Any) -> Any:
        origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
        if scalars.is_scalar(hint):
            return scalars.conform(value, hint)
        if origin is tuple:
            return self._conform_tuple(value, hint, args)
        if origin in _LISTS:
            return self._conform_list(value, hint, args)
        if origin in _SETS:
            return self._conform_set(value, hint, args)
        if origin in _DICTS:
            return self._conform_dict(value, hint, args)
        if isinstance(value, Mapping) and _has_fields(hint):
            fields = self._conform_fields(value, origin)
            return fields if typing.is_typeddict(origin) else Config(origin, **fields)
        if not isinstance(origin, type) or _is_instance(value, origin) or not self.strict_mode:
            return value
        raise UnknownTypeError(str(value), hint, got(value))

    def _conform_list(self, value: Any, hint: Any, args: tuple[Any, ...]) -> Any:
        # A tuple is a Sequence, too.
        kinds = (list,) if (typing.get_origin(hint) or hint) is list else (list, tuple)
        if not isinstance(value, kinds):
            raise ListParseError(str(value), hint, got(value))
        items = [self.conform(item, args[0] if args else Any) for item in value]
        return items if isinstance(value, list) else tuple(items)

    def _conform_tuple(self, value: Any, hint: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise CollectionParseError(str(value), hint, got(value))
        if (typing.get_origin(hint) or hint) is hint:
            return tuple(value)
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(self.conform(item, args[0]) for item in value)
        if len(value) != len(args):
            raise CollectionParseError(
                str(value), hint, f"{len(value)} elements instead of {len(args)}"
            )
        return tuple(map(self.conform, value, args))

    def _conform_set(self, value: Any, hint: Any, args: tuple[Any, ...]) -> Any:
        if value == {}:  # what braces with nothing in them mean to Python
            value = ()
        if not isinstance(value, (set, frozenset, list, tuple)):
            raise CollectionParseError(str(value), hint, got(value))
        kind = frozenset if (typing.get_origin(hint) or hint) is frozenset else set
        try:
            return kind(self.conform(item, args[0] if args else Any) for item in value)
        except TypeError as err:
            raise CollectionParseError(str(value), hint, str(err)) from err

    def _conform_dict(self, value: Any, hint: Any, args: tuple[Any, ...]) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise DictParseError(str(value), hint, got(value))
        key_hint, value_hint = args if len(args) == 2 else (Any, Any)
        return {
            self.conform(key, key_hint): self.conform(item, value_hint)
            for key, item in value.items()
        }

    def _conform_fields(self, value: Mapping[Any, Any], owner: Any) -> dict[str, Any]:
        if typing.is_typeddict(owner):
            hints = typing.get_type_hints(owner, include_extras=True)
        else:
            hints = {name: hint_for(owner, name) for name in parameters(owner)}
        unknown = next((name for name in value if name not in hints), None)
        if unknown is not None:
            raise ParseError(
                str(value), owner, f"No field {unknown!r}. {did_you_mean(str(unknown), hints)}"
            )
        return {name: self.conform(item, hints[name]) for name, item in value.items()}


type_parser = TypeParser()
"""The parser that command-line words go through."""


def parse_value(value: str, annotation: Any = None) -> Any:
    """Return ``value`` as ``annotation`` asks for it; without one, as the literal it looks like."""
    return type_parser.parse(value, UNANNOTATED if annotation is None else annotation)


def is_plain(hint: Any) -> bool:
    """Tell whether values for a hint are written as text or literals, never made by factories."""
    return hint is UNANNOTATED or all(
        part is Ellipsis or scalars.is_scalar(part) or _is_collection(part)
        for part in constituents(hint)
    )


def accepts_any_text(hint: Any) -> bool:
    """Tell whether every text is a value for a hint."""
    return any(member is str or isinstance(member, ForwardRef) for member in members(hint))


def element_hint(hint: Any, key: int | str) -> Any:
    """Return what a hint for a collection says about the element at ``key``."""
    for member in members(hint):
        origin, args = typing.get_origin(member), typing.get_args(member)
        if origin is tuple and isinstance(key, int) and Ellipsis not in args:
            return args[key] if key < len(args) else Any
        if origin is tuple or origin in _LISTS or origin in _SETS:
            return args[0]
        if origin in _DICTS:
            return args[1]
    return UNANNOTATED


def is_dict(hint: Any) -> bool:
    """Tell whether a hint is for a dict with keys of any name."""
    return (typing.get_origin(hint) or hint) in _DICTS


def _takes_text(hint: Any) -> bool:
    return accepts_any_text(hint) or hint in (Any, object, UNANNOTATED)


def _is_number(text: str) -> bool:
    return isinstance(literals.read_or_text(text), (int, float, complex))


def _resolved(annotation: Any) -> Any:
    if isinstance(annotation, str):
        try:
            annotation = evaluate(annotation, dict(vars(typing)), {})
        except (NameError, AttributeError, TypeError, SyntaxError):
            return (
                ForwardRef("unknown") if not annotation.isidentifier() else ForwardRef(annotation)
            )
    return simplify(annotation)


def _guarded(parser: Parser, text: str, hint: Any) -> Any:
    try:
        return parser(text, hint)
    except CLIException:
        raise
    except Exception as err:
        raise ParseError(text, hint, summary(err)) from err


def _is_collection(hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    return origin is tuple or origin in _LISTS or origin in _DICTS or origin in _SETS


def _collection(hint: Any) -> tuple[type[CollectionParseError], str]:
    origin = typing.get_origin(hint) or hint
    if origin in _DICTS:
        return DictParseError, "dict"
    if origin in _LISTS:
        return ListParseError, "list"
    return CollectionParseError, "tuple" if origin is tuple else "set"


def _has_fields(hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    return typing.is_typeddict(origin) or (
        isinstance(origin, type) and dataclasses.is_dataclass(origin)
    )


def _is_instance(value: Any, cls: type) -> bool:
    try:
        return isinstance(value, cls)
    except TypeError:  # a protocol that cannot be checked
        return True
