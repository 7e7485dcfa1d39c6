"""Files in places that a job can write to, used so that nothing in them leads elsewhere.

A job may put a link, a FIFO, a device, a directory or terabytes in the place of any file there. No
function here follows a link below the given root, waits for a writer, or reads more than it says.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nemo_run._files import PASSING, PRIVATE_FILE

SMALL_BYTES = 1 << 20
"""More than any file has in which a job notes how it is."""

# Without O_NONBLOCK the open of a FIFO waits for its other end.
_FILE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def directory(root: Path, path: Path, *, make: bool = False) -> Iterator[int]:
    """Hold ``path``, which is ``root`` or below it, open; follow no link on the way from there.

    Raises:
        OSError: it is missing, or something else is in the place of a directory.
    """
    handle = os.open(root, _DIRECTORY)
    try:
        for name in path.relative_to(root).parts:
            if name == "..":
                raise OSError(errno.ENOTDIR, "a path that leads out of its root", str(path))
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
            below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def open_file(path: Path, root: Path | None = None, *, flags: int = os.O_RDONLY) -> int | None:
    """Return a descriptor of a regular file; None where there is none, whatever is in its place.

    Links are followed down to ``root``, and none below it; without ``root``, all are.

    Raises:
        OSError: the machine is in trouble, which says nothing about the file.
    """
    try:
        if root is None or not path.is_relative_to(root):
            descriptor = os.open(path, flags | _FILE, 0o666)
        else:
            with directory(root, path.parent) as handle:
                descriptor = os.open(path.name, flags | _FILE | os.O_NOFOLLOW, 0o666, dir_fd=handle)
    except OSError as err:
        if err.errno in PASSING:
            raise
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def read_file(path: Path, root: Path | None = None, *, limit: int = SMALL_BYTES) -> bytes | None:
    """Return at most ``limit`` bytes of a regular file; None where `open_file` has none."""
    descriptor = open_file(path, root)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit)


def file_size(path: Path, root: Path | None = None) -> int:
    """Return the size of a regular file, 0 where `open_file` has none."""
    found = _stat(path, root)
    return 0 if found is None else found.st_size


def written_at(path: Path, root: Path | None = None) -> float | None:
    """Return when a regular file was written last; a time to come counts as now."""
    found = _stat(path, root)
    return None if found is None else min(max(found.st_mtime, 0.0), time.time())


def write_file(path: Path, root: Path, data: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Put a file with ``data`` at ``path``, in the place of whatever is there.

    Raises:
        OSError: a directory is in its place, or a directory on the way is not one.
    """
    staged = f".{path.name[:100]}.{os.urandom(8).hex()}.tmp"
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with directory(root, path.parent, make=True) as handle:
        try:
            with os.fdopen(os.open(staged, new, mode, dir_fd=handle), "wb") as file:
                file.write(data)
            os.replace(staged, path.name, src_dir_fd=handle, dst_dir_fd=handle)
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(staged, dir_fd=handle)
            raise


def remove_file(path: Path, root: Path) -> None:
    """Remove a file, if it is there and no link leads to it.

    Raises:
        OSError: the machine is in trouble, so that it may still be there.
    """
    try:
        with directory(root, path.parent) as handle:
            os.unlink(path.name, dir_fd=handle)
    except OSError as err:
        if err.errno in PASSING:
            raise


def _stat(path: Path, root: Path | None) -> os.stat_result | None:
    descriptor = open_file(path, root)
    if descriptor is None:
        return None
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)
