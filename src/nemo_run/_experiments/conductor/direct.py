"""How jobs are told that ran in the process of their launcher."""

from __future__ import annotations

SUFFIX = "_direct_run"


def is_direct(handle: str) -> bool:
    """Tell the handle of a job that ran in its launcher."""
    return handle.endswith(SUFFIX)
