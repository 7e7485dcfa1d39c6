"""Read YAML and JSON that a person wrote, within limits: what is likely a mistake is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

MOST_VALUES = 1_000_000
"""More than that is no config: a few lines of YAML aliases can stand for billions of values."""
MOST_LEVELS = 100
"""Lists and mappings within each other."""


def read_json(text: str) -> Any:
    """Return the data in ``text``.

    Raises:
        ValueError: it is not JSON, has a key twice, or is nested too deeply.
    """
    try:
        data = json.loads(text, object_pairs_hook=_mapping)
    except RecursionError as err:
        raise _too_deep() from err
    check_depth(data)
    return data


def read_yaml(text: str) -> Any:
    """Return the data in ``text``.

    Raises:
        ValueError: it is not YAML, has a key twice, is nested too deeply, or its aliases stand for
            too much.
    """
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            return None
        _check_node(node)
        return yaml.safe_load(text)
    except RecursionError as err:
        raise _too_deep() from err
    except yaml.YAMLError as err:
        raise ValueError(str(err)) from err


def check_depth(data: Any) -> None:
    """Refuse data that is nested too deeply.

    Raises:
        ValueError: it is.
    """
    level = [data]
    for _ in range(MOST_LEVELS + 1):
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise _too_deep()


def _mapping(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _twice(next(key for key in keys if keys.count(key) > 1), "")
    return found


def _check_node(root: Any) -> None:
    """Count what a YAML document stands for, each alias as often as it is used."""
    sizes: dict[int, int] = {}
    inside: set[int] = set()

    def size(node: Any, depth: int) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if depth > MOST_LEVELS:
            raise _too_deep()
        if id(node) in inside:
            raise ValueError(f"an alias{_line(node)} stands for something that it is part of")
        inside.add(id(node))
        total = 1 + sum(size(child, depth + 1) for child in _children(node))
        inside.discard(id(node))
        if total > MOST_VALUES:
            raise ValueError(
                f"what begins{_line(node)} stands for more than {MOST_VALUES:,} values through its "
                "aliases"
            )
        sizes[id(node)] = total
        return total

    size(root, 0)


def _children(node: Any) -> list[Any]:
    if isinstance(node.value, str):
        return []
    if node.id == "sequence":
        return list(node.value)
    seen = set()
    for key, _ in node.value:
        if key.id == "scalar" and key.tag != "tag:yaml.org,2002:merge":
            if (key.tag, key.value) in seen:
                raise _twice(key.value, _line(key))
            seen.add((key.tag, key.value))
    return [child for pair in node.value for child in pair]


def _line(node: Any) -> str:
    return f" in line {node.start_mark.line + 1}"


def _twice(key: str, where: str) -> ValueError:
    return ValueError(f"the key {key!r} is there twice{where}; remove one of them")


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MOST_LEVELS} levels deep")
