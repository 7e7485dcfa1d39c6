"""Configs as plain mappings that people can read and edit, and back.

A buildable is a mapping of its arguments with ``_target_`` naming the callable, and
``_partial_: true`` for a `Partial`. ``_call_: false`` makes ``_target_`` a reference to the thing
itself. Values that plain data does not have (paths, tuples where nothing says that one is
expected, ...) are written as the call that makes them, with ``_args_`` and ``_call_: true``.
"""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import PurePath
from typing import Any

from yaml.representer import RepresenterError

from nemo_run import config
from nemo_run._config import buildables
from nemo_run._config.annotations import get_underlying_types
from nemo_run._config.fiddle import fdl, get_signature, get_type_hints, ordered_arguments
from nemo_run._values import literal
from nemo_run.core.serialization._references import REFERABLE, name_of
from nemo_run.exceptions import ConfigError, UnserializableError

TARGET, PARTIAL, CALL, ARGS = "_target_", "_partial_", "_call_", "_args_"
_RESERVED = frozenset({TARGET, PARTIAL, CALL, ARGS, "__fn_or_cls__"})
_PLAIN = (str, int, float, bool, type(None))
_KIND_IN_TARGET = re.compile(r"(Config|Partial)\[(.+)\]")


class CannotRepresentError(UnserializableError, RepresenterError):
    """Ours, and PyYAML's for scripts that catch that."""


def to_mapping(cfg: Any, *, only_text_keys: bool = False) -> Any:
    """Return a config as plain data.

    With ``only_text_keys``, for JSON and TOML, sets, bytes and keys that are not text are
    written as calls too; YAML has them.

    Raises:
        UnserializableError: something inside has no such form.
        ValueError: an argument has a name that the form uses itself.
    """
    return _Writer(only_text_keys).value(cfg, "<root>", expects_tuple=False)


class _Writer:
    def __init__(self, only_text_keys: bool) -> None:
        self._only_text_keys = only_text_keys

    def value(self, value: Any, path: str, *, expects_tuple: bool) -> Any:
        if type(value) in _PLAIN:
            return value
        # Asked of the class: a buildable answers for an attribute it lacks with a long text.
        if getattr(type(value), "is_lazy", False):
            value = value.resolve()
        if isinstance(value, (fdl.Config, fdl.Partial)) and not isinstance(value, fdl.ArgFactory):
            return self._buildable(value, path)
        if type(value) is list:
            return self._list(value, path)
        if type(value) is tuple:
            items = self._list(value, path)
            return items if expects_tuple else _call("builtins.tuple", items)
        if type(value) is dict:
            return self._dict(value, path)
        if type(value) in (set, bytes) and not self._only_text_keys:
            return value
        call = self._as_call(value, path)
        if call is not None:
            return call
        if isinstance(value, REFERABLE):
            return {TARGET: _dotted(value, path), CALL: False}
        if (type(value).__module__, type(value).__qualname__) == ("torch", "dtype"):
            return {TARGET: str(value), CALL: False}
        if isinstance(value, config.ConfigurableMixin):
            return self.value(value.to_config(), path, expects_tuple=False)
        if buildables.is_dataclass_instance(value):
            as_config = buildables.from_dataclass(value, config.Config)
            return self.value(as_config, path, expects_tuple=False)
        raise _refused(value, path)

    def _buildable(self, buildable: fdl.Buildable[Any], path: str) -> dict[Any, Any]:
        target = buildable.__fn_or_cls__
        arguments = ordered_arguments(buildable)
        clash = _RESERVED.intersection(arguments)
        if clash:
            raise ConfigError(
                f"An argument named {min(clash)} at {path} cannot be written: "
                "the name has a meaning of its own. Rename the parameter."
            )
        mapping = {
            name: value
            if type(value) in _PLAIN
            else self.value(value, f"{path}.{name}", expects_tuple=_expects_tuple(target, name))
            for name, value in arguments.items()
        }
        if self._only_text_keys:
            mapping = {str(name): value for name, value in mapping.items()}
        mapping[TARGET] = _dotted(target, path)
        if isinstance(buildable, fdl.Partial):
            mapping[PARTIAL] = True
        return mapping

    def _list(self, values: Any, path: str) -> list[Any]:
        return [self.value(v, f"{path}[{i}]", expects_tuple=False) for i, v in enumerate(values)]

    def _dict(self, values: dict[Any, Any], path: str) -> Any:
        allowed = (str,) if self._only_text_keys else _PLAIN
        if all(type(key) in allowed for key in values) and not _RESERVED.intersection(values):
            return {
                key: self.value(value, f"{path}[{key!r}]", expects_tuple=False)
                for key, value in values.items()
            }
        pairs = [self._list(pair, f"{path}[{pair[0]!r}]") for pair in values.items()]
        return _call("builtins.dict", pairs)

    def _as_call(self, value: Any, path: str) -> dict[str, Any] | None:
        kind = type(value)
        if isinstance(value, PurePath) and kind.__module__.partition(".")[0] == "pathlib":
            return _call(f"pathlib.{kind.__name__}", str(value))
        if kind in (set, frozenset):
            return _call(f"builtins.{kind.__name__}", self._list(value, path))
        if kind is bytes:
            return _call("builtins.bytes", value.decode("latin-1"), "latin-1")
        if kind is literal:
            return _call(_dotted(kind, path), str(value))
        if kind is complex:
            return _call("builtins.complex", value.real, value.imag)
        if kind in (range, slice):
            return _call(f"builtins.{kind.__name__}", value.start, value.stop, value.step)
        if isinstance(value, enum.Flag) and (value.name is None or "|" in value.name):
            return _call(_dotted(kind, path), value.value)
        return None


def from_mapping(data: Any) -> Any:
    """Return the config that ``data`` describes; lists and mappings inside are entered.

    Each mapping gives a config of its own, whatever else has the same target.

    Raises:
        ConfigError: a target cannot be imported, or takes no such argument.
    """
    if isinstance(data, Mapping):
        return _from_dict(data)
    if isinstance(data, list):
        return [from_mapping(item) for item in data]
    return data


def _from_dict(data: Mapping[Any, Any]) -> Any:
    if TARGET not in data:
        return {key: from_mapping(value) for key, value in data.items()}
    if not isinstance(data[TARGET], str):
        raise ConfigError(f"{TARGET} names a function or class, so it cannot be {data[TARGET]!r}.")
    named, kind = data[TARGET], config.Partial if data.get(PARTIAL) else config.Config
    explicit = _KIND_IN_TARGET.fullmatch(named)
    if explicit:
        kind = config.Partial if explicit[1] == "Partial" else config.Config
        named = explicit[2]
    target = import_dotted(named)
    if data.get(CALL) is False:
        return target
    args = [from_mapping(value) for value in data.get(ARGS, ())]
    if data.get(CALL) is True:
        return _made_now(target, args)
    arguments = {_key(k): from_mapping(v) for k, v in data.items() if k not in _RESERVED}
    args += [arguments.pop(key) for key in sorted(k for k in arguments if isinstance(k, int))]
    for name, value in arguments.items():
        if type(value) is list and _expects_tuple(target, name):
            arguments[name] = tuple(value)
    try:
        return kind(target, *args, **arguments)
    except TypeError as err:
        raise ConfigError(
            f"Cannot configure {named}: {err}{_suggestion(target, arguments)}"
        ) from err


def import_dotted(path: str) -> Any:
    """Import ``package.module.Name.attribute``, not knowing where the module's name ends.

    Raises:
        ConfigError: there is no such thing.
    """
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        name = ".".join(parts[:cut])
        try:
            found: Any = import_module(name)
        except ModuleNotFoundError as err:
            if err.name is not None and (name + ".").startswith(err.name + "."):
                continue
            raise
        except ValueError:  # an empty part
            continue
        try:
            for attribute in parts[cut:]:
                found = getattr(found, attribute)
        except AttributeError as err:
            raise ConfigError(f"Cannot import {path!r}: {err}.") from err
        return found
    raise ConfigError(f"Cannot import {path!r}: there is no module {parts[0]!r} here.")


def _made_now(target: Any, args: list[Any]) -> Any:
    # Reading a file must not call just anything.
    makers = (tuple, dict, set, frozenset, bytes, complex, range, slice, literal)
    if target in makers or (isinstance(target, type) and issubclass(target, (PurePath, enum.Flag))):
        return target(*args)
    raise ConfigError(
        f"{CALL}: true is for values such as paths and tuples; {target!r} would be called while "
        f"reading. Leave {CALL} out to make it when the task runs."
    )


def _call(target: str, *args: Any) -> dict[str, Any]:
    return {TARGET: target, ARGS: list(args), CALL: True}


def _key(key: Any) -> Any:
    # JSON and TOML have no integer keys; no parameter is called like a number.
    return int(key) if isinstance(key, str) and key.isdecimal() else key


def _dotted(value: Any, path: str) -> str:
    try:
        module, name = name_of(value)
    except AttributeError:
        raise _refused(value, path) from None
    return f"{module}.{name}"


def _refused(value: Any, path: str) -> CannotRepresentError:
    return CannotRepresentError(
        f"Cannot write {value!r} of type {type(value)} at {path} as plain data. "
        f"Wrap it as run.Config({type(value).__qualname__}, ...).",
        path=path,
        value=value,
    )


def _expects_tuple(target: Callable[..., Any], name: str | int) -> bool:
    """Tell whether a list given for this parameter must mean a tuple."""
    hint = get_type_hints(target).get(str(name))
    if hint is not None:
        kinds = {typing.get_origin(t) or t for t in get_underlying_types(hint)}
        return tuple in kinds and list not in kinds
    try:
        parameter = get_signature(target).parameters.get(str(name))
    except (TypeError, ValueError):
        return False
    return parameter is not None and type(parameter.default) is tuple


def _suggestion(target: Any, arguments: Mapping[Any, Any]) -> str:
    try:
        known = list(get_signature(target).parameters)
    except (TypeError, ValueError):
        return ""
    import difflib

    for name in arguments:
        close = difflib.get_close_matches(str(name), known, n=1)
        if name not in known and close:
            return f". Did you mean {close[0]!r} instead of {name!r}?"
    return ""
