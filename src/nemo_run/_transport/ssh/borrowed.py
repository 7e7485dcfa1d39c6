"""Sessions that programs have made themselves: whatever has a ``run`` in the words of Fabric.

Nothing but ``run`` is needed. Where such a session has ``put`` and ``get`` they carry files, since
what is secret should not be an argument of a command; otherwise files travel in commands.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import logging
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from nemo_run._shell import render
from nemo_run._transport.ssh import commands
from nemo_run._transport.ssh.commands import as_bytes
from nemo_run._transport.ssh.sessions import Way
from nemo_run.exceptions import (
    BackendError,
    ConnectionLostError,
    MissingFileError,
    NemoRunError,
    PackagingError,
)

log = logging.getLogger(__name__)

IN_A_COMMAND = 60_000
"""Bytes of a file that one command carries. Linux takes twice as much."""
BLOCK_BYTES = 1 << 20
LOOK_S = 2.0

# A file that grows from nothing, for its owner only; it gets its name when all of it is there.
_APPEND = 'umask 077; mkdir -p -- "$(dirname -- "$1")" && printf %s "$2" | base64 -d >> "$1"'
_NAME = (
    'chmod "$3" "$1" && if [ -d "$2" ]; then mv -f -- "$1" "${2%/}/$4"; else mv -f -- "$1" "$2"; fi'
)
_KIND = (
    'if [ -d "$1" ]; then echo directory; elif [ -e "$1" ]; then echo file; else echo nothing; fi'
)
_READ = 'if [ -e "$1" ]; then tail -c +"$2" -- "$1" | head -c "$3" | base64; fi'


@dataclass(frozen=True)
class Borrowed(Way):
    """A way by a session of the program's own.

    Attributes:
        session: what has ``run``, and perhaps ``put`` and ``get``.
        host: what the place is called in messages.
    """

    session: Any
    host: str

    def perform(self, text: str, hide: bool | str | None, words: Mapping[str, Any]) -> Any:
        """Have the session run a command, with the words that the caller used."""
        said = {name: value for name, value in words.items() if name != "input"}
        if "timeout" in said and not _takes(self.session.run, "timeout"):
            del said["timeout"]
        data = words.get("input")
        if not data:
            return self._told(text, hide, said)
        with self._staged(as_bytes(data)) as path:
            return self._told(f"{{ {text}\n}} < {render([path])}", hide, said)

    def put(self, local: str | Path, remote: str = "") -> None:
        source = Path(local)
        target = remote or source.name
        if source.is_dir():
            with tempfile.TemporaryFile() as archive:
                with tarfile.open(fileobj=archive, mode="w") as packed:
                    packed.add(source, arcname=".")
                archive.seek(0)
                self._sh('mkdir -p -- "$1"', target)
                self.send(render(["tar", "-xof", "-", "-C", target]), archive)
            return
        if not source.is_file():
            raise MissingFileError(str(local))
        self._place(source, target, mode=source.stat().st_mode & 0o777, name=source.name)

    def get(self, remote: str, local: str | Path = "") -> None:
        target = Path(local or PurePosixPath(remote).name)
        kind = self._sh(_KIND, remote).strip()
        if kind == "nothing":
            raise MissingFileError(remote, host=self.host)
        if kind == "file":
            self._fetch(remote, target / PurePosixPath(remote).name if target.is_dir() else target)
            return
        packed = self._new_name()
        try:
            self._sh('umask 077; tar -cf "$1" -C "$2" .', packed, remote)
            with tempfile.TemporaryDirectory() as directory:
                archive = Path(directory) / "archive.tar"
                self._fetch(packed, archive)
                _extract(archive, target)
        finally:
            self._forget(packed)

    def write(self, remote: str, data: bytes, *, mode: int) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            self._place(Path(file.name), remote, mode=mode, name=PurePosixPath(remote).name)

    def read(self, remote: str, offset: int, limit: int) -> bytes:
        return base64.b64decode(self._sh(_READ, remote, str(offset + 1), str(limit)))

    def send(self, text: str, stream: BinaryIO) -> None:
        with tempfile.NamedTemporaryFile() as file:
            shutil.copyfileobj(stream, file, BLOCK_BYTES)
            file.flush()
            path = self._new_name()
            try:
                self._carry(Path(file.name), path)
                self._run(f"{{ {text}\n}} < {render([path])}")
            finally:
                self._forget(path)

    def follow(self, remote: str, *, offset: int, ended: Callable[[], bool]) -> Iterator[bytes]:
        while True:
            over = ended()  # asked before reading: what was written until the end is then there
            try:
                while data := self.read(remote, offset, BLOCK_BYTES):
                    offset += len(data)
                    yield data
            except ConnectionLostError as err:
                log.warning("%s Trying again in %.0f s.", err, LOOK_S)
            else:
                if over:
                    return
            time.sleep(LOOK_S)

    def _told(self, text: str, hide: bool | str | None, words: Mapping[str, Any]) -> Any:
        try:
            return self.session.run(text, hide=hide, warn=True, **words)
        except (TypeError, NemoRunError):
            raise
        except Exception as err:
            raise ConnectionLostError(
                f"The session of {self.host} could not run a command: {type(err).__name__}: {err}. "
                "The command may have run.",
                operation="run",
                detail=str(err),
            ) from err

    def _run(self, text: str) -> str:
        done = commands.checked(self._told(text, True, {}), host=self.host, warn=False)
        return str(done.stdout)

    def _sh(self, script: str, *args: str) -> str:
        return self._run(render(["sh", "-c", script, "sh", *args]))

    @contextlib.contextmanager
    def _staged(self, data: bytes) -> Iterator[str]:
        """Have a file there while entered, for its owner only."""
        path = self._new_name()
        try:
            with tempfile.NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                self._carry(Path(file.name), path)
            yield path
        finally:
            self._forget(path)

    def _place(self, source: Path, target: str, *, mode: int, name: str) -> None:
        """Copy a file to a name beside its own, and give it that when all of it is there."""
        staged = f"{target.rstrip('/')}.{os.urandom(8).hex()}.tmp"
        self._sh('mkdir -p -- "$(dirname -- "$1")"', staged)
        try:
            self._carry(source, staged)
            self._sh(_NAME, staged, target, f"{mode:o}", name)
        except BaseException:
            self._forget(staged)
            raise

    def _carry(self, source: Path, path: str) -> None:
        """Copy a file to a path whose directory is there."""
        if hasattr(self.session, "put"):
            self._sh('umask 077; : > "$1"', path)
            self._moved(self.session.put, str(source), path)
            return
        with source.open("rb") as file:
            block = file.read(IN_A_COMMAND * 3 // 4)
            while True:
                self._sh(_APPEND, path, base64.b64encode(block).decode())
                block = file.read(IN_A_COMMAND * 3 // 4)
                if not block:
                    return

    def _fetch(self, remote: str, target: Path) -> None:
        """Copy a file here, to a name beside its own first."""
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = target.with_name(f".{target.name[:100]}.{os.urandom(8).hex()}.tmp")
        try:
            if hasattr(self.session, "get"):
                self._moved(self.session.get, remote, str(staged))
            else:
                with staged.open("wb") as sink:
                    while data := self.read(remote, sink.tell(), BLOCK_BYTES):
                        sink.write(data)
            staged.replace(target)
        finally:
            staged.unlink(missing_ok=True)

    def _moved(self, move: Callable[[str, str], object], source: str, target: str) -> None:
        try:
            move(source, target)
        except (TypeError, NemoRunError):
            raise
        except Exception as err:
            raise BackendError(
                f"The session of {self.host} could not copy {source!r} to {target!r}: "
                f"{type(err).__name__}: {err}.",
                operation="transfer",
                detail=str(err),
            ) from err

    def _new_name(self) -> str:
        return f"/tmp/nemo_run-{os.urandom(16).hex()}"

    def _forget(self, path: str) -> None:
        with contextlib.suppress(BackendError):
            self._sh('rm -f -- "$1"', path)


def _takes(function: Any, word: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(each.name == word or each.kind is each.VAR_KEYWORD for each in parameters)


def _extract(archive: Path, directory: Path) -> None:
    from nemo_run.core.packaging._unpack import unpack

    directory.mkdir(parents=True, exist_ok=True)
    try:
        with archive.open("rb") as file:
            unpack(file, directory)
    except PackagingError as err:
        raise BackendError(
            f"Not copied: {err}", backend="ssh", operation="transfer", detail=str(err)
        ) from err
