"""Where the processes of this user on this machine meet: sockets, locks, and what ssh says."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemo_run._files import make_private_directory
from nemo_run._supervisor.disk import machine_directory

LOCK_WAIT_S = 300.0
PAUSE_S = 0.05


def directory() -> Path:
    """Return a directory on this machine, for this user only, whose name leaves room for sockets'.

    A name of a socket has some hundred bytes. A home directory may be long, and on another machine.
    """
    return make_private_directory(Path(os.fsdecode(machine_directory())) / "ssh")


@contextmanager
def log_file() -> Iterator[str]:
    """Have an empty file while entered."""
    descriptor, name = tempfile.mkstemp(prefix="log-", dir=directory())
    os.close(descriptor)
    try:
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def locked(name: str, kind: int, *, wait_s: float = LOCK_WAIT_S) -> Iterator[bool]:
    """Hold a lock among the processes of this machine while entered; tell whether we got it."""
    descriptor = os.open(directory() / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + wait_s
        while not (got := _try_lock(descriptor, kind)) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        yield got
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
