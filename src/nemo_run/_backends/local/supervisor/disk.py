"""Read, write, lock and find files; make directories that only this user can use."""

# ruff: noqa: PTH102, PTH113, PTH118

from __future__ import annotations

import errno
import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    Result = TypeVar("Result")

PASSING = frozenset(
    {
        *(errno.EAGAIN, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
        *(errno.ENOSPC, errno.EROFS, errno.ESTALE),
    }
)
"""Errors of a machine in trouble, which may be over soon."""
LONGEST_PAUSE_S = 5.0


def patiently(act: Callable[[], Result]) -> Result:
    """Do what has to be done, again and again while this machine is in trouble; return its result.

    For what no other process knows, such as an exit code, which giving up would lose, and for
    questions whose answers decide what becomes of a replica.
    """
    pause_s = 0.05
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in PASSING:
                raise
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


NONSENSE = (KeyError, IndexError, ValueError, OverflowError)
"""What comes of reading a state that the task has overwritten."""

_LARGEST = 1 << 26
NOT_OURS = (errno.ELOOP, errno.ENXIO)
"""What is said of a link, or a FIFO, where a file of ours should be."""


def open_regular(name: str, dir_fd: int | None = None) -> int:
    """Open a file to read it; OSError for a FIFO, say, which would be waited for.

    The task can put anything into its own directory.
    """
    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=dir_fd)
    if is_regular(fd):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", name)


def open_own(name: str, mode: int, dir_fd: int) -> int:
    """Open a file to write it; a link or a FIFO in its place is removed first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(name, flags, mode, dir_fd=dir_fd)
        if is_regular(fd):
            return fd
        os.close(fd)
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
    os.unlink(name, dir_fd=dir_fd)
    return os.open(name, flags | os.O_EXCL, mode, dir_fd=dir_fd)


def is_regular(fd: int) -> bool:
    return os.fstat(fd).st_mode & 0o170000 == 0o100000


def read_all(fd: int) -> bytes:
    """Read a file, and no more of a huge one than any of ours has."""
    parts, left = [], _LARGEST
    while left > 0 and (part := os.read(fd, 65536)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def say(fd: int, message: str) -> None:
    try:
        os.write(fd, message.encode("utf-8", "replace"))
    except OSError:
        return  # no reader


def try_flock(fd: int, mode: int) -> bool:
    """Lock a descriptor, or close it."""
    try:
        fcntl.flock(fd, mode)
    except BlockingIOError:
        os.close(fd)
        return False
    except OSError:
        os.close(fd)
        raise
    return True


def explain(error: Exception) -> str:
    """What went wrong, for people."""
    if not isinstance(error, OSError):
        return f"its state cannot be read: {error}"
    reason = error.strerror or str(error)
    return f"{reason}: {os.fsdecode(error.filename)!r}" if error.filename else reason


def trouble(error: OSError) -> str:
    """The same for another process of ours, which makes an error of it again."""
    return f"errno {error.errno} {explain(error)}"


def raise_trouble(text: str) -> None:
    """Raise the error that `trouble` told of; other text is left alone."""
    word, _, rest = text.partition(" ")
    number, _, reason = rest.partition(" ")
    if word == "errno" and number.isdigit():
        raise OSError(int(number), reason)


def machine_directory(path: bytes = b"") -> bytes:
    """Where this user's processes on this machine meet; ``path`` is for tests.

    Not ``XDG_RUNTIME_DIR``: it is removed when the user logs out, and jobs go on after that.
    """
    return make_private_directory(path or b"/tmp/nemo_run-%d" % os.getuid())


def make_private_directory(path: bytes) -> bytes:
    """Create a directory for this user only; PermissionError if another user was first."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        stat = os.lstat(path)
        if stat.st_mode & 0o170077 != 0o040000 or stat.st_uid != os.getuid():
            name = os.fsdecode(path)
            raise PermissionError(
                errno.EACCES, "not a directory of this user alone (mode 0700)", name
            ) from None
    return path


def find_program(name: bytes, env: Mapping[bytes, bytes], cwd: bytes = b"") -> bytes:
    """The file ``name`` means in ``env`` and ``cwd``; FileNotFoundError if there is none."""
    if b"/" in name:
        candidates = [name]
    else:
        path = env.get(b"PATH", os.fsencode(os.defpath))
        candidates = [os.path.join(entry or b".", name) for entry in path.split(b":")]
    for candidate in candidates:
        full = os.path.join(cwd, candidate)
        if os.path.isfile(full) and os.access(full, os.X_OK):
            return candidate
    raise FileNotFoundError(errno.ENOENT, "no such program", os.fsdecode(name))
