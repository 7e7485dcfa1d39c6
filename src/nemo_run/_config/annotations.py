"""What a type annotation means: its name, its members, and values made to fit it."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ForwardRef, Union

from nemo_run.exceptions import ConfigError


def get_type_namespace(typ: Any) -> str:
    """Return ``module.qualname``, the main script being named after its file."""
    if isinstance(typ, ForwardRef):
        return typ.__forward_arg__.rpartition(".")[2]
    target = getattr(typ, "__fn_or_cls__", typ)
    name = getattr(target, "__qualname__", None) or str(target)
    if name.startswith("ForwardRef"):
        return name.rpartition(".")[2]
    return f"{module_name(target)}.{name}"


def module_name(target: Any) -> str:
    """Return the module of ``target``; for the main script the name of its file."""
    module = str(getattr(target, "__module__", type(target).__module__))
    if module.startswith("pathlib."):
        return "pathlib"  # newer Pythons define its classes in a private module
    if module != "__main__":
        return module
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(script).stem if script else module


def get_underlying_types(hint: Any) -> set[Any]:
    """Return the members of a union, ``NoneType`` included; any other hint is its own member."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return get_underlying_types(typing.get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return {t for arg in typing.get_args(hint) for t in get_underlying_types(arg)}
    return {hint}


def from_dict(raw: Any, cls: Any) -> Any:
    """Build ``cls`` from plain data: dataclasses from mappings, in lists and mappings too.

    Fields that are absent keep their defaults.

    Raises:
        ConfigError: a union leaves open which of several types is meant, or a field is unknown.
    """
    members = get_underlying_types(cls) - {type(None)}
    if raw is None and type(None) in get_underlying_types(cls):
        return None
    if len(members) > 1:
        names = ", ".join(sorted(str(member) for member in members))
        raise ConfigError(f"Cannot tell which of {names} is meant by {raw!r}. Use one of them.")
    (cls,) = members or {type(None)}

    origin, args = typing.get_origin(cls) or cls, typing.get_args(cls)
    if dataclasses.is_dataclass(origin) and isinstance(raw, Mapping):
        return _dataclass_from(raw, typing.cast("type[Any]", origin))
    if origin in (list, tuple, set, frozenset) and isinstance(raw, (list, tuple, set, frozenset)):
        if origin is tuple and args and args[-1] is not Ellipsis and len(args) == len(raw):
            return tuple(from_dict(value, item) for value, item in zip(raw, args, strict=True))
        item = args[0] if args else Any
        return origin(from_dict(value, item) for value in raw)
    if origin is dict and isinstance(raw, Mapping):
        item = args[1] if len(args) == 2 else Any
        return {key: from_dict(value, item) for key, value in raw.items()}
    return raw


def _dataclass_from(raw: Mapping[str, Any], cls: type[Any]) -> Any:
    hints = typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls) if field.init}
    unknown = sorted(set(raw) - known)
    if unknown:
        raise ConfigError(
            f"{cls.__name__} has no field {', '.join(map(repr, unknown))}. "
            f"It has: {', '.join(sorted(known))}."
        )
    return cls(**{name: from_dict(value, hints[name]) for name, value in raw.items()})
