"""Do the same to several things at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


# How often there is something else to do.
_PAUSE_S = 0.1


def in_parallel(
    act: Callable[[T], Any],
    items: Sequence[T],
    *,
    workers: int = 16,
    meanwhile: Callable[[], Any] = lambda: None,
) -> None:
    """Call ``act`` with each item, in threads that see the caller's context variables.

    Until all have returned ``meanwhile`` is called now and then. An error does not keep the others
    from being called; the first is raised in the end. Being interrupted, it returns at once and
    leaves the calls that have begun to themselves: they may be waiting for a job to end.
    """
    if len(items) <= 1:
        for item in items:
            act(item)
        return
    pool = ThreadPoolExecutor(min(workers, len(items)))
    try:
        futures = [pool.submit(copy_context().run, act, item) for item in items]
        while wait(futures, _PAUSE_S).not_done:
            meanwhile()
        errors = [future.exception() for future in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for error in errors:
        if error is not None:
            raise error
