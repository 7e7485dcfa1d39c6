"""Change one place in a tree of configs, and nothing that others hold as well.

Configs are changed where they are. Defaults of a signature, and lists, tuples and dicts anywhere,
are replaced by changed copies, so that neither a function's defaults nor a list that other code
else holds is touched.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nemo_run._config.buildables import from_dataclass, is_dataclass_instance
from nemo_run._config.fiddle import fdl
from nemo_run.cli.values.config_files import load_config_from_path, plain
from nemo_run.cli.values.conversion import is_dict, type_parser
from nemo_run.cli.values.errors import (
    ArgumentValueError,
    UndefinedVariableError,
    summary,
)
from nemo_run.cli.values.grammar import Item, Operation, Override, Step, parse_file
from nemo_run.cli.values.hints import UNANNOTATED, hint_for, members, type_name
from nemo_run.cli.values.operations import apply_operation, read_operand
from nemo_run.cli.values.parameter import Slot, empty_config, own
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.cli.values.value_parser import (
    interpret,
    interpret_string,
    locate_target,
    parse_factory,
)
from nemo_run.config import Config, Partial

_MISSING = object()
_OPERATORS = sorted((op.value for op in Operation), key=len, reverse=True)
_TARGET, _PARTIAL, _FACTORY, _CALL, _ARGS = "_target_", "_partial_", "_factory_", "_call_", "_args_"


def edit(root: Any, override: Override) -> Any:
    """Make one change inside ``root`` and return it; a tuple comes back as a new one.

    Raises:
        CLIException: there is no such place, or the value does not fit it.
    """
    changed = _set(root, override.steps, Slot(None, ""), override)
    if isinstance(root, list):
        root[:] = changed
        return root
    return changed


def _set(holder: Any, steps: Sequence[Step], slot: Slot, override: Override) -> Any:
    if isinstance(holder, fdl.Buildable):
        return _set_argument(holder, steps, slot, override)
    if isinstance(holder, (list, tuple)):
        return _set_element(holder, steps, slot, override)
    if isinstance(holder, dict):
        return _set_entry(holder, steps, slot, override)
    raise ArgumentValueError(
        f"{override.key!r} cannot be set: {slot.name} is {reprlib.repr(holder)}, which has no "
        f"fields. Set {slot.name} as a whole"
    )


def _set_argument(
    config: fdl.Buildable[Any], steps: Sequence[Step], slot: Slot, override: Override
) -> fdl.Buildable[Any]:
    name = _parameter(config, steps[0], slot)
    inner = Slot(config.__fn_or_cls__, str(name), _hint(config, name, slot))
    current = _argument(config, name)
    is_default = name not in config.__arguments__
    value = _changed(current, is_default, steps[1:], inner, override)
    if value is current and not is_default:
        return config
    if isinstance(name, int):
        config[name] = value
    else:
        setattr(config, name, value)
    return config


def _parameter(config: fdl.Buildable[Any], step: Step, slot: Slot) -> str | int:
    """Return the key under which Fiddle keeps the argument that a step names."""
    parameters = config.__signature_info__.parameters
    if isinstance(step, Item):
        positional = [p for p in parameters.values() if p.kind < p.VAR_POSITIONAL]
        if isinstance(step.key, int) and step.key < len(positional):
            return config.__signature_info__.index_to_key(step.key, config.__arguments__)
        what = slot.name or _target_name(config)
        raise ArgumentValueError(f"{what} is a config of {_target_name(config)}, not a list")
    parameter = parameters.get(step)
    if parameter is not None and parameter.kind is parameter.POSITIONAL_ONLY:
        return list(parameters).index(step)
    named = [p.name for p in parameters.values() if p.kind > p.POSITIONAL_ONLY]
    named = [name for name in named if parameters[name].kind is not parameters[name].VAR_POSITIONAL]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if step in named or takes_any:
        return step
    raise ArgumentValueError(
        f"No parameter named {step!r} exists for {_target_name(config)}. "
        f"{did_you_mean(step, named)}"
    )


def _target_name(config: fdl.Buildable[Any]) -> str:
    target = config.__fn_or_cls__
    return str(getattr(target, "__qualname__", target))


def _hint(config: fdl.Buildable[Any], name: str | int, slot: Slot) -> Any:
    target = config.__fn_or_cls__
    if target is dict:
        # Such a config stands for a dict, and what its values are was said where it is used.
        return slot.element(name).hint
    if isinstance(name, int):
        name = list(config.__signature_info__.parameters)[name]
    return hint_for(target, name)


def _argument(config: fdl.Buildable[Any], name: str | int) -> Any:
    """Return the argument that is set, else its default, else `_MISSING`."""
    if name in config.__arguments__:
        return config.__arguments__[name]
    target = config.__fn_or_cls__
    if dataclasses.is_dataclass(target):
        for field in dataclasses.fields(target):
            if field.name == name and field.default_factory is not dataclasses.MISSING:
                return _from_default_factory(field.default_factory, name)
    parameters = config.__signature_info__.parameters
    key = list(parameters)[name] if isinstance(name, int) else name
    parameter = parameters.get(key)
    if parameter is None or parameter.default is parameter.empty:
        return _MISSING
    return parameter.default


def _from_default_factory(factory: Any, name: str) -> Any:
    if isinstance(factory, type) and dataclasses.is_dataclass(factory):
        return Config(factory)
    try:
        return factory()
    except Exception as err:
        raise ArgumentValueError(f"The default of {name!r} cannot be made: {summary(err)}") from err


def _set_element(
    holder: list[Any] | tuple[Any, ...], steps: Sequence[Step], slot: Slot, override: Override
) -> list[Any] | tuple[Any, ...]:
    step, *rest = steps
    key = step.key if isinstance(step, Item) else step
    index = int(key) if str(key).isdecimal() else -1
    if not 0 <= index < len(holder):
        there = f"[0] to [{len(holder) - 1}]" if holder else "none"
        raise ArgumentValueError(
            f"No element [{key}] in {slot.name or 'the list'}. Its elements: {there}"
        )
    items = list(holder)
    items[index] = _changed(items[index], False, rest, _element(slot, index, items), override)
    return items if isinstance(holder, list) else tuple(items)


def _element(slot: Slot, index: int, items: Sequence[Any]) -> Slot:
    """Return the place of an element; what it holds says its type where no annotation does."""
    element, current = slot.element(index), items[index]
    if element.hint is UNANNOTATED and isinstance(current, fdl.Buildable):
        target = current.__fn_or_cls__
        return replace(element, hint=target) if isinstance(target, type) else element
    return element


def _set_entry(
    holder: dict[Any, Any], steps: Sequence[Step], slot: Slot, override: Override
) -> dict[Any, Any]:
    step, *rest = steps
    key = step.key if isinstance(step, Item) else step
    if key not in holder and str(key) in holder:
        key = str(key)
    current = holder.get(key, _MISSING)
    value = _changed(current, current is _MISSING, rest, slot.element(key), override)
    return {**holder, key: value}


def _changed(
    current: Any, is_default: bool, rest: Sequence[Step], slot: Slot, override: Override
) -> Any:
    """Return the new value for a place that holds ``current``."""
    if rest:
        return _set(_entered(current, is_default, rest[0], slot, override), rest, slot, override)
    if override.operation is Operation.ASSIGN:
        return _assigned(override, slot, own(current) if is_default else current)
    if current is _MISSING:
        raise UndefinedVariableError(
            f"Cannot use {override.operation.value!r} on {override.key!r}, which has neither a "
            "value nor a default"
        )
    operand = override.value
    if override.is_text and parse_file(operand) is None:
        operand = read_operand(operand, current, override.operation, lambda t: interpret(t, slot))
    elif override.is_text:
        operand = realize(_file_content(operand), slot)
    return apply_operation(override.operation, current, operand)


def _entered(current: Any, is_default: bool, step: Step, slot: Slot, override: Override) -> Any:
    """Return what a place holds in a form that has fields or elements, making it if need be."""
    if isinstance(current, (fdl.Buildable, list, tuple, dict)):
        return own(current) if is_default else current
    if is_dataclass_instance(current):
        return from_dataclass(current, Config)
    if current is not _MISSING and current is not None:
        return current
    if isinstance(step, Item) and any(map(is_dict, members(slot.hint))):
        return {}
    made = empty_config(slot.hint, field=step) if isinstance(step, str) else None
    if made is None:
        raise ArgumentValueError(
            f"{override.key!r} cannot be set: {slot.name} has no value, and its annotation "
            f"({type_name(slot.hint)}) names no class with fields. "
            f"Write {slot.name}=Config[package.Class] first"
        )
    return made


def _assigned(override: Override, slot: Slot, current: Any) -> Any:
    value = override.value
    if not override.is_text:
        keeps = not (override.is_whole and isinstance(current, dict))
        return realize(value, slot, current if keeps else _MISSING)
    if parse_file(value) is None:
        return interpret(value, slot)
    return realize(_file_content(value), slot, current)


def _file_content(value: str) -> Any:
    return plain(load_config_from_path(value))


def realize(value: Any, slot: Slot, current: Any = _MISSING) -> Any:
    """Return ``value``, which came from a file or from Python, as ``slot`` asks for it.

    Mappings with ``_target_`` or ``_factory_`` become configs; others become configs of the
    annotated class, or change the config or dict that is there.

    Raises:
        CLIException: it does not fit.
    """
    if isinstance(value, Mapping):
        return _from_mapping(value, slot, current)
    if type(value) in (list, tuple):
        items = [realize(item, slot.element(index)) for index, item in enumerate(value)]
        return type_parser.conform(type(value)(items), slot.hint)
    if isinstance(value, str):
        return interpret_string(value, slot)
    # A file may say null for what is annotated otherwise, as our own exports do.
    return None if value is None else type_parser.conform(value, slot.hint)


def _from_mapping(data: Mapping[Any, Any], slot: Slot, current: Any) -> Any:
    if _CALL in data:
        from nemo_run.core.serialization.yaml import from_mapping

        return from_mapping(data)
    fields = {k: v for k, v in data.items() if k not in (_TARGET, _PARTIAL, _FACTORY, _ARGS)}
    base = _base(data, slot, current)
    if base is None:
        entries = {key: realize(item, slot.element(key)) for key, item in fields.items()}
        merged = {**current, **entries} if isinstance(current, dict) else entries
        return type_parser.conform(merged, slot.hint)
    for override in overrides_from(fields, is_whole=_TARGET in data):
        base = edit(base, override)
    return base


def _base(data: Mapping[Any, Any], slot: Slot, current: Any) -> Any:
    """Return the config that a mapping's fields are for; None where it is just a dict."""
    if _TARGET in data:
        kind, named = target_of(data)
        args = [realize(item, Slot(None, "")) for item in data.get(_ARGS, ())]
        return kind(locate_target(named), *args)
    if _FACTORY in data:
        return parse_factory(slot.owner, slot.name, slot.hint, data[_FACTORY])
    if isinstance(current, fdl.Buildable):
        return current
    if is_dataclass_instance(current):
        return from_dataclass(current, Config)
    return None if any(map(is_dict, members(slot.hint))) else empty_config(slot.hint)


def target_of(data: Mapping[Any, Any]) -> tuple[type[Any], str]:
    """Return the kind of config a mapping describes, and the name of what it calls."""
    named = str(data[_TARGET])
    kind = "Partial" if data.get(_PARTIAL) else "Config"
    if named.endswith("]") and named.startswith(("Config[", "Partial[")):
        kind, _, named = named[:-1].partition("[")
    return (Partial if kind == "Partial" else Config), named


def overrides_from(
    data: Mapping[Any, Any], *, is_whole: bool = False, file: str = ""
) -> list[Override]:
    """Return the changes that a mapping describes: one a key, which may end in an operator.

    ``is_whole`` where the mapping has a ``_target_``, and so says all there is to it; ``file`` is
    named in errors.
    """
    return [
        Override(*split_operator(str(key)), value, is_text=False, is_whole=is_whole, file=file)
        for key, value in data.items()
    ]


def split_operator(key: str) -> tuple[str, Operation]:
    """Take a key such as ``batch+=`` apart; without an operator it assigns."""
    for operator in _OPERATORS:
        if key.endswith(operator):
            return key[: -len(operator)].strip(), Operation(operator)
    return f"[{key}]" if key.isdecimal() else key, Operation.ASSIGN
