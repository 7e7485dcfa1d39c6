"""What a task calls: whether a call of it runs something, and seeing a coroutine through."""

from __future__ import annotations

from typing import Any


def call(function: Any) -> Any:
    """Call what a task describes and return its result; one that has to be awaited is."""
    result = function()
    if not hasattr(type(result), "__await__"):
        return result
    import asyncio  # takes longer to import than many tasks take to run

    async def awaited() -> Any:
        return await result

    return asyncio.run(awaited())


def why_not(target: Any) -> str:
    """Return why a call of ``target`` would run nothing of what it says; else nothing."""
    import contextlib
    import inspect

    name = getattr(target, "__qualname__", repr(target))
    if isinstance(target, type):
        return (
            f"{name} is a class, and to make an object of it runs nothing. "
            "Give a function that makes the object and uses it."
        )
    if not callable(target):
        return f"{target!r} cannot be called. Give a function."
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        return (
            f"{name} has a yield in it, so that calling it runs nothing. "
            "Give a function that goes through what it yields."
        )
    code = getattr(target, "__code__", None)
    wrapped = getattr(target, "__wrapped__", None)
    if wrapped is not None and code is not None and code.co_filename == contextlib.__file__:
        return f"{name} is a context manager. Give a function that enters it."
    return ""
