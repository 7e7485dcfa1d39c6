"""Unpack an archive so that nothing of it ends up anywhere else."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemo_run.core.packaging._members import (
    PROGRAM_MODE,
    Kind,
    Member,
    checked_name,
    leads_out,
    listed,
)
from nemo_run.core.packaging._tar import PIECE_BYTES, tar_members
from nemo_run.exceptions import PackagingError

log = logging.getLogger(__name__)


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
                _write(tar_members(file), directory)
        except OSError as err:
            raise PackagingError(f"{str(archive)!r} could not be unpacked: {err}.") from err
        except PackagingError as err:
            raise PackagingError(f"{str(archive)!r} could not be unpacked. {err}") from err


def _write(members: Iterator[Member], directory: Path) -> None:
    links: dict[str, str] = {}
    for member in members:
        name = checked_name(member.name)
        path = directory / name
        links.pop(name, None)
        if member.kind is Kind.LINK:
            links[name] = member.target
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.kind is Kind.DIRECTORY:
            path.mkdir(exist_ok=True)
            path.chmod(member.mode)
        else:
            _write_file(member, path)
    # Last, so that nothing can have been written through one.
    _make_links(links, directory)


def _write_file(member: Member, path: Path) -> None:
    # Of two of the same name the later stays, and does not write into what the first is.
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        if isinstance(member.content, bytes):
            file.write(member.content)
        else:
            with member.content.open() as content:
                shutil.copyfileobj(content, file, PIECE_BYTES)
    path.chmod(member.mode)


def _make_links(links: dict[str, str], directory: Path) -> None:
    refused = []
    for name, target in links.items():
        path = directory / name
        if leads_out(name, target):
            refused.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    # One link alone may look harmless, and lead out by way of another.
    root = os.path.realpath(directory)
    for name in links:
        path = directory / name
        if path.is_symlink() and not f"{os.path.realpath(path)}/".startswith(f"{root}/"):
            path.unlink()
            refused.append(name)
    if refused:
        log.warning("Not unpacked, since they lead out of the archive: %s.", listed(refused))


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
