"""Compare, copy and convert trees of buildables, each node once.

Fiddle's own versions walk the tree again for every level, which is quadratic for the deep
configs people write; these are linear.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from nemo_run._config import later
from nemo_run._config.fiddle import History, SignatureInfo, fdl, get_signature
from nemo_run._values import literal

BuildableT = TypeVar("BuildableT", bound=fdl.Buildable[Any])

_ATOMS = frozenset({int, float, bool, str, bytes, type(None), type, complex})
_UNSET = object()

PLAIN_KINDS: set[type] = {fdl.Config, fdl.Partial}
"""Buildables that are a target with arguments and nothing else; `nemo_run.config` adds its own."""


def make(
    cls: type[BuildableT],
    target: Callable[..., Any],
    arguments: dict[str | int, Any],
    *,
    tags: Mapping[str | int, Any] | None = None,
    signature: SignatureInfo | None = None,
) -> BuildableT:
    """Make a buildable from arguments that are already in Fiddle's storage form.

    Nothing is converted or checked, and no history is recorded.
    """
    made = object.__new__(cls)
    own = made.__dict__
    own["__fn_or_cls__"] = target
    own["__arguments__"] = arguments
    own["__signature_info__"] = signature or SignatureInfo(signature=get_signature(target))
    own["__argument_tags__"] = defaultdict(set)
    own["__argument_history__"] = History()
    if tags:
        own["__argument_tags__"].update({name: set(of) for name, of in tags.items()})
    return made


def deep_copy(buildable: BuildableT, memo: dict[int, Any]) -> BuildableT:
    """Copy a buildable and everything in it; callables and signatures are shared.

    The record of who set what where starts anew with the copy.
    """
    arguments: dict[str | int, Any] = {}
    copied = make(
        type(buildable),
        buildable.__fn_or_cls__,
        arguments,
        tags=buildable.__argument_tags__,
        signature=buildable.__signature_info__,
    )
    memo[id(buildable)] = copied
    for name, value in buildable.__arguments__.items():
        arguments[name] = value if type(value) in _ATOMS else _copied(value, memo)
    if later.ATTRIBUTE in buildable.__dict__:
        copied.__dict__[later.ATTRIBUTE] = _copied(buildable.__dict__[later.ATTRIBUTE], memo)
    return copied


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    kind = type(value)
    if kind in PLAIN_KINDS:
        return deep_copy(value, memo)
    if kind is list:
        items: list[Any] = []
        memo[id(value)] = items
        items += [item if type(item) in _ATOMS else _copied(item, memo) for item in value]
        return items
    if kind is dict:
        mapping: dict[Any, Any] = {}
        memo[id(value)] = mapping
        for key, item in value.items():
            # Keys are immutable.
            mapping[key] = item if type(item) in _ATOMS else _copied(item, memo)
        return mapping
    if kind is tuple and all(type(item) in _ATOMS for item in value):
        return value
    return copy.deepcopy(value, memo)


def equal(left: Any, right: Any) -> bool:
    """Tell whether two trees would build the same thing, shared parts being shared alike.

    An argument set to its default equals one that is not set, and NaN equals NaN.
    """
    return _Comparison().same(left, right)


class _Comparison:
    def __init__(self) -> None:
        self._partner: dict[int, int] = {}
        self._partner_back: dict[int, int] = {}

    def same(self, left: Any, right: Any) -> bool:
        if isinstance(left, fdl.Buildable):
            return type(left) is type(right) and self._paired(left, right, self._same_buildable)
        kind = type(left)
        if kind is list:
            return type(right) is list and self._paired(left, right, self._same_sequence)
        if kind is tuple:
            return type(right) is tuple and self._same_sequence(left, right)
        if kind is dict:
            return type(right) is dict and self._paired(left, right, self._same_mapping)
        return left is right or _same_value(left, right)

    def _paired(self, left: Any, right: Any, compare: Callable[[Any, Any], bool]) -> bool:
        partner = self._partner.get(id(left))
        if partner is not None or id(right) in self._partner_back:
            return partner == id(right)
        self._partner[id(left)] = id(right)
        self._partner_back[id(right)] = id(left)
        return compare(left, right)

    def _same_buildable(self, left: fdl.Buildable[Any], right: fdl.Buildable[Any]) -> bool:
        if left.__fn_or_cls__ != right.__fn_or_cls__:
            return False
        ours, theirs = left.__arguments__, right.__arguments__
        for name in ours.keys() | theirs.keys():
            if name in ours and name in theirs:
                if not self.same(ours[name], theirs[name]):
                    return False
            # A default is one object for all configs, so it says nothing about sharing.
            elif not equal(_value_or_default(left, name), _value_or_default(right, name)):
                return False
        return True

    def _same_sequence(self, left: Any, right: Any) -> bool:
        return len(left) == len(right) and all(map(self.same, left, right))

    def _same_mapping(self, left: dict[Any, Any], right: dict[Any, Any]) -> bool:
        return left.keys() == right.keys() and all(self.same(left[k], right[k]) for k in left)


def _value_or_default(buildable: fdl.Buildable[Any], name: str | int) -> Any:
    value = buildable.__arguments__.get(name, _UNSET)
    if value is _UNSET:
        value = buildable.__signature_info__.get_default(name, _UNSET)
    return value


def _same_value(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    if (type(left) is literal) is not (type(right) is literal):
        return False  # equal as texts, but not to a job's shell
    try:
        if left == right:
            return True
    except (TypeError, ValueError):  # arrays answer with an array, which has no single truth
        return False
    if isinstance(left, (set, frozenset)) and type(left) is type(right):
        return _without_nan(left) == _without_nan(right)
    return False


def _without_nan(values: set[Any] | frozenset[Any]) -> tuple[set[Any], int]:
    kept = {value for value in values if value == value}
    return kept, len(values) - len(kept)


def children(value: Any) -> Iterator[Any]:
    """Yield what is directly inside a buildable, list, tuple or dict."""
    if isinstance(value, fdl.Buildable):
        yield from value.__arguments__.values()
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, (list, tuple)):
        yield from value


def buildables(root: Any) -> Iterator[fdl.Buildable[Any]]:
    """Yield every buildable in a tree once, containers before what they contain.

    Children are looked at when the caller has finished with their parent, so a caller may
    replace them.
    """
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if type(value) in _ATOMS or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, fdl.Buildable):
            yield value
        waiting.extend(reversed(list(children(value))))


def built(value: Any) -> Any:
    """Build the configs of dataclasses in a tree, also within `fdl.build`, which forbids itself."""
    if isinstance(value, fdl.Buildable):
        arguments = {str(name): built(item) for name, item in value.__arguments__.items()}
        return value.__build__(**arguments)
    if type(value) in (list, tuple):
        return type(value)(built(item) for item in value)
    if type(value) is dict:
        return {key: built(item) for key, item in value.items()}
    return value


def from_dataclass(instance: Any, kind: type[fdl.Buildable[Any]]) -> Any:
    """Turn a dataclass instance, and those inside its fields, into configs of their classes.

    Fields that the constructor does not take are left to it.
    """
    return _convert(instance, kind, {})


def _convert(value: Any, kind: type[fdl.Buildable[Any]], memo: dict[int, Any]) -> Any:
    if type(value) in _ATOMS:
        return value
    if id(value) in memo:
        return memo[id(value)]
    converted = value
    if is_dataclass_instance(value):
        converted = make(
            kind,
            type(value),
            {
                field.name: _convert(getattr(value, field.name), kind, memo)
                for field in dataclasses.fields(value)
                if field.init
            },
        )
    elif type(value) in (list, tuple):
        converted = type(value)(_convert(item, kind, memo) for item in value)
    elif type(value) is dict:
        converted = {key: _convert(item, kind, memo) for key, item in value.items()}
    memo[id(value)] = converted
    return converted


def is_dataclass_instance(value: Any) -> bool:
    """Tell an instance of a dataclass from the class itself and from a config of it."""
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and not isinstance(value, fdl.Buildable)
    )
