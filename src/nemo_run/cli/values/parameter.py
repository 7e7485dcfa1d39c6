"""The place in a config that a value is for, and configs to put there."""

from __future__ import annotations

import collections.abc
import copy
import typing
from dataclasses import dataclass, replace
from typing import Annotated, Any

from nemo_run._config.fiddle import fdl
from nemo_run.cli.values.conversion import element_hint, is_dict, is_plain
from nemo_run.cli.values.hints import UNANNOTATED, constituents, members, parameters, simplify
from nemo_run.config import Config, Partial

Kind = type[Config[Any]] | type[Partial[Any]]


@dataclass(frozen=True)
class Slot:
    """Where a value goes.

    Attributes:
        owner: the callable that is being configured.
        name: the parameter of it.
        hint: what the parameter, or the element of it that is meant, is annotated with.
    """

    owner: Any
    name: str
    hint: Any = UNANNOTATED

    def element(self, key: int | str) -> Slot:
        """Return the place of one element of a collection that is here."""
        return replace(self, hint=element_hint(self.hint, key))


def empty_config(hint: Any, *, kind: Kind | None = None, field: str | None = None) -> Any:
    """Return a new config of the class that ``hint`` names, or None if it names none.

    Args:
        kind: `Config` or `Partial`; otherwise what the hint asks for.
        field: a parameter the class should have, where the hint leaves a choice.
    """
    choices = list(_buildable_targets(hint))
    if not choices:
        return None
    fitting = [choice for choice in choices if field is None or _takes(choice[1], field)]
    default_kind, target = (fitting or choices)[0]
    return (kind or default_kind)(target)


def _buildable_targets(hint: Any) -> typing.Iterator[tuple[Kind, Any]]:
    preferred = _noted_kind(hint)
    for member in members(hint):
        origin = typing.get_origin(member)
        if isinstance(origin, type) and issubclass(origin, fdl.Buildable):
            (target,) = typing.get_args(member)
            yield (Partial if issubclass(origin, fdl.Partial) else Config), simplify(target)
        elif is_dict(member):
            yield Config, dict
        elif _is_configurable(origin or member):
            yield preferred, origin or member


def _is_configurable(cls: Any) -> bool:
    return is_class(cls) and not is_plain(cls)


def _noted_kind(hint: Any) -> Kind:
    """Return the kind that `OptionalDefaultConfig` and `OptionalDefaultPartial` ask for."""
    if typing.get_origin(hint) is Annotated:
        for note in hint.__metadata__:
            if typing.get_origin(note) in (Config, Partial):
                return typing.cast("Kind", typing.get_origin(note))
    return Config


def _takes(target: Any, field: str) -> bool:
    known = parameters(target)
    return field in known or any(p.kind is p.VAR_KEYWORD for p in known.values())


def is_class(hint: Any) -> bool:
    """Tell a class that can have configs from what only looks like one."""
    # Any is a class, too, in newer Pythons.
    others = (Any, object, type, collections.abc.Callable)
    return isinstance(hint, type) and hint not in others


def mentions_buildable(hint: Any) -> bool:
    """Tell whether a hint asks for a config itself rather than for what it builds."""
    return any(isinstance(t, type) and issubclass(t, fdl.Buildable) for t in constituents(hint))


def own(value: Any) -> Any:
    """Return ``value`` with new configs, lists, tuples and dicts, sharing only what is in them.

    What is made again is shared among its users as the original is.
    """
    return _own(value, {})


def _own(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    made = value
    if isinstance(value, fdl.Buildable):
        made = copy.copy(value)
        for name, child in value.__arguments__.items():
            made.__arguments__[name] = _own(child, memo)
    elif type(value) in (list, tuple):
        made = type(value)(_own(child, memo) for child in value)
    elif type(value) is dict:
        made = {key: _own(child, memo) for key, child in value.items()}
    memo[id(value)] = made
    return made
