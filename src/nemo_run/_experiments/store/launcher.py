"""Whether the process that launches an experiment's jobs is still there.

It holds a lock on a file as long as it lives. To look at it, nothing is written.
"""

from __future__ import annotations

import fcntl
import os

LOCK = "_CONDUCTOR"
WAITS = "waits for resume: its launcher is gone"
"""What is said of a job that no process will start."""


def was_launched(path: str) -> bool:
    """Tell whether a process has begun to launch the experiment in a directory."""
    return os.path.exists(f"{path}/{LOCK}")  # noqa: PTH110 - thousands of times


def is_gone(path: str) -> bool:
    """Tell whether a process began to launch the experiment in a directory, and none is at it."""
    try:
        descriptor = os.open(f"{path}/{LOCK}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # never launched, or not to be known
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
