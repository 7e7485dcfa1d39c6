"""Look at a stored config without importing or calling anything it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nemo_run.core.serialization import _format
from nemo_run.core.serialization._envelope import unseal
from nemo_run.core.serialization._walk import Walker, type_of
from nemo_run.exceptions import ConfigError


@dataclass(frozen=True)
class Peek:
    """Something stored that would have to be imported to become real.

    ``kind`` is ``Config`` or ``Partial``, or the type's name as ``module:name``; ``target`` is
    the callable as ``module:name``.
    """

    kind: str
    target: str = ""
    arguments: Mapping[str | int, Any] = field(default_factory=dict)


def peek(text: str) -> Any:
    """Return what ``text`` stores as plain data.

    Buildables are `Peek` objects, references are ``module:name`` strings, and lists, tuples,
    dicts, sets and bytes are themselves.

    Raises:
        ConfigError: this is not a stored config.
    """
    document = unseal(text)
    try:
        return _Peeker(document["objects"]).value(document["root"])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as err:
        raise ConfigError(f"This is not a stored config: {err!r}.") from err


class _Metadata(NamedTuple):
    """What every stored buildable says about itself."""

    target: str
    names: tuple[str | int, ...]


class _Peeker(Walker):
    def _reference(self, module: str, name: str) -> str:
        return f"{module}:{name}"

    def _object(self, node: Mapping[str, Any]) -> Any:
        key = type_of(node)
        values = [self.value(child) for _, child in node["items"]]
        if key == _format.METADATA:
            return _Metadata(*values[:2])
        metadata = self.value(node["metadata"])
        if isinstance(metadata, _Metadata):
            kind = _format.BUILDABLES.get(key, f"{key[0]}:{key[1]}")
            return Peek(kind, metadata.target, dict(zip(metadata.names, values, strict=True)))
        if key[0] == "builtins":
            return _plain(key[1], values, metadata)
        if key == _format.CALL:
            return Peek("call", metadata, dict(enumerate(values)))
        return Peek(f"{key[0]}:{key[1]}", arguments=dict(enumerate(values)))


def _plain(name: str, values: list[Any], metadata: Any) -> Any:
    if name == "dict":
        return dict(zip(metadata, values, strict=True))
    if name == "tuple":
        return tuple(values)
    if name in ("set", "frozenset"):
        # A Peek cannot be hashed where its arguments cannot.
        try:
            return frozenset(values) if name == "frozenset" else set(values)
        except TypeError:
            return values
    if name == "bytes":
        return values[0].encode("raw_unicode_escape")
    if name == "slice":
        return slice(*values)
    return values
