"""Members to and from the bytes of a tar file; the same members always make the same bytes."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, cast

from nemo_run.core.packaging._members import (
    FILE_MODE,
    IN_MEMORY_BYTES,
    PROGRAM_MODE,
    Kind,
    Large,
    Member,
)
from nemo_run.exceptions import PackagingError

PIECE_BYTES = 1024 * 1024

# 1980-01-02: zip files, which jobs make of their code, cannot tell an earlier time.
_FIRST_S = 315619200
_SPAN_S = 1 << 28

_ENCODING, _ERRORS = "utf-8", "surrogateescape"
_TYPES = {Kind.FILE: tarfile.REGTYPE, Kind.LINK: tarfile.SYMTYPE, Kind.DIRECTORY: tarfile.DIRTYPE}


def tar_pieces(members: Iterable[Member]) -> Iterator[bytes]:
    """Yield the bytes of a tar file.

    Owners are left out and times follow from content.
    """
    for member in members:
        yield _header(member)
        if member.kind is not Kind.FILE:
            continue
        if isinstance(member.content, bytes):
            yield member.content
        else:
            yield from _exactly(member.name, member.content)
        yield bytes(-member.size_bytes % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def tar_members(stream: BinaryIO, *, seekable: bool = True) -> Iterator[Member]:
    """Yield the members of a tar file, compressed or not.

    Raises:
        PackagingError: it is not a whole tar file, or has devices or the like in it.
    """
    try:
        with tarfile.open(
            fileobj=stream,
            mode="r:*" if seekable else "r|",
            encoding=_ENCODING,
            errors=_ERRORS,
            bufsize=1 << 16,
        ) as tar:
            for info in tar:
                if info.name.strip("./"):  # else the root itself
                    yield _member(tar, info)
                if not seekable:
                    tar.members = []  # type: ignore[attr-defined]  # it would keep all of them
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as err:
        raise PackagingError(f"This is not a whole tar file: {err}.") from err


def _header(member: Member) -> bytes:
    info = tarfile.TarInfo(member.name)
    info.type = _TYPES[member.kind]
    info.mode = member.mode
    info.mtime = _FIRST_S
    if member.kind is Kind.LINK:
        info.mode = 0o777
        info.linkname = member.target
    elif member.kind is Kind.FILE:
        info.size = member.size_bytes
        # rsync and Python's own cache take a file of the same size and time for unchanged: one
        # time for all would hide that 0.01 became 0.02.
        info.mtime += _checksum(member.content) % _SPAN_S
    return info.tobuf(tarfile.GNU_FORMAT, _ENCODING, _ERRORS)


def _checksum(content: bytes | Large) -> int:
    if isinstance(content, bytes):
        return zlib.crc32(content)
    checksum = 0
    with content.open() as file:
        while piece := file.read(PIECE_BYTES):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _exactly(name: str, content: Large) -> Iterator[bytes]:
    left = content.size_bytes
    with content.open() as file:
        while left and (piece := file.read(min(left, PIECE_BYTES))):
            left -= len(piece)
            yield piece
        if left or file.read(1):
            raise PackagingError(
                f"{name!r} changed while it was being packaged. Try again when it is complete."
            )


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    private = not info.mode & 0o044
    if info.isdir():
        return Member(info.name, Kind.DIRECTORY, mode=0o700 if private else PROGRAM_MODE)
    if info.issym():
        return Member(info.name, Kind.LINK, target=info.linkname)
    if not info.isreg() and not info.islnk():
        raise PackagingError(
            f"{info.name!r} is neither a file, a directory nor a link. An archive of code has "
            "nothing else in it."
        )
    mode = PROGRAM_MODE if info.mode & 0o100 else FILE_MODE
    with _file(tar, info) as file:
        content = file.read() if info.size <= IN_MEMORY_BYTES else _spooled(file, info.size)
    return Member(info.name, Kind.FILE, content, mode & 0o700 if private else mode)


def _file(tar: tarfile.TarFile, info: tarfile.TarInfo) -> BinaryIO:
    try:
        file = tar.extractfile(info)
    except KeyError:
        file = None
    if file is None:
        raise PackagingError(
            f"{info.name!r} is a hard link to {info.linkname!r}, which is no file of the archive."
        )
    return cast("BinaryIO", file)


def _spooled(file: BinaryIO, size_bytes: int) -> Large:
    # Deleted when nothing refers to the content any more.
    spool = NamedTemporaryFile(prefix="nemo_run-")  # noqa: SIM115
    shutil.copyfileobj(file, spool, PIECE_BYTES)
    spool.flush()
    return Large(size_bytes, lambda: Path(spool.name).open("rb"))
