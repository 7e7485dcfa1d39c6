"""Files at the other end of a tunnel, in the words of Paramiko's `SFTPClient`."""

from __future__ import annotations

import io
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from nemo_run._transport.ssh.sftp_wire import Attributes

BLOCK_BYTES = 1 << 20

Progress = Callable[[int, int], object]
"""Called with the bytes that are done, and with how many there are."""


class Files(ABC):
    """What can be done with files there. Names that do not begin with a slash begin at the home.

    What the other end refuses is an `OSError`: `FileNotFoundError`, `PermissionError`.
    """

    @abstractmethod
    def putfo(
        self,
        fl: IO[bytes],
        remotepath: str,
        file_size: int = 0,
        callback: Progress | None = None,
        confirm: bool = True,
    ) -> Attributes:
        """Write what a file gives to a file there; return what is known of it then."""

    @abstractmethod
    def getfo(
        self, remotepath: str, fl: IO[bytes], callback: Progress | None = None, **_: Any
    ) -> int:
        """Write what is in a file there to a file; return how many bytes that are."""

    def put(
        self,
        localpath: str | os.PathLike[str],
        remotepath: str,
        callback: Progress | None = None,
        confirm: bool = True,
    ) -> Attributes:
        """Copy a file there; with ``confirm``, see that all of it has arrived."""
        with Path(localpath).open("rb") as source:
            size = os.fstat(source.fileno()).st_size
            return self.putfo(source, remotepath, size, callback, confirm)

    def get(
        self,
        remotepath: str,
        localpath: str | os.PathLike[str],
        callback: Progress | None = None,
        **_: Any,
    ) -> None:
        """Copy a file here; nothing is left here if there is none there."""
        self.stat(remotepath)
        with Path(localpath).open("wb") as sink:
            self.getfo(remotepath, sink, callback)

    @abstractmethod
    def open(self, filename: str, mode: str = "r", bufsize: int = -1) -> Any:
        """Open a file there; what is read are bytes, in every mode."""

    def file(self, filename: str, mode: str = "r", bufsize: int = -1) -> Any:
        """Open a file there, by the other name that this has."""
        return self.open(filename, mode, bufsize)

    @abstractmethod
    def listdir_attr(self, path: str = ".") -> list[Attributes]:
        """Return what is in a directory, in no order."""

    def listdir(self, path: str = ".") -> list[str]:
        """Return the names in a directory, in no order."""
        return [entry.filename for entry in self.listdir_attr(path)]

    def listdir_iter(self, path: str = ".", read_aheads: int = 50) -> Iterator[Attributes]:
        """Yield what is in a directory."""
        yield from self.listdir_attr(path)

    @abstractmethod
    def stat(self, path: str) -> Attributes:
        """Return what is known of a file, or of the one that a link leads to."""

    @abstractmethod
    def lstat(self, path: str) -> Attributes:
        """Return what is known of a file or a link."""

    @abstractmethod
    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Make a directory."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file."""

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self.remove(path)

    @abstractmethod
    def rename(self, oldpath: str, newpath: str) -> None:
        """Give a file another name, which must be free."""

    @abstractmethod
    def posix_rename(self, oldpath: str, newpath: str) -> None:
        """Give a file another name; one that has it is replaced."""

    @abstractmethod
    def chmod(self, path: str, mode: int) -> None:
        """Set the permissions of a file."""

    @abstractmethod
    def utime(self, path: str, times: tuple[float, float]) -> None:
        """Set when a file was read and written last."""

    @abstractmethod
    def truncate(self, path: str, size: int) -> None:
        """Set how long a file is."""

    @abstractmethod
    def symlink(self, source: str, dest: str) -> None:
        """Make a link ``dest`` that leads to ``source``."""

    @abstractmethod
    def readlink(self, path: str) -> str | None:
        """Return where a link leads."""

    @abstractmethod
    def normalize(self, path: str) -> str:
        """Return a path from the root on."""

    @abstractmethod
    def close(self) -> None:
        """Give the way back; fine if that was done."""

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def buffered(raw: io.RawIOBase) -> Any:
    """Return an open file that is read and written in blocks; text is written as UTF-8."""
    if raw.readable() and raw.writable():
        return _RandomFile(raw)
    return io.BufferedReader(raw) if raw.readable() else _WritableFile(raw)


class _WritableFile(io.BufferedWriter):
    def write(self, data: Any) -> int:
        return super().write(data.encode() if isinstance(data, str) else data)


class _RandomFile(io.BufferedRandom):
    def write(self, data: Any) -> int:
        return super().write(data.encode() if isinstance(data, str) else data)


class FilesHere(Files):
    """Files of this machine, where the other end is this one."""

    def putfo(
        self,
        fl: IO[bytes],
        remotepath: str,
        file_size: int = 0,
        callback: Progress | None = None,
        confirm: bool = True,
    ) -> Attributes:
        with _at(remotepath).open("wb") as sink:
            _copy(fl, sink, file_size, callback)
        return self.stat(remotepath)

    def getfo(
        self, remotepath: str, fl: IO[bytes], callback: Progress | None = None, **_: Any
    ) -> int:
        with _at(remotepath).open("rb") as source:
            return _copy(source, fl, os.fstat(source.fileno()).st_size, callback)

    def open(self, filename: str, mode: str = "r", bufsize: int = -1) -> Any:
        letters = mode.translate({ord(letter): None for letter in "btU"})
        return buffered(io.FileIO(_at(filename), letters))

    def listdir_attr(self, path: str = ".") -> list[Attributes]:
        return [Attributes.of(entry.lstat(), entry.name) for entry in _at(path).iterdir()]

    def stat(self, path: str) -> Attributes:
        return Attributes.of(_at(path).stat(), Path(path).name)

    def lstat(self, path: str) -> Attributes:
        return Attributes.of(_at(path).lstat(), Path(path).name)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        _at(path).mkdir(mode=mode)

    def rmdir(self, path: str) -> None:
        _at(path).rmdir()

    def remove(self, path: str) -> None:
        _at(path).unlink()

    def rename(self, oldpath: str, newpath: str) -> None:
        if _at(newpath).exists():
            raise FileExistsError(f"{newpath!r} is there already")
        _at(oldpath).rename(_at(newpath))

    def posix_rename(self, oldpath: str, newpath: str) -> None:
        _at(oldpath).replace(_at(newpath))

    def chmod(self, path: str, mode: int) -> None:
        _at(path).chmod(mode)

    def utime(self, path: str, times: tuple[float, float]) -> None:
        os.utime(_at(path), times)

    def truncate(self, path: str, size: int) -> None:
        os.truncate(_at(path), size)

    def symlink(self, source: str, dest: str) -> None:
        _at(dest).symlink_to(source)

    def readlink(self, path: str) -> str | None:
        return str(_at(path).readlink())

    def normalize(self, path: str) -> str:
        return str(_at(path).resolve())

    def close(self) -> None:
        pass


def _at(path: str) -> Path:
    return Path.home() / path


def _copy(source: IO[bytes], sink: IO[bytes], size: int, callback: Progress | None) -> int:
    if callback is None:
        begin = sink.tell()
        shutil.copyfileobj(source, sink, BLOCK_BYTES)
        return sink.tell() - begin
    done = 0
    while block := source.read(BLOCK_BYTES):
        sink.write(block)
        done += len(block)
        callback(done, max(size, done))
    return done
