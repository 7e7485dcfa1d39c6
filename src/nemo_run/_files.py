"""Files that are written whole or not at all, and directories only their owner can enter."""

# Every step of every job is written here, so text and descriptors do what paths and files would.
# ruff: noqa: PTH105, PTH108

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemo_run.exceptions import RecordUnavailableError

log = logging.getLogger(__name__)

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700

PASSING = frozenset(
    {
        errno.EAGAIN,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
        errno.ESTALE,
    }
)
"""Errors of a machine in trouble: they say nothing about the file, and may be over soon."""

MOST_BYTES = 64 << 20
"""More than any file has that is read whole: records, stored configs, files of values."""

_STALE_TRIES = 5
_LOCK_POLL_S = 0.005


def is_passing(err: Exception) -> bool:
    """Tell trouble of this machine, which says nothing about a job: a full disk, no memory.

    Also where a backend tells of it in words of its own, raised from the error that it met.
    """
    return any(
        isinstance(met, (RecordUnavailableError, MemoryError))
        or (isinstance(met, OSError) and met.errno in PASSING)
        for met in (err, err.__cause__)
    )


def make_private_directory(path: Path) -> Path:
    """Return ``path``, creating it and its missing parents for their owner only."""
    # Path.mkdir(parents=True) gives the parents it creates the default mode, so each is made here.
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for path in reversed(missing):
        path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    return path


def read_whole(path: str | os.PathLike[str]) -> bytes | None:
    """Return the content of a file written by :func:`write_whole`, or None if it is not there."""
    for left in reversed(range(_STALE_TRIES)):
        try:
            return read_regular(path)
        except FileNotFoundError:
            return None
        except OSError as err:
            # NFS says so when another machine replaced the file between our open and our read.
            if err.errno != errno.ESTALE or not left:
                raise
    return None


def read_regular(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file, which may be a link to one.

    Raises:
        OSError: it cannot be read, is no file, such as a FIFO or a device, or is larger.
    """
    # Without O_NONBLOCK the open of a FIFO waits for its other end.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            code = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
            raise OSError(code, "It is not a regular file", os.fspath(path))
        parts, left = [], most_bytes
        while found.st_size <= most_bytes and left >= 0 and (part := os.read(fd, 65536)):
            parts.append(part)
            left -= len(part)
        if found.st_size > most_bytes or left < 0:
            said = f"It has more than {most_bytes >> 20} MiB"
            raise OSError(errno.EFBIG, said, os.fspath(path))
    finally:
        os.close(fd)
    return b"".join(parts)


def write_whole(path: Path, data: bytes, *, mode: int = PRIVATE_FILE, sync: bool = True) -> None:
    """Put ``data`` in place of what ``path`` holds.

    1. A reader sees the old content or the new, never a part of either.
    2. If it fails, or the process dies on the way, the old content stays.
    3. No lock is taken: of two writers at once, the later one stays.
    4. With ``sync`` all that holds for a machine that loses power, too; it takes milliseconds.
    """
    _move(_stage(path, data, mode, sync), path)


def swap_whole(
    path: Path, old: bytes | None, new: bytes, *, mode: int = PRIVATE_FILE, sync: bool = True
) -> bool:
    """Write ``new`` if ``path`` still holds ``old`` (None: is still not there); say whether it did.

    The comparison comes after the slow part, writing and syncing, so that another writer can only
    slip into the moment before the move. Where even that matters, take a lock too.
    """
    staged = _stage(path, new, mode, sync)
    try:
        unchanged = read_whole(path) == old
    except OSError:
        os.unlink(staged)
        raise
    if unchanged:
        _move(staged, path)
    else:
        os.unlink(staged)
    return unchanged


def _stage(path: Path, data: bytes, mode: int, sync: bool) -> str:
    """Write ``data`` to a file next to ``path``; if that fails there is none."""
    directory, _, name = os.fspath(path).rpartition("/")
    staged = f"{directory or '.'}/.{name[:100]}.{os.urandom(8).hex()}.tmp"
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        while data:
            data = data[os.write(fd, data) :]
        if sync:
            os.fsync(fd)
    except OSError:
        os.unlink(staged)
        raise
    finally:
        os.close(fd)
    return staged


def _move(staged: str, path: Path) -> None:
    try:
        os.replace(staged, path)
    except OSError:
        os.unlink(staged)
        raise


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file; False where another process holds it.

    It dies with its holder. On a file system without locks every caller gets it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as err:
        log.debug("no locks here: %s", err)
    return True


@contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold a lock that dies with this process, where the file system has one.

    Some network file systems have none, or one that never answers: then go on without.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        deadline = time.monotonic() + timeout_s
        while not try_lock(fd) and time.monotonic() < deadline:
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(fd)
