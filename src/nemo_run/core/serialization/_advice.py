"""Why a value cannot be stored, and what its user can do instead."""

from __future__ import annotations

import functools
import types
import typing
from typing import Any

from nemo_run.core.serialization import _references

TOP_LEVEL = "Define it at the top level of a module that can be imported where the task runs."


def advice(value: Any) -> tuple[str, str]:
    """Return why ``value`` cannot travel and what to do instead."""
    name = getattr(value, "__qualname__", "")
    if isinstance(value, functools.partial):
        return "a functools.partial has no name", "Use run.Partial(function, ...) instead."
    if "<lambda>" in name:
        return "a lambda has no name to import", "Write it as a function. " + TOP_LEVEL
    if isinstance(value, types.GeneratorType):
        return "a generator exists in this process only", "Pass the function that makes it."
    if "<locals>" in name:
        return "it is defined inside a function", TOP_LEVEL
    if _references.is_interpreters_own(value):
        return "it is built into the interpreter", "Call it in a function of your own."
    if isinstance(value, types.ModuleType):
        return "it is a module", "Import it in the function that needs it."
    if typing.get_origin(value) is not None or isinstance(value, typing.TypeVar):
        return "it is a type annotation, not a class", "Pass a plain class."
    return (
        "it exists in this process only",
        f"Wrap it as run.Config({type(value).__qualname__}, ...), which makes it where the "
        "task runs.",
    )


def short_repr(value: Any, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
