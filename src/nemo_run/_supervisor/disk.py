"""Read, write, lock and find files; make directories that only this user can use."""

# ruff: noqa: PTH102, PTH113, PTH118

from __future__ import annotations

import errno
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 65536):
        parts.append(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def say(fd: int, message: str) -> None:
    try:
        os.write(fd, message.encode("utf-8", "replace"))
    except OSError:
        return  # nobody there to hear it


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


def explain(error: OSError) -> str:
    """What went wrong, for people."""
    reason = error.strerror or str(error)
    return f"{reason}: {os.fsdecode(error.filename)!r}" if error.filename else reason


def machine_directory() -> bytes:
    """Where this user's processes on this machine meet.

    Not ``XDG_RUNTIME_DIR``: it is removed when the user logs out, and jobs go on after that.
    """
    return make_private_directory(b"/tmp/nemo_run-%d" % os.getuid())


def make_private_directory(path: bytes) -> bytes:
    """Create a directory for this user only; PermissionError if somebody else was first."""
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
