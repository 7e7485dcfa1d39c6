"""Write the members of a tar file into a directory, and nowhere else.

Everything that comes from elsewhere is unpacked here: archives of code, and directories that a
server sends. Python's own filters depend on its release, and let hard links lead out.
"""

from __future__ import annotations

import gzip
import logging
import lzma
import math
import os
import posixpath
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from nemo_run.core.packaging._members import checked_name, leads_out, listed, parents_of
from nemo_run.exceptions import PackagingError

log = logging.getLogger(__name__)

MOST_MEMBERS = 2_000_000
"""Names of written files are held until the end, for hard links to them."""
MOST_OF_DISK = 0.95
"""The part of the free space that one archive may fill."""

_MOST_HEADER_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20
# Longer names and the like, which tarfile reads into memory whole.
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def usual_mode(info: tarfile.TarInfo) -> int:
    """Return what the sender says, without set-user-id and write permission for others."""
    return (info.mode & 0o755) | (0o700 if info.isdir() else 0)


def room_bytes(directory: Path) -> int:
    """Return how much may be written there of what comes from elsewhere."""
    return int(shutil.disk_usage(directory).free * MOST_OF_DISK)


class _Checked(tarfile.TarInfo):
    """A header; one that would take much memory is refused before that is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Checked:
        info = super().frombuf(buf, encoding, errors)
        if info.type in _HEADERS and info.size > _MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {info.size} bytes")
        if info.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("files with holes are not taken")
        return info

    def _proc_gnusparse_10(self, *anything: object) -> None:
        raise tarfile.ReadError("files with holes are not taken")


def unpack(
    stream: IO[bytes],
    directory: Path,
    *,
    seekable: bool = False,
    mode_of: Callable[[tarfile.TarInfo], int] = usual_mode,
    times: bool = True,
) -> None:
    """Write what a tar file holds below ``directory``, which is there.

    1. Nothing outside of it is written or read, whatever names and links say, and whatever links
       are in it already. Links that lead out are left out, which is logged.
    2. There are files, directories, symbolic links and hard links to files of the same archive; of
       two of the same name the later stays.
    3. A file replaces one of its name; it is never written into what is there.

    Raises:
        PackagingError: it is not a whole tar file, has something else in it, more members than
            `MOST_MEMBERS`, or more bytes than the disk has room for; or it cannot be written.
    """
    try:
        with tarfile.open(
            fileobj=stream,
            mode="r:*" if seekable else "r|",
            tarinfo=_Checked,
            encoding="utf-8",
            errors="surrogateescape",
            bufsize=1 << 16,
        ) as tar:
            _Unpacker(directory, mode_of, times=times).take(tar)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as err:
        raise PackagingError(f"This is not a whole tar file: {err}.") from err
    except OSError as err:  # a full disk, or a file where a directory is
        raise PackagingError(f"It cannot be written: {err}.") from err
    except (ValueError, OverflowError, RecursionError) as err:
        # What tarfile makes of odd numbers in headers, and of headers without end.
        raise PackagingError(f"This is not a whole tar file: {type(err).__name__}: {err}.") from err


class _Unpacker:
    def __init__(
        self, directory: Path, mode_of: Callable[[tarfile.TarInfo], int], *, times: bool
    ) -> None:
        self.directory = directory
        self.mode_of = mode_of
        self.times = times
        self.files: set[str] = set()
        self.directories: set[str] = set()
        self.links: dict[str, str] = {}
        self.left_bytes = room_bytes(directory)

    def take(self, tar: tarfile.TarFile) -> None:
        for count, info in enumerate(tar):
            if count >= MOST_MEMBERS:
                raise PackagingError(f"The archive has more than {MOST_MEMBERS} members.")
            if info.name.strip("./"):  # else the directory itself
                self._write(tar, info)
            tar.members = []  # type: ignore[attr-defined]  # it would keep all of them
        # Last, so that nothing can have been written through one.
        make_links(self.links, self.directory)

    def _write(self, tar: tarfile.TarFile, info: tarfile.TarInfo) -> None:
        name = checked_name(info.name)
        self.links.pop(name, None)
        self.files.discard(name)
        if info.issym():
            self.links[name] = info.linkname
            return
        for parent in reversed(list(parents_of(name))):
            self._enter(parent)
        path = self.directory / name
        if info.isdir():
            self._enter(name)
            path.chmod(self.mode_of(info))
        elif info.islnk():
            self._link(name, info)
        elif info.isreg() and not info.issparse():
            self._file(tar, info, path)
            self.files.add(name)
        else:
            raise PackagingError(
                f"{name!r} is neither a file, a directory nor a link. An archive has nothing else "
                "in it."
            )

    def _enter(self, name: str) -> None:
        """Make a directory unless it is there; a link to one is none."""
        if name in self.directories:
            return
        path = self.directory / name
        with suppress(FileExistsError):
            path.mkdir()
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise PackagingError(
                f"{str(path)!r} is no directory, so the archive cannot be unpacked there."
            )
        self.directories.add(name)

    def _link(self, name: str, info: tarfile.TarInfo) -> None:
        target = posixpath.normpath(info.linkname)
        if target not in self.files:
            raise PackagingError(
                f"{name!r} is a hard link to {info.linkname!r}, which is no file of the archive."
            )
        path = self.directory / name
        path.unlink(missing_ok=True)
        try:
            path.hardlink_to(self.directory / target)
        except OSError:  # a file system without them
            self._count((self.directory / target).stat().st_size)
            shutil.copy(self.directory / target, path, follow_symlinks=False)
        self.files.add(name)

    def _file(self, tar: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> None:
        self._count(info.size)
        content = tar.extractfile(info)
        assert content is not None
        path.unlink(missing_ok=True)
        # For its owner only until all of it is there.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(content, file, _BLOCK_BYTES)
            os.fchmod(descriptor, self.mode_of(info))
        if self.times and math.isfinite(info.mtime):
            with suppress(OSError, OverflowError):
                os.utime(path, (info.mtime, info.mtime), follow_symlinks=False)

    def _count(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        if size_bytes < 0 or self.left_bytes < 0:
            raise PackagingError("The archive holds more than there is room for on the disk.")


def make_links(links: dict[str, str], directory: Path) -> None:
    """Make symbolic links by their names and targets, but none that leads out."""
    refused = []
    for name, target in links.items():
        path = directory / name
        if leads_out(name, target):
            refused.append(name)
            continue
        if any((directory / parent).is_symlink() for parent in parents_of(name)):
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
