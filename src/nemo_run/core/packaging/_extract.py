"""Unpack an archive so that nothing of it ends up anywhere else."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemo_run.core.packaging._members import FILE_MODE, PROGRAM_MODE
from nemo_run.core.packaging._unpack import unpack
from nemo_run.exceptions import PackagingError


def extract(archive: Path, target: Path) -> None:
    """Make the directory ``target`` hold what the archive does, and nothing else.

    1. No file, directory or link outside of ``target`` is written, and no link leads there: such
       links are left out, which is said.
    2. Modes are plain: no set-user-id, no write permission for others.
    3. What ``target`` held before is replaced once everything has been unpacked, or stays.

    Raises:
        PackagingError: it is not a tar file, or has names or things in it that code has not.
    """
    with _replacing(target) as directory:
        try:
            with archive.open("rb") as file:
                unpack(file, directory, seekable=True, mode_of=_plain_mode, times=False)
        except OSError as err:
            raise PackagingError(f"{str(archive)!r} could not be unpacked: {err}.") from err
        except PackagingError as err:
            raise PackagingError(f"{str(archive)!r} could not be unpacked. {err}") from err


def _plain_mode(info: tarfile.TarInfo) -> int:
    private = not info.mode & 0o044
    mode = PROGRAM_MODE if info.isdir() or info.mode & 0o100 else FILE_MODE
    return mode & 0o700 if private else mode


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Give a new directory that takes the place of ``target`` in the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    tag = os.urandom(8).hex()
    new, old = (target.with_name(f".{target.name[:100]}.{tag}.{word}") for word in ("new", "old"))
    new.mkdir(mode=PROGRAM_MODE)
    try:
        yield new
        try:
            new.replace(target)
        except OSError as err:
            if err.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            target.replace(old)
            new.replace(target)
    finally:
        for leftover in (new, old):
            _remove(leftover)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
