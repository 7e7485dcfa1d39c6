"""Look into stored text, and make some, without the serializer under test."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN_TEXTS: dict[str, str] = json.loads(
    (Path(__file__).parent / "golden" / "zlib_json_0_11_1.json").read_text(encoding="utf-8")
)
"""What NeMo Run 0.11.1 wrote, by name."""


def unwrapped(text: str) -> str:
    """The JSON inside the envelope."""
    return zlib.decompress(base64.urlsafe_b64decode(text)).decode()


def document(text: str) -> dict[str, Any]:
    """The JSON inside the envelope, parsed."""
    parsed: dict[str, Any] = json.loads(unwrapped(text))
    return parsed


def wrapped(json_text: str) -> str:
    """Put JSON into an envelope."""
    return base64.urlsafe_b64encode(zlib.compress(json_text.encode())).decode("ascii")


def pyref(module: str, name: str) -> dict[str, str]:
    return {"type": "pyref", "module": module, "name": name}


def with_root(root: Any) -> str:
    """A stored text whose root is the given node and which has no other objects."""
    return wrapped(json.dumps({"root": root, "objects": {}, "refcounts": {}, "version": "0.0.1"}))


def refs(node: Any) -> Iterator[str]:
    """The keys of all ``ref`` nodes within a node."""
    if isinstance(node, dict):
        if node.get("type") == "ref":
            yield node["key"]
        else:
            for child in node.values():
                yield from refs(child)
    elif isinstance(node, list):
        for child in node:
            yield from refs(child)


def expanded(doc: dict[str, Any]) -> Any:
    """The root with all references followed and paths sorted: names and their order left out."""

    def follow(node: Any) -> Any:
        if isinstance(node, list):
            return [follow(child) for child in node]
        if not isinstance(node, dict):
            return node
        if node.get("type") == "ref":
            return follow(doc["objects"][node["key"]])
        return {key: sorted(v) if key == "paths" else follow(v) for key, v in node.items()}

    return follow(doc["root"])


def root_object(doc: dict[str, Any]) -> dict[str, Any]:
    """The root node, followed if it is a reference."""
    node: dict[str, Any] = doc["root"]
    if node["type"] == "ref":
        node = doc["objects"][node["key"]]
    return node


def exact(value: Any) -> Any:
    """Something that is equal for two plain values only if all types are too, NaN included."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return kind, sorted(repr(exact(item)) for item in value)
    if isinstance(value, (list, tuple)):
        return kind, [exact(item) for item in value]
    return kind, repr(value)
