"""Walk a stored JSON document, each shared object once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_run.core.serialization import _format


class Walker:
    """Turns nodes into values; subclasses say what becomes of references and objects."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._objects = objects
        self._values: dict[str, Any] = {}

    def value(self, node: Any) -> Any:
        """Return the value of a node."""
        if type(node) is not dict:
            return node
        kind = node["type"]
        if kind == _format.LEAF:
            return node["value"]
        if kind == _format.REF:
            name = node["key"]
            if name not in self._values:
                self._values[name] = self.value(self._objects[name])
            return self._values[name]
        if kind == _format.PYREF:
            return self._reference(node["module"], node["name"])
        return self._object(node)

    def _reference(self, module: str, name: str) -> Any:
        """Return what is made of the name of something importable."""
        raise NotImplementedError

    def _object(self, node: Mapping[str, Any]) -> Any:
        """Return what is made of a container or a buildable."""
        raise NotImplementedError


def type_of(node: Mapping[str, Any]) -> tuple[str, str]:
    """Return module and name of an object's type; no module for a node of another kind."""
    kind = node.get("type")
    return (kind["module"], kind["name"]) if isinstance(kind, dict) else ("", str(kind))
