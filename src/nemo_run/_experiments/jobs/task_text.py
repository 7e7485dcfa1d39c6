"""Tasks as the text in which they are stored, read only when what is in it is needed."""

from __future__ import annotations

from typing import Any, cast

from nemo_run.config import Partial, Script
from nemo_run.core.serialization.peek import peek
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

SCRIPT = "nemo_run.config:Script"

Task = Partial[Any] | Script


def decoded(task: Task | str) -> Task:
    """Return a task, read from its text where it was stored."""
    if not isinstance(task, str):
        return task
    found = ZlibJSONSerializer().deserialize(task)
    return _as_task(found)


def runnable(task: Task | str) -> Task | str:
    """Return a task as something to package: stored functions stay text, so nothing is imported."""
    if isinstance(task, str) and getattr(peek(task), "target", "") == SCRIPT:
        return decoded(task)
    return task


def _as_task(found: Any) -> Task:
    from nemo_run._config.fiddle import fdl

    if isinstance(found, fdl.Config) and found.__fn_or_cls__ is Script:
        script: Script = fdl.build(found)
        return script
    if isinstance(found, Partial) or getattr(type(found), "is_lazy", False):
        return cast("Task", found)
    return fdl.cast(Partial, found)


def as_text(task: Any) -> str:
    """Return a task as it is stored."""
    return task if isinstance(task, str) else ZlibJSONSerializer().serialize(task)
