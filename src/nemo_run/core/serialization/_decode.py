"""Turn a stored JSON document back into the config it was made from."""

from __future__ import annotations

import enum
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from nemo_run import config
from nemo_run._config import buildables, later
from nemo_run._config.fiddle import (
    BuildableTraverserMetadata,
    PyrefPolicy,
    SignatureInfo,
    fdl,
    fiddle_json,
    get_signature,
)
from nemo_run._values import literal
from nemo_run.core.serialization import _format, _references
from nemo_run.core.serialization._envelope import seal, unseal
from nemo_run.core.serialization._walk import Walker, type_of
from nemo_run.exceptions import ConfigError

log = logging.getLogger(__name__)

_MISSING = object()


def decode(document: Mapping[str, Any], policy: PyrefPolicy | None = None) -> Any:
    """Return the value that ``document`` stores, importing what it names.

    Raises:
        ConfigError: this is not a stored config.
        PyrefPolicyError: the policy refuses something that the document names.
        ModuleNotFoundError, AttributeError: something it names is not there.
    """
    try:
        root, objects = document["root"], document["objects"]
    except (KeyError, TypeError) as err:
        raise ConfigError("This is not a stored config: it has no root or no objects.") from err
    try:
        return _Decoder(objects, policy).value(root)
    except (LookupError, TypeError, RecursionError) as err:
        raise ConfigError(f"This is not a stored config, or it is damaged: {err!r}.") from err


def may_call(target: Any) -> bool:
    """Tell whether reading may call ``target``: it makes a plain value such as a path."""
    if not isinstance(target, type):
        return False
    named_tuple = issubclass(target, tuple) and hasattr(target, "_fields")
    plain = (complex, range, literal)
    return target in plain or named_tuple or issubclass(target, (PurePath, enum.Flag))


class _Decoder(Walker):
    def __init__(self, objects: Mapping[str, Any], policy: PyrefPolicy | None) -> None:
        super().__init__(objects)
        self._policy = policy
        self._imported: dict[tuple[str, str], Any] = {}
        self._signatures: dict[int, SignatureInfo] = {}

    def _object(self, node: Mapping[str, Any]) -> Any:
        key = type_of(node)
        values = [self.value(child) for _, child in node["items"]]
        if key == _format.METADATA:
            return BuildableTraverserMetadata(*values)
        return self._made(key, node, values, self.value(node["metadata"]))

    def _made(
        self, key: tuple[str, str], node: Mapping[str, Any], values: list[Any], metadata: Any
    ) -> Any:
        """Return what is made of the values in an object."""
        if key in _BUILDABLES:
            made = self._buildable(_BUILDABLES[key], values, metadata)
            if _format.SET_LATER in node and made is not _MISSING:
                made.__dict__[later.ATTRIBUTE] = self._set_later(node[_format.SET_LATER])
            return made
        if key[0] == "builtins" and key[1] in _CONTAINERS:
            return _CONTAINERS[key[1]](values, metadata)
        if key == _format.CALL:
            if not may_call(metadata):
                raise ConfigError(f"Reading a stored config would call {metadata!r}.")
            return metadata(*values)
        cls = self._reference(*key)
        traverser = fiddle_json.find_node_traverser(cls) if isinstance(cls, type) else None
        if traverser is None:
            raise ConfigError(f"A stored config holds a {key[0]}:{key[1]}, which has no reader.")
        return traverser.unflatten(values, metadata)

    def _buildable(self, cls: type[Any], values: list[Any], metadata: tuple[Any, ...]) -> Any:
        target, names, tags = metadata[:3]
        signature = self._signatures.get(id(target))
        if signature is None:
            signature = SignatureInfo(signature=get_signature(target))
            self._signatures[id(target)] = signature
        return buildables.make(
            cls, target, dict(zip(names, values, strict=True)), tags=tags, signature=signature
        )

    def _set_later(self, nodes: Mapping[str, Any]) -> dict[str, Any]:
        # None is written that starts so; one such as __class__ would make it another thing.
        public = {name: node for name, node in nodes.items() if not name.startswith("_")}
        values = {name: self.value(node) for name, node in public.items()}
        return {name: value for name, value in values.items() if value is not _MISSING}

    def _reference(self, module: str, name: str) -> Any:
        key = (module, name)
        if key not in self._imported:
            self._imported[key] = _references.load(module, name, self._policy)
        return self._imported[key]


_BUILDABLES: dict[tuple[str, str], type[Any]] = {
    ("nemo_run.config", "Config"): config.Config,
    ("nemo_run.config", "Partial"): config.Partial,
    ("fiddle._src.config", "Config"): fdl.Config,
    ("fiddle._src.partial", "Partial"): fdl.Partial,
}

_CONTAINERS: dict[str, Callable[[list[Any], Any], Any]] = {
    "list": lambda values, _: values,
    "tuple": lambda values, _: tuple(values),
    "dict": lambda values, keys: dict(zip(keys, values, strict=True)),
    "set": lambda values, _: set(values),
    "frozenset": lambda values, _: frozenset(values),
    "bytes": lambda values, _: values[0].encode("raw_unicode_escape"),
    "slice": lambda values, _: slice(*values),
}


_PYTHONS_OWN = sys.stdlib_module_names


def _package(module: str) -> str:
    return module.partition(".")[0]


class _Tolerant(_Decoder):
    """Leaves out arguments of stored configs that cannot be imported here, and says which."""

    def __init__(self, objects: Mapping[str, Any], *, looking: bool) -> None:
        super().__init__(objects, None)
        self._looking = looking
        self.left_out: list[str] = []

    def _reference(self, module: str, name: str) -> Any:
        if self._looking and module not in sys.modules and _package(module) in _PYTHONS_OWN:
            # No executor is there, and some modules of Python do things when imported.
            raise ImportError(f"{module}:{name} is not imported to look.")
        return super()._reference(module, name)

    def tolerant_value(self, node: Any) -> Any:
        """Return the value of a node; the sentinel where it cannot be had."""
        try:
            return self.value(node)
        except (ImportError, AttributeError) as err:
            return self._leave_out(err)

    def _leave_out(self, err: Exception) -> object:
        log.debug("left out: %s", err)
        self.left_out.append(str(err))
        return _MISSING

    def _object(self, node: Mapping[str, Any]) -> Any:
        try:
            return super()._object(node)
        except (ImportError, AttributeError) as err:
            return self._leave_out(err)

    def _made(
        self, key: tuple[str, str], node: Mapping[str, Any], values: list[Any], metadata: Any
    ) -> Any:
        # A container without one of its values would be another one.
        if key not in _BUILDABLES and any(item is _MISSING for item in (*values, metadata)):
            return _MISSING
        return super()._made(key, node, values, metadata)

    def _buildable(self, cls: type[Any], values: list[Any], metadata: tuple[Any, ...]) -> Any:
        if metadata is _MISSING:
            return _MISSING
        made = super()._buildable(cls, values, metadata)
        kept = {name: v for name, v in made.__arguments__.items() if v is not _MISSING}
        made.__dict__["__arguments__"] = kept
        return made


class Stored:
    """A stored buildable whose arguments are decoded one by one, when asked for.

    What cannot be imported here is left out, and does not keep the rest from being read.
    """

    def __init__(self, text: str, *, looking: bool = True) -> None:
        document = unseal(text)
        self._objects = document["objects"]
        self._root = document["root"]
        self._decoder = _Tolerant(self._objects, looking=looking)
        node = self._objects[document["root"]["key"]]
        metadata = self._objects[node["metadata"]["key"]]
        target, names = (child for _, child in metadata["items"][:2])
        self.target = f"{target['module']}:{target['name']}"
        self._nodes = dict(
            zip(self._decoder.value(names), (child for _, child in node["items"]), strict=True)
        )

    def root(self) -> Any:
        """Return the whole buildable; None where it cannot be had here."""
        value = self._decoder.tolerant_value(self._root)
        return None if value is _MISSING else value

    def argument(self, name: str, default: Any = None) -> Any:
        """Return one argument, importing what it names; ``default`` if it is not there."""
        if name not in self._nodes:
            return default
        value = self._decoder.tolerant_value(self._nodes[name])
        return default if value is _MISSING else value

    def items(self, name: str) -> list[Any] | None:
        """Return the items of a list that can be had here; None where there is no list."""
        node = self._nodes.get(name)
        if not isinstance(node, dict) or node["type"] != _format.REF:
            return None
        found = [
            self._decoder.tolerant_value(child) for _, child in self._objects[node["key"]]["items"]
        ]
        return [item for item in found if item is not _MISSING]

    @property
    def left_out(self) -> list[str]:
        """What could not be imported of the arguments that were asked for, each with the reason."""
        return list(self._decoder.left_out)


def split_stored(text: str) -> list[str]:
    """Return the texts of the items of a stored list, without importing what they name."""
    document = unseal(text)
    root = document["objects"][document["root"]["key"]]
    return [seal({**document, "root": item}) for _, item in root["items"]]
