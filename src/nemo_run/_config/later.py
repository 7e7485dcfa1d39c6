"""What was set on an object after it was made, which its constructor does not take.

A config has only what the constructor takes. A stored object, and a copy that is made
by its constructor, keep the rest beside it.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
from typing import Any

log = logging.getLogger(__name__)

ATTRIBUTE = "__set_later__"
"""Of a config that was read back: what the object had that was stored."""


def set_later(instance: Any) -> dict[str, Any]:
    """Return the public attributes of a dataclass that its constructor does not take."""
    taken = {item.name for item in dataclasses.fields(instance) if item.init}
    return {
        name: value
        for name, value in vars(instance).items()
        if not (name.startswith("_") or name in taken or _is_cached(instance, name))
    }


def _is_cached(instance: Any, name: str) -> bool:
    return isinstance(getattr(type(instance), name, None), functools.cached_property)


def carry_over(source: Any, target: Any) -> None:
    """Give ``target``, made anew, what was set later on ``source``.

    What the constructor has made by itself, such as a client, is left to the new object.
    """
    declared = {item.name for item in dataclasses.fields(source)}
    for name, value in set_later(source).items():
        if name in declared or not hasattr(target, name):
            try:
                setattr(target, name, copy.deepcopy(value))
            except (TypeError, ValueError, copy.Error) as err:
                left_out(source, name, err)


def left_out(instance: Any, name: str, why: Exception) -> None:
    """Say that an attribute is not kept: a warning where it is a field of the class."""
    declared = name in {item.name for item in dataclasses.fields(instance)}
    level = logging.WARNING if declared else logging.DEBUG
    log.log(level, "%s.%s is not kept: %s", type(instance).__name__, name, why)
