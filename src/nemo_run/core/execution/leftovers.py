"""What jobs that have ended may still have at their backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Leftover:
    """Something at a backend that is not needed once its experiment is removed.

    Attributes:
        what: for people, such as ``directory /scratch/x on me@login``; equal ones are one thing.
        remove: removes it; fine if it is gone.
    """

    what: str
    remove: Callable[[], object] = field(compare=False, repr=False)


def app_id_of(handle: str) -> str:
    """Return the id of a job within its backend."""
    return handle.partition("://")[2].partition("/")[2]
