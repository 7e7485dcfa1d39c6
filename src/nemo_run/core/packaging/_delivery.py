"""Bring an archive to the far side of a connection, once, and from where an attempt broke off."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, BinaryIO, Protocol, cast

from nemo_run._shell import render
from nemo_run.core.packaging._store import StagedCode
from nemo_run.exceptions import PackagingError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PIECE_BYTES = 256 * 1024
# Nobody wants to see a bar that is gone before it can be read.
_PATIENCE_S = 1.0


class FarSide(Protocol):
    """Where commands can be run, by a POSIX shell, and bytes be sent to one of them."""

    def run(self, command: str) -> str:
        """Run a command and return what it printed; raise if it failed."""
        ...

    def send(self, command: str, stream: BinaryIO) -> None:
        """Run a command with ``stream`` as its input; raise if it failed."""
        ...


def deliver(staged: StagedCode, far: FarSide, directory: str, *, label: str = "") -> str:
    """Bring an archive into a directory of the far side and return its path there.

    It is called ``<sha256>.tar.gz`` and has that name only once it is complete, so:

    1. An archive that is there already, from whatever job, is not sent again.
    2. An attempt that broke off is continued where it ended.
    3. Several may deliver the same archive at once.

    Raises:
        PackagingError: what arrived is not what was sent.
    """
    path = f"{directory.rstrip('/')}/{staged.sha256}.tar.gz"
    # The last word: a shell may greet whoever comes in.
    there = far.run(_what_is_there(directory, path)).split()[-1]
    if there == "whole":
        return path
    attempts = [(f"{path}.part", int(there)), (f"{path}.{os.urandom(8).hex()}.part", 0)]
    for part, offset in attempts:
        with opened(staged.archive, label=label, offset=offset) as stream:
            far.send(f"cat >> {render([part])}", stream)
        if far.run(_settled(part, path, staged.sha256)).split()[-1] == "whole":
            return path
        # What was there of an earlier attempt, or somebody at it at the same time, spoiled it.
    raise PackagingError(
        f"{str(staged.archive)!r} did not arrive whole at {path!r}. Is the disk there full?"
    )


def _what_is_there(directory: str, path: str) -> str:
    whole, part = render([path]), render([f"{path}.part"])
    return (
        f"mkdir -p {render([directory])} && if [ -f {whole} ]; then echo whole; "
        f"elif [ -f {part} ]; then wc -c < {part}; else echo 0; fi"
    )


def _settled(part: str, path: str, sha256: str) -> str:
    """Return the command that makes an archive of a part if it is whole, or else removes it."""
    begun, whole = render([part]), render([path])
    # Checked and named is a copy: somebody else may still have the part open, to write to it.
    copy = render([f"{path}.{os.urandom(8).hex()}.tmp"])
    return (
        f"if [ ! -f {whole} ]; then cp {begun} {copy} 2>/dev/null; "
        f"sum=$( (sha256sum < {copy} || shasum -a 256 < {copy} || openssl dgst -sha256 -r "
        f"< {copy}) 2>/dev/null | cut -c 1-64); "
        f'if [ "$sum" = {sha256} ]; then mv {copy} {whole}; fi; fi; '
        f"rm -f {begun} {copy}; if [ -f {whole} ]; then echo whole; else echo broken; fi"
    )


def upload(
    archive: Path,
    command: Sequence[str] | Callable[[BinaryIO], object],
    *,
    label: str = "",
    offset: int = 0,
) -> None:
    """Stream an archive into the input of a command, or into a function that reads a file.

    On a terminal, a bar shows how far it is if it takes long.

    Raises:
        PackagingError: the command failed.
    """
    with opened(archive, label=label, offset=offset) as stream:
        if callable(command):
            command(stream)
        else:
            _into_command(stream, command, archive)


@contextmanager
def opened(archive: Path, *, label: str = "", offset: int = 0) -> Iterator[BinaryIO]:
    """Give an archive as a file to read; on a terminal, how much has been read is shown."""
    size_bytes = archive.stat().st_size
    with archive.open("rb") as file, _bar(label or archive.name, size_bytes, offset) as advance:
        file.seek(offset)
        with io.BufferedReader(_Watched(file, advance), _PIECE_BYTES) as stream:
            yield stream


def _into_command(stream: BinaryIO, command: Sequence[str], archive: Path) -> None:
    with TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
        )
        # A command that ends early says why by its exit code.
        with suppress(BrokenPipeError), cast("IO[bytes]", process.stdin) as pipe:
            shutil.copyfileobj(stream, pipe, _PIECE_BYTES)
        if process.wait():
            errors.seek(0)
            said = os.fsdecode(errors.read()).strip()
            raise PackagingError(
                f"{str(archive)!r} could not be sent: {command[0]!r} ended with exit code "
                f"{process.returncode}. {said}".rstrip()
            )


class _Watched(io.RawIOBase):
    """A file that says how much was read of it."""

    def __init__(self, file: BinaryIO, advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        count = cast("io.BufferedReader", self._file).readinto(buffer)
        self._advance(count)
        return count


@contextmanager
def _bar(label: str, size_bytes: int, offset: int) -> Iterator[Callable[[int], None]]:
    """Give a function to be told of progress; it draws only what takes long, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    begin = time.monotonic()
    done = offset
    with ExitStack() as shown:
        update: Callable[[int], None] | None = None

        def advance(count: int) -> None:
            nonlocal done, update
            done += count
            if update is None and time.monotonic() - begin > _PATIENCE_S:
                update = _drawn(shown, label, size_bytes)
            if update:
                update(done)

        yield advance


def _drawn(shown: ExitStack, label: str, size_bytes: int) -> Callable[[int], None]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    progress = Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True))
    shown.enter_context(progress)
    task = progress.add_task(label, total=size_bytes)
    return lambda done: progress.update(task, completed=done)
