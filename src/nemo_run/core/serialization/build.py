"""Build a stored task straight from its text, without Fiddle.

This is what runs before every task, on every node, so it must start at once. It does what
decoding and ``fdl.build`` do for all that configs usually hold, and says so where it cannot.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import Flag
from importlib import import_module
from pathlib import PurePath
from typing import Any

from nemo_run.core.serialization import _format
from nemo_run.core.serialization._envelope import unseal
from nemo_run.core.serialization._walk import Walker, type_of
from nemo_run.exceptions import ConfigError


class NeedsFiddleError(Exception):
    """Something is stored that only Fiddle's own machinery can build."""


def build_text(text: str, *, as_partial: bool = False) -> Any:
    """Return what building the config in ``text`` gives, a ``functools.partial`` for a `Partial`.

    Shared configs are built once. An exception of a constructor gets a note about where it is.
    With ``as_partial`` the outermost config is not called but returned as a partial.

    Raises:
        NeedsFiddleError: decode and build it with Fiddle instead. Nothing was called yet.
    """
    document = unseal(text)
    for node in document["objects"].values():
        if type_of(node) not in _SIMPLE:
            raise NeedsFiddleError(f"{type_of(node)}")
    builder = _Builder(document["objects"])
    root = document["root"]
    outermost = document["objects"].get(root.get("key"), {}) if isinstance(root, dict) else {}
    if as_partial and type_of(outermost) in _format.BUILDABLES:
        return builder.buildable(outermost, "Partial")
    return builder.value(root)


def _makes_plain_value(target: Any) -> bool:
    if target in (complex, range):
        return True
    if isinstance(target, type) and issubclass(target, (PurePath, Flag)):
        return True
    from nemo_run._values import literal

    return target is literal


_SIMPLE = frozenset(
    {
        _format.METADATA,
        _format.CALL,
        *_format.BUILDABLES,
        *(("builtins", name) for name in ("list", "tuple", "dict", "set", "frozenset")),
        ("builtins", "bytes"),
        ("builtins", "slice"),
    }
)


class _Builder(Walker):
    def _reference(self, module: str, name: str) -> Any:
        return _load(module, name)

    def _object(self, node: Mapping[str, Any]) -> Any:
        key = type_of(node)
        if key in _format.BUILDABLES:
            return self.buildable(node, _format.BUILDABLES[key])
        values = [self.value(child) for _, child in node["items"]]
        if key == _format.METADATA:
            return values
        metadata = self.value(node["metadata"])
        if key == _format.CALL:
            if not _makes_plain_value(metadata):
                raise ConfigError(f"Building a stored task would call {metadata!r} for a value.")
            return metadata(*values)
        if key[1] == "dict":
            return dict(zip(metadata, values, strict=True))
        if key[1] == "bytes":
            return values[0].encode("raw_unicode_escape")
        if key[1] == "slice":
            return slice(*values)
        return {"tuple": tuple, "set": set, "frozenset": frozenset}.get(key[1], list)(values)

    def buildable(self, node: Mapping[str, Any], kind: str) -> Any:
        """Call the target of a stored buildable, or for a ``Partial`` bind its arguments."""
        values = [self.value(child) for _, child in node["items"]]
        target, names = self.value(node["metadata"])[:2]
        args, kwargs = _split(target, dict(zip(names, values, strict=True)))
        if kind == "Partial":
            return functools.partial(target, *args, **kwargs)
        try:
            made = target(*args, **kwargs)
            for name, value in node.get(_format.SET_LATER, {}).items():
                setattr(made, name, self.value(value))
        except Exception as err:
            where = ", ".join(node.get("paths", ["<root>"])[:3])
            note = f"(while building {getattr(target, '__qualname__', target)} at {where})"
            if hasattr(err, "add_note"):
                err.add_note(note)
            raise
        return made


def _split(target: Any, arguments: dict[Any, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments; numbered ones come after all before them."""
    if not any(isinstance(name, int) for name in arguments):
        return [], arguments
    import inspect

    positional = []
    for index, (name, parameter) in enumerate(inspect.signature(target).parameters.items()):
        if parameter.kind is parameter.VAR_POSITIONAL:
            more = sorted(key for key in arguments if isinstance(key, int))
            positional += [arguments.pop(key) for key in more]
            break
        if parameter.kind is parameter.POSITIONAL_ONLY and index in arguments:
            positional.append(arguments.pop(index))
        elif name in arguments and any(isinstance(key, int) for key in arguments):
            positional.append(arguments.pop(name))
    return positional, arguments


def _load(module: str, name: str) -> Any:
    value: Any = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value
