"""Files at the other end of a connection, by ssh's own service for them."""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
from collections import deque
from collections.abc import Iterator
from typing import IO, Any

from nemo_run._transport.ssh.far_files import Files, Progress, buffered
from nemo_run._transport.ssh.sftp_line import Line, accepted
from nemo_run._transport.ssh.sftp_wire import Attributes, Kind, Long, Open

BLOCK_BYTES = 1 << 15
"""What every server takes at once."""
UNANSWERED = 64
"""Requests under way: enough to fill a long line, and their answers fit a pipe."""

_MODES = {
    "r": Open.READ,
    "w": Open.WRITE | Open.CREATE | Open.TRUNCATE,
    "a": Open.WRITE | Open.CREATE | Open.APPEND,
    "x": Open.WRITE | Open.CREATE | Open.EXCLUSIVE,
}


class SFTP(Files):
    """Files there by way of ssh's service for them, over the shared connection."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def putfo(
        self,
        fl: IO[bytes],
        remotepath: str,
        file_size: int = 0,
        callback: Progress | None = None,
        confirm: bool = True,
    ) -> Attributes:
        with self._line.lock, self._opened(remotepath, _MODES["w"]) as handle:
            sent = self._write_all(handle, fl, remotepath, file_size, callback)
        if not confirm:
            return Attributes()
        there = self.stat(remotepath)
        if there.st_size != sent:
            raise OSError(f"{remotepath!r} has {there.st_size} bytes there, not the {sent} sent")
        return there

    def getfo(
        self, remotepath: str, fl: IO[bytes], callback: Progress | None = None, **_: Any
    ) -> int:
        size = self.stat(remotepath).st_size or 0
        done, before = 0, -1
        with self._line.lock, self._opened(remotepath, Open.READ) as handle:
            while done > before:  # until nothing comes any more: files grow, and blocks are short
                before = done
                for block in self._read_on(handle, remotepath, done, size):
                    fl.write(block)
                    done += len(block)
                    if callback is not None:
                        callback(done, max(size, done))
        return done

    def open(self, filename: str, mode: str = "r", bufsize: int = -1) -> Any:
        return buffered(RemoteFile(self._line, filename, mode))

    def listdir_attr(self, path: str = ".") -> list[Attributes]:
        found: list[Attributes] = []
        with self._line.lock:
            handle = self._line.handle(path, Kind.OPENDIR, path)
            try:
                while names := self._line.names(path, Kind.READDIR, handle):
                    found += [entry for entry in names if entry.filename not in {".", ".."}]
            finally:
                self._line.ask(Kind.CLOSE, handle)
        return found

    def stat(self, path: str) -> Attributes:
        return self._attributes(Kind.STAT, path)

    def lstat(self, path: str) -> Attributes:
        return self._attributes(Kind.LSTAT, path)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._line.do(path, Kind.MKDIR, path, Attributes(st_mode=mode))

    def rmdir(self, path: str) -> None:
        self._line.do(path, Kind.RMDIR, path)

    def remove(self, path: str) -> None:
        self._line.do(path, Kind.REMOVE, path)

    def rename(self, oldpath: str, newpath: str) -> None:
        self._line.do(oldpath, Kind.RENAME, oldpath, newpath)

    def posix_rename(self, oldpath: str, newpath: str) -> None:
        self._line.do(oldpath, Kind.EXTENDED, "posix-rename@openssh.com", oldpath, newpath)

    def chmod(self, path: str, mode: int) -> None:
        self._line.do(path, Kind.SETSTAT, path, Attributes(st_mode=mode))

    def utime(self, path: str, times: tuple[float, float]) -> None:
        last = Attributes(st_atime=int(times[0]), st_mtime=int(times[1]))
        self._line.do(path, Kind.SETSTAT, path, last)

    def truncate(self, path: str, size: int) -> None:
        self._line.do(path, Kind.SETSTAT, path, Attributes(st_size=size))

    def symlink(self, source: str, dest: str) -> None:
        # OpenSSH has them the other way round than the draft.
        self._line.do(dest, Kind.SYMLINK, source, dest)

    def readlink(self, path: str) -> str | None:
        names = self._line.names(path, Kind.READLINK, path)
        return names[0].filename if names else None

    def normalize(self, path: str) -> str:
        return self._line.names(path, Kind.REALPATH, path)[0].filename

    def close(self) -> None:
        self._line.close()

    def _attributes(self, kind: Kind, path: str) -> Attributes:
        found = self._line.attributes(kind, path)
        found.filename = posixpath.basename(path)
        return found

    @contextlib.contextmanager
    def _opened(self, path: str, how: Open) -> Iterator[bytes]:
        handle = self._line.handle(path, Kind.OPEN, path, int(how), Attributes())
        try:
            yield handle
        except BaseException:
            with contextlib.suppress(Exception):  # the first error counts
                self._line.ask(Kind.CLOSE, handle)
            raise
        self._line.do(path, Kind.CLOSE, handle)

    def _write_all(
        self, handle: bytes, source: IO[bytes], path: str, size: int, callback: Progress | None
    ) -> int:
        """Write what a file gives, many blocks before the first is confirmed."""
        sent, done = 0, 0
        waiting: deque[tuple[int, int]] = deque()

        def confirmed() -> int:
            number, length = waiting.popleft()
            accepted(self._line.answer(number), path)
            if callback is not None:
                callback(done + length, max(size, done + length))
            return length

        try:
            while block := source.read(BLOCK_BYTES):
                number = self._line.send(Kind.WRITE, handle, Long(sent), block)
                waiting.append((number, len(block)))
                sent += len(block)
                if len(waiting) >= UNANSWERED:
                    done += confirmed()
            while waiting:
                done += confirmed()
        finally:
            self._line.ignore(number for number, _ in waiting)
        return sent

    def _read_on(self, handle: bytes, path: str, at: int, size: int) -> Iterator[bytes]:
        """Yield what a file has from ``at`` on, until its end or a block that is short."""
        waiting: deque[int] = deque()
        try:
            while True:
                while len(waiting) < UNANSWERED and (at < size or not waiting):
                    waiting.append(self._line.send(Kind.READ, handle, Long(at), BLOCK_BYTES))
                    at += BLOCK_BYTES
                block = self._line.block(waiting.popleft(), path)
                if block:
                    yield block
                if len(block) < BLOCK_BYTES:
                    return
        finally:
            self._line.ignore(waiting)


class RemoteFile(io.RawIOBase):
    """One file there that is open."""

    def __init__(self, line: Line, path: str, mode: str) -> None:
        letters = mode.translate({ord(letter): None for letter in "btU"})
        how = _MODES.get(letters.replace("+", ""))
        if how is None:
            raise ValueError(f"mode is r, w, a or x, perhaps with +, not {mode!r}")
        if "+" in letters:
            how |= Open.READ | Open.WRITE
        self._line = line
        self._path = path
        self._how = how
        self._handle = line.handle(path, Kind.OPEN, path, int(how), Attributes())
        self._at = (self.stat().st_size or 0) if how & Open.APPEND else 0

    def stat(self) -> Attributes:
        """Return what is known of it."""
        return self._line.attributes(Kind.STAT, self._path)

    def readable(self) -> bool:
        return bool(self._how & Open.READ)

    def writable(self) -> bool:
        return bool(self._how & Open.WRITE)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        self._at = offset + (start if start is not None else self.stat().st_size or 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        with self._line.lock:
            wanted = min(len(buffer), BLOCK_BYTES)
            number = self._line.send(Kind.READ, self._handle, Long(self._at), wanted)
            block = self._line.block(number, self._path)
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)

    def write(self, data: Any) -> int:
        block = bytes(data[:BLOCK_BYTES])
        self._line.do(self._path, Kind.WRITE, self._handle, Long(self._at), block)
        self._at += len(block)
        return len(block)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._line.is_open:
                self._line.do(self._path, Kind.CLOSE, self._handle)
