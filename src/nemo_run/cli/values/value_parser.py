"""What a text on the command line means for the place it is for.

In order: None, ``Config`` and ``Partial``, a factory or something importable, a list of these,
and otherwise what the annotation makes of it. Text stays text: a parameter that takes strings
or other plain values gets a factory's result only where the call is written with parentheses, and
one that takes anything calls what is no factory only then.
"""

from __future__ import annotations

import collections.abc
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_run._config.fiddle import fdl
from nemo_run.cli.registry.factories import (
    find_for_argument,
    find_registered,
    is_factory,
    names_for,
)
from nemo_run.cli.values import literals
from nemo_run.cli.values.conversion import accepts_any_text, is_plain, type_parser
from nemo_run.cli.values.errors import (
    ArgumentValueError,
    ParseError,
    UnknownTypeError,
    summary,
)
from nemo_run.cli.values.grammar import Call, parse_buildable, parse_call, parse_list
from nemo_run.cli.values.hints import (
    UNANNOTATED,
    allows_none,
    constituents,
    hint_for,
    means_none,
    members,
    type_name,
)
from nemo_run.cli.values.importing import locate
from nemo_run.cli.values.parameter import Slot, empty_config, is_class, mentions_buildable, own
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.config import Config, Partial


@dataclass(frozen=True)
class _Found:
    """A value, told apart from there being none."""

    value: Any


def interpret(text: str, slot: Slot) -> Any:
    """Return what ``text``, as typed on a command line, means for ``slot``.

    Raises:
        ParseError: it means nothing there.
        ArgumentValueError: it names a factory that fails, or a target that is not there.
    """
    if means_none(text, slot.hint):
        return None
    found = _as_buildable(text, slot) or _as_call(text, slot) or _as_list(text, slot)
    if found is not None:
        return found.value
    try:
        return type_parser.parse(text, slot.hint)
    except ParseError as err:
        # Registered for just this argument, a name is meant even where text could be.
        call = parse_call(text)
        factory = find_for_argument(call.name, slot.owner, slot.name) if call else None
        if call is not None and factory is not None:
            return call_factory(factory, call)
        raise _explained(err, text, slot) from None


def interpret_string(text: str, slot: Slot) -> Any:
    """Return what a string from a file or from Python means for ``slot``.

    It is a string wherever one will do, except that ``None`` and ``null`` are None where the
    annotation allows that. Where the annotation names a class, and for ``Config[...]`` and calls of
    registered factories everywhere, it means what it means on a command line.

    Raises:
        CLIException: it means nothing there.
    """
    if means_none(text, slot.hint):
        return None
    anything = slot.hint in (UNANNOTATED, Any, object)
    if not anything:
        return (
            type_parser.conform(text, slot.hint) if is_plain(slot.hint) else interpret(text, slot)
        )
    if text == "Config":  # a mapping whose class nothing says
        return Config(dict)
    found = _as_buildable(text, slot)
    if found is not None:
        return found.value
    call = parse_call(text)
    if call is None or call.arguments is None:
        return text
    factory = find_registered(call.name, slot.owner, slot.name, slot.hint)
    return text if factory is None else call_factory(factory, call)


def parse_factory(parent: Any, arg_name: str, arg_type: Any, value: str) -> Any:
    """Return what a factory expression makes for an argument of ``parent``.

    Args:
        parent: the callable that is being configured.
        arg_name: the parameter it is for.
        arg_type: what the parameter is annotated with.
        value: ``name``, ``name(arg=value)``, a dotted name, or a list of these in brackets.

    Raises:
        ArgumentValueError: there is no such factory, or it fails. Also a ``ValueError``.
    """
    slot = Slot(parent, arg_name, arg_type)
    parts = parse_list(value)
    if parts is not None:
        return [parse_factory(parent, arg_name, _element(slot).hint, part) for part in parts]
    call = parse_call(value)
    if call is None:
        raise ArgumentValueError(f"Invalid factory format: {value}", value)
    source = _look_up(call, slot, anywhere=True)
    if source is None:
        names = names_for(parent, arg_name, arg_type)
        raise ArgumentValueError(
            f"No matching factory found for: {call.name}. {did_you_mean(call.name, names)}", value
        )
    return _made_from(source.value, call, slot)


def _as_buildable(text: str, slot: Slot) -> _Found | None:
    word = parse_buildable(text)
    if word is None or (is_plain(slot.hint) and slot.hint is not UNANNOTATED):
        return None
    if word.target is not None:
        kind = Partial if word.kind == "Partial" else Config
        return _Found(kind(locate_target(word.target)))
    made = empty_config(slot.hint, kind=Partial if word.kind == "Partial" else None)
    return None if made is None else _Found(made)


def locate_target(path: str) -> Callable[..., Any]:
    """Import what a config should call.

    Raises:
        ArgumentValueError: it is not there, or cannot be called.
    """
    try:
        target = locate(path)
    except (ImportError, AttributeError) as err:
        raise ArgumentValueError(f"Cannot import {path!r}: {summary(err)}", path) from err
    if not callable(target):
        raise ArgumentValueError(
            f"{path!r} is {reprlib.repr(target)}, which cannot be called", path
        )
    return typing.cast("Callable[..., Any]", target)


def _as_call(text: str, slot: Slot) -> _Found | None:
    call = parse_call(text)
    if call is None:
        return None
    written_as_call = call.arguments is not None
    if slot.hint is UNANNOTATED:
        factory = find_for_argument(call.name, slot.owner, slot.name)
        return None if factory is None else _Found(call_factory(factory, call))
    if is_plain(slot.hint) and not written_as_call:
        return None
    anywhere = written_as_call or not accepts_any_text(slot.hint)
    source = _look_up(call, slot, anywhere=anywhere)
    return None if source is None else _Found(_made_from(source.value, call, slot))


def _as_list(text: str, slot: Slot) -> _Found | None:
    parts = parse_list(text)
    if parts is None or is_plain(slot.hint) or slot.hint is UNANNOTATED:
        return None
    try:
        literals.read(text)
    except literals.NotALiteralError:
        pass
    else:
        return None
    element = _element(slot)
    if element is slot and not (accepts_any_text(slot.hint) or _is_anything(slot.hint)):
        raise ParseError(text, slot.hint, "It is a list")
    if not accepts_any_text(slot.hint) and element.hint not in (Any, object):
        return _Found([interpret(part, element) for part in parts])
    made = [_as_buildable(part, element) or _as_call(part, element) for part in parts]
    found = [item for item in made if item is not None]
    return _Found([item.value for item in found]) if len(found) == len(parts) else None


def _element(slot: Slot) -> Slot:
    element = slot.element(0)
    return slot if element.hint is UNANNOTATED else element


def _look_up(call: Call, slot: Slot, *, anywhere: bool) -> _Found | None:
    """Find what a name means: something importable, registered, or in the script itself."""
    if "." in call.name and anywhere:
        found = _imported(call.name)
        if found is not None and not _is_just_a_word(found.value, call, slot):
            return found
    factory = find_registered(call.name, slot.owner, slot.name, slot.hint)
    if factory is not None:
        return _Found(factory)
    if anywhere:
        return _in_script(call, slot) or _in_hint(call.name, slot.hint)
    return None


def _imported(name: str) -> _Found | None:
    try:
        found = locate(name)
    except (ModuleNotFoundError, AttributeError):
        return None
    except Exception as err:
        raise ArgumentValueError(f"Importing {name!r} failed: {summary(err)}", name) from err
    return None if isinstance(found, types.ModuleType) else _Found(found)


def _in_script(call: Call, slot: Slot) -> _Found | None:
    missing = object()
    value = getattr(sys.modules.get("__main__"), call.name, missing)
    if value is missing or isinstance(value, types.ModuleType):
        return None
    return None if _is_just_a_word(value, call, slot) else _Found(value)


def _is_just_a_word(value: Any, call: Call, slot: Slot) -> bool:
    """Tell a word that happens to name a function where anything goes; it is not called."""
    in_script = "." not in call.name
    is_call = call.arguments is not None or is_factory(value)
    return _is_anything(slot.hint) and not is_call and (in_script or callable(value))


def _is_anything(hint: Any) -> bool:
    return any(member in (Any, object) for member in members(hint))


def _in_hint(name: str, hint: Any) -> _Found | None:
    classes = (part for part in constituents(hint) if is_class(part) and not is_plain(part))
    named = (cls for cls in classes if cls.__name__ == name)
    return next(map(_Found, named), None)


def _made_from(source: Any, call: Call, slot: Slot) -> Any:
    if not callable(source) or isinstance(source, fdl.Buildable):
        if call.arguments is not None:
            raise ArgumentValueError(
                f"{call.name!r} is {reprlib.repr(source)}, which cannot be called"
            )
        return own(source)
    if call.arguments is None and _wants_callable(slot.hint) and not is_factory(source):
        if not any(_is_one_of(source, member) for member in members(slot.hint)):
            raise ArgumentValueError(f"{call.name!r} is not {type_name(slot.hint)}")
        return source
    made = call_factory(source, call)
    if made is None and not allows_none(slot.hint):
        raise ArgumentValueError(
            f"Factory {call.name!r} returned None instead of {type_name(slot.hint)}"
        )
    return made


def _wants_callable(hint: Any) -> bool:
    wanted = (collections.abc.Callable, type)
    return any((typing.get_origin(member) or member) in wanted for member in members(hint))


def _is_one_of(source: Callable[..., Any], hint: Any) -> bool:
    """Tell whether what is not to be called fits ``Callable``, ``type`` or ``type[X]``."""
    if (typing.get_origin(hint) or hint) is not type:
        return (typing.get_origin(hint) or hint) is collections.abc.Callable
    wanted = [each for each in typing.get_args(hint) if isinstance(each, type)]
    return isinstance(source, type) and (not wanted or issubclass(source, tuple(wanted)))


def call_factory(factory: Callable[..., Any], call: Call) -> Any:
    """Return what a factory makes of the arguments it is written with; for a class, its config.

    The factory gets objects, not configs, except for parameters annotated with ``Config`` or
    ``Partial``. What it returns may be changed without changing what it returns next.

    Raises:
        CLIException: an argument does not fit, or the factory fails.
    """
    words = call.arguments or ()
    if isinstance(factory, type):
        return configure(factory, words, Config)
    configured = configure(factory, words, Partial)
    arguments = {
        name: _built(factory, name, value) for name, value in configured.__arguments__.items()
    }
    args, kwargs = configured.__signature_info__.transform_to_args_kwargs(arguments)
    try:
        made = factory(*args, **kwargs)
    except Exception as err:
        raise ArgumentValueError(f"Factory {call.name!r} failed: {summary(err)}") from err
    return own(made)


def configure(target: Callable[..., Any], words: Sequence[str], kind: type[Any]) -> Any:
    """Return a config of ``target`` with overrides applied."""
    # Arguments of a factory are overrides whose values may name factories, and so on.
    from nemo_run.cli.values.overrides import parse_cli_args

    return parse_cli_args(target, words, kind)


def _built(factory: Callable[..., Any], name: str | int, value: Any) -> Any:
    hint = hint_for(factory, name) if isinstance(name, str) else UNANNOTATED
    if mentions_buildable(hint) or not _contains_buildable(value):
        return value
    try:
        return fdl.build(value)
    except Exception as err:
        raise ArgumentValueError(
            f"{name}={reprlib.repr(value)} cannot be built: {summary(err)}"
        ) from err


def _contains_buildable(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_contains_buildable, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_contains_buildable, value))
    return isinstance(value, fdl.Buildable)


def _explained(err: ParseError, text: str, slot: Slot) -> ParseError:
    """Say which factories there are, where a factory would have been the way."""
    call = parse_call(text)
    if call is None or is_plain(slot.hint) or slot.hint is UNANNOTATED:
        return err
    names = names_for(slot.owner, slot.name, slot.hint)
    advice = (
        did_you_mean(call.name, names)
        if names
        else "None is registered. Write Config[package.Class], or the dotted name of a function."
    )
    return UnknownTypeError(text, slot.hint, f"There is no factory {call.name!r}. {advice}")
