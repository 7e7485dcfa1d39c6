"""Files and directories, moved as one stream each over a connection."""

from __future__ import annotations

import io
import logging
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from nemo_run._shell import render
from nemo_run._transport.ssh.connection import Connection
from nemo_run._transport.ssh.exchange import heard
from nemo_run.exceptions import BackendError, MissingFileError, PackagingError

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 18
REPORT_S = 5.0
MOST_BEFORE_MARK = 1 << 16
"""Bytes that start-up files of login shells may print."""
MOST_PADDING = 8 * BLOCK_BYTES

# Scripts for a POSIX shell, each on one line: a login shell of another kind passes that on whole.
# A file arrives under another name and is moved: a stream that breaks leaves the old one in place.
_RECEIVE_FILE = (
    'd=$1; if [ -d "$d" ]; then d="${d%/}/$4"; fi; '
    'mkdir -p -- "$(dirname -- "$d")" && t="$d.$5" && '
    '{ (umask 077; cat > "$t") && [ "$(wc -c < "$t")" -eq "$2" ] && chmod "$3" "$t" '
    '&& mv -f -- "$t" "$d" || { rm -f -- "$t"; exit 1; }; }'
)
_RECEIVE_TREE = 'mkdir -p -- "$1" && exec tar -xof - -C "$1"'
# Start-up files of login shells may print things: what counts comes after a mark.
MARK = b"<nemo-run>"
SAY_MARK = f"printf '{MARK.decode()}'"
_SEND = (
    f'if [ ! -e "$1" ]; then {SAY_MARK}; printf n; '
    f'elif [ -d "$1" ]; then {SAY_MARK}; printf d; exec tar -cf - -C "$1" .; '
    f'else exec 3< "$1" && {SAY_MARK} && printf f && exec cat <&3; fi'
)
_READ = f'{SAY_MARK}; if [ -e "$1" ]; then tail -c +"$2" -- "$1" | head -c "$3"; fi'


def put(connection: Connection, local: Path, remote: str) -> None:
    """Copy a file, or what is in a directory, to ``remote``; directories above it are made.

    Raises:
        MissingFileError: there is nothing at ``local``.
        BackendError: it could not be written there.
    """
    if local.is_dir():
        connection.perform(lambda: _put_tree(connection, local, remote), repeatable=True)
        return
    if not local.is_file():
        raise MissingFileError(str(local))
    connection.perform(lambda: _put_file(connection, local, remote), repeatable=True)


def write(connection: Connection, remote: str, data: bytes, *, mode: int) -> None:
    """Write a file whole or not at all. Directories above it are made.

    Raises:
        BackendError: it could not be written there.
    """
    text = _receive_file(remote, len(data), mode, Path(remote).name)

    def once() -> None:
        with tempfile.TemporaryFile() as errors:
            with connection.open(text, stdin=subprocess.PIPE, stderr=errors) as process:
                heard(process, data, most_bytes=MOST_BEFORE_MARK)
            _check(connection, process, errors, f"write {remote!r}")

    connection.perform(once, repeatable=True)


def get(connection: Connection, remote: str, local: Path) -> None:
    """Copy a file, or what is in a directory, to ``local``; directories above it are made.

    Raises:
        MissingFileError: there is nothing at ``remote``.
        BackendError: it could not be read there.
    """
    connection.perform(lambda: _get(connection, remote, local), repeatable=True)


def read(connection: Connection, remote: str, offset: int, limit: int) -> bytes:
    """Return up to ``limit`` bytes of a file from ``offset`` on; none if there is no file yet.

    Raises:
        BackendError: it is there and could not be read.
    """
    text = _sh(_READ, remote, str(offset + 1), str(limit))

    def once() -> bytes:
        with tempfile.TemporaryFile() as errors:
            with connection.open(text, stderr=errors) as process:
                said, _ = heard(process, most_bytes=limit + MOST_BEFORE_MARK)
            _check(connection, process, errors, f"read {remote!r}")
        return said.partition(MARK)[2]

    return connection.perform(once, repeatable=True)


def feed(connection: Connection, text: str, stream: BinaryIO) -> None:
    """Run a command with what a file holds, from where it is, as its input; that may take long.

    Raises:
        BackendError: the command failed.
        ConnectionLostError: the connection broke on the way, and the command may have got a part.
    """
    begin = stream.tell()

    def once() -> None:
        stream.seek(begin)  # where it did not start, something may have been read all the same
        with tempfile.TemporaryFile() as errors:
            with (
                connection.open(text, stdin=subprocess.PIPE, stderr=errors) as process,
                cast("IO[bytes]", process.stdin) as sink,
            ):
                shutil.copyfileobj(stream, sink, BLOCK_BYTES)
            _check(connection, process, errors, "send a file to a command")

    connection.perform(once)


def _put_file(connection: Connection, local: Path, remote: str) -> None:
    with local.open("rb") as source, tempfile.TemporaryFile() as errors:
        status = os.fstat(source.fileno())
        text = _receive_file(remote, status.st_size, stat.S_IMODE(status.st_mode), local.name)
        with (
            connection.open(text, stdin=subprocess.PIPE, stderr=errors) as process,
            _Reported(process.stdin, f"{local.name} to {connection.route.destination}") as sink,
        ):
            shutil.copyfileobj(source, sink, BLOCK_BYTES)
        _check(connection, process, errors, f"write {remote!r}")


def _put_tree(connection: Connection, local: Path, remote: str) -> None:
    text = _sh(_RECEIVE_TREE, remote)
    with tempfile.TemporaryFile() as errors:
        with (
            connection.open(text, stdin=subprocess.PIPE, stderr=errors) as process,
            _Reported(process.stdin, f"{local.name} to {connection.route.destination}") as sink,
            tarfile.open(fileobj=sink, mode="w|", bufsize=BLOCK_BYTES) as archive,
        ):
            archive.add(local, arcname=".")
        _check(connection, process, errors, f"write to {remote!r}")


def _get(connection: Connection, remote: str, local: Path) -> None:
    target = local / PurePosixPath(remote).name if local.is_dir() else local
    staged = target.with_name(f".{target.name[:100]}.{os.urandom(8).hex()}.tmp")
    kind, broken = b"", None
    try:
        with tempfile.TemporaryFile() as errors:
            with connection.open(_sh(_SEND, remote), stderr=errors) as process:
                source = _Reported(process.stdout, f"{remote} from {connection.route.destination}")
                kind = source.read(1) if _skip_to_mark(source) else b""
                if kind == b"d":
                    broken = _unpacked(source, local, remote)
                elif kind == b"f":
                    _copied(source, staged)
                source.end()
            _check(connection, process, errors, f"read {remote!r}")
        if broken is not None:
            raise broken
        if kind == b"n":
            raise MissingFileError(remote, host=str(connection.route.destination))
        if kind == b"f":
            staged.replace(target)
    finally:
        staged.unlink(missing_ok=True)


def _skip_to_mark(source: _Reported) -> bool:
    """Read on until after the mark; False if it does not come."""
    said = b""
    for _ in range(MOST_BEFORE_MARK):
        byte = source.read(1)
        if not byte:
            return False
        said = said[-len(MARK) + 1 :] + byte
        if said == MARK:
            return True
    raise source.refused(f"more than {MOST_BEFORE_MARK >> 10} KiB before what was asked for")


def _unpacked(source: _Reported, directory: Path, remote: str) -> BackendError | None:
    """Unpack what a server sends; return what is wrong with it if it broke off.

    Raises:
        BackendError: it is something that no server should send.
    """
    from nemo_run.core.packaging._unpack import unpack

    directory.mkdir(parents=True, exist_ok=True)
    try:
        unpack(cast("IO[bytes]", source), directory)
    except PackagingError as err:
        refused = source.refused(f"{remote!r} as this: {err}")
        if not source.ended:
            raise refused from err
        return refused  # the exit code of the command tells why, unless it has none
    return None


def _copied(source: _Reported, path: Path) -> None:
    from nemo_run.core.packaging._unpack import room_bytes

    path.parent.mkdir(parents=True, exist_ok=True)
    left = room_bytes(path.parent)
    with path.open("wb") as sink:
        while block := source.read(BLOCK_BYTES):
            left -= len(block)
            if left < 0:
                raise source.refused("more than there is room for on the disk")
            sink.write(block)


def _receive_file(remote: str, size_bytes: int, mode: int, name: str) -> str:
    staged = f"{os.urandom(8).hex()}.tmp"
    return _sh(_RECEIVE_FILE, remote, str(size_bytes), f"{mode:o}", name, staged)


def _sh(script: str, *args: str) -> str:
    return render(["sh", "-c", script, "sh", *args])


def _check(
    connection: Connection, process: subprocess.Popen[bytes], errors: IO[bytes], what: str
) -> None:
    if process.returncode == 0:
        return
    errors.seek(0)
    said = errors.read(MOST_BEFORE_MARK).decode("utf-8", "replace").strip()
    last = said.splitlines()[-1] if said else f"exit code {process.returncode}"
    raise BackendError(
        f"Could not {what} on {connection.route.destination}: {last}.",
        backend="ssh",
        operation="transfer",
        detail=said,
    )


class _Reported(io.RawIOBase):
    """A stream that says now and then how much went through it; ``ended`` once it has been read."""

    def __init__(self, stream: IO[bytes] | None, what: str) -> None:
        if stream is None:
            raise ValueError("not a pipe")
        self._stream = stream
        self._what = what
        self._bytes = 0
        self.ended = False
        self._due = time.monotonic() + REPORT_S

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        self.ended = not data and size != 0
        self._count(len(data))
        return data

    def end(self) -> None:
        """Read the padding that may be left; a command whose output is not read does not end."""
        for _ in range(MOST_PADDING // BLOCK_BYTES):
            if not self.read(BLOCK_BYTES):
                return
        raise self.refused("more than was asked for")

    def refused(self, what: str) -> BackendError:
        return BackendError(
            f"Not copied, {self._what}: the server sent {what}.",
            backend="ssh",
            operation="transfer",
            detail=what,
        )

    def write(self, data: Any, /) -> int:
        self._stream.write(data)
        self._count(len(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._stream.close()

    def _count(self, count: int) -> None:
        self._bytes += count
        now = time.monotonic()
        if now >= self._due:
            self._due = now + REPORT_S
            log.info("%s: %.1f MB so far", self._what, self._bytes / 1e6)
