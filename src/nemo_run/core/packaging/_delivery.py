"""Bring an archive to the far side of a connection, once, and from where an attempt broke off."""

from __future__ import annotations

import io
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, BinaryIO, Protocol, cast

from nemo_run._shell import render
from nemo_run.core.packaging._store import StagedCode
from nemo_run.exceptions import PackagingError

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger(__name__)

_PIECE_BYTES = 256 * 1024
# A bar that is gone before it can be read is not shown.
_PATIENCE_S = 1.0
_REPORT_S = 5.0
_OLD_DAYS = 30


class FarSide(Protocol):
    """Where commands can be run, by a POSIX shell, and bytes be sent to one of them."""

    def run(self, command: str) -> str:
        """Run a command and return what it printed; raise if it failed."""
        ...

    def send(self, command: str, stream: BinaryIO) -> None:
        """Run a command with ``stream``, from where it is, as its input; raise if it failed."""
        ...


def deliver(staged: StagedCode, far: FarSide, directory: str, *, label: str = "") -> str:
    """Bring an archive into a directory of the far side and return its path there.

    It is called ``<sha256>.tar.gz`` and has that name only once it is complete, so:

    1. An archive that is there already, from whatever job, is not sent again, if its bytes still
       have its hash; else it is replaced.
    2. An attempt that broke off is continued where it ended.
    3. Several may deliver the same archive at once.

    Others of that directory that are a month old are removed: nothing there is needed for longer
    than it takes to unpack it.

    Raises:
        PackagingError: what arrived is not what was sent.
    """
    path = f"{directory.rstrip('/')}/{staged.sha256}.tar.gz"
    # The last word: a login shell may print a greeting.
    there = far.run(_what_is_there(directory, staged.sha256)).split()[-1]
    if there == "whole":
        return path
    size, _, begun = there.partition(":")
    offset = int(size) if int(size) <= staged.size_bytes else 0
    for start, beginning in [(offset, f"{path}.{begun}" if offset else ""), (0, "")]:
        part = f"{path}.{os.urandom(8).hex()}.part"
        with opened(staged.archive, label=label, offset=start) as stream:
            far.send(_received(part, beginning, start), stream)
        if far.run(_settled(part, beginning, path, staged.sha256)).split()[-1] == "whole":
            return path
        if not start:
            break
        # What was there of an earlier attempt was not the beginning of it.
    raise PackagingError(
        f"{str(staged.archive)!r} did not arrive whole at {path!r}. Is the disk there full?"
    )


def _what_is_there(directory: str, sha256: str) -> str:
    """Return the command that says ``whole``, or how long the longest part is, and its name."""
    archive = f"{directory.rstrip('/')}/{sha256}.tar.gz"
    path = render([archive])
    ours = ["-type", "f", "-name", f"{'[0-9a-f]' * 64}.tar.gz*", "!", "-name", f"{sha256}.*"]
    old = render(["find", directory, *ours, "-mtime", f"+{_OLD_DAYS}", "-exec", "rm", "{}", "+"])
    return (
        f"mkdir -p {render([directory])} || exit; {old} 2>/dev/null; "
        f"{remove_unless_intact(archive)}; "
        f"if [ -f {path} ]; then echo whole; else size=0; name=; for part in {path}.*.part; do "
        '[ -f "$part" ] || continue; own=$(wc -c < "$part"); [ "$own" -gt "$size" ] || continue; '
        'size=$((own)); name=${part##*.tar.gz.}; done; echo "$size:$name"; fi'
    )


def _received(part: str, beginning: str, size_bytes: int) -> str:
    """Return the command that makes a part of its input, after what there was of another.

    That one stays as it is: another process may still be writing to it.
    """
    # Code is for its owner to read, like all else of a job.
    if not size_bytes:
        return f"umask 077; cat > {render([part])}"
    first = render(["head", "-c", str(size_bytes), beginning])
    return f"umask 077; {{ {first}; cat; }} > {render([part])}"


def _settled(part: str, beginning: str, path: str, sha256: str) -> str:
    """Return the command that makes an archive of a part if it is whole, or else removes it.

    Where there is an archive, no parts are needed any more.
    """
    begun, whole = render([part]), render([path])
    return (
        f"if [ ! -f {whole} ]; then "
        f'if [ "{_sum(begun)}" = {sha256} ]; then mv {begun} {whole}; fi; fi; '
        f"if [ -f {whole} ]; then rm -f {whole}.*.part; echo whole; "
        f"else rm -f {begun} {render([beginning])}; echo broken; fi"
    )


def remove_unless_intact(archive: str) -> str:
    """Return the command that removes an archive whose bytes do not have the hash in its name."""
    path = render([archive])
    sha256 = render([PurePosixPath(archive).name.removesuffix(".tar.gz")])
    return f'[ ! -f {path} ] || [ "{_sum(path)}" = {sha256} ] || rm -f {path}'


def _sum(path: str) -> str:
    """Return shell text that stands for the hash of a file, by what there is to make one."""
    ways = f"sha256sum < {path} || shasum -a 256 < {path} || openssl dgst -sha256 -r < {path}"
    return f"$( ({ways}) 2>/dev/null | cut -c 1-64)"


def upload(
    archive: Path,
    command: Sequence[str] | Callable[[BinaryIO], object],
    *,
    label: str = "",
    offset: int = 0,
) -> None:
    """Stream an archive into the input of a command, or into a function that reads a file.

    What takes long is shown: by a bar on a terminal, elsewhere by a line now and then.

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
    """Give an archive as a file to read; how much of it has been read is shown if that is slow."""
    size_bytes = archive.stat().st_size
    with archive.open("rb") as file, _shown(label or archive.name, size_bytes) as moved:
        file.seek(offset)
        with io.BufferedReader(_Watched(file, moved), _PIECE_BYTES) as stream:
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
    """A file that says where it is read."""

    def __init__(self, file: BinaryIO, moved: Callable[[int], None]) -> None:
        self._file = file
        self._moved = moved

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Buffer) -> int:
        count = cast("io.BufferedReader", self._file).readinto(buffer)
        self._moved(self._file.tell())
        return count


@contextmanager
def _shown(label: str, size_bytes: int) -> Iterator[Callable[[int], None]]:
    """Give a function to be told how far it is; only what takes long is shown."""
    if not sys.stderr.isatty():
        yield _lines(label, size_bytes)
        return
    begin = time.monotonic()
    with ExitStack() as shown:
        update: Callable[[int], None] | None = None

        def moved(done: int) -> None:
            nonlocal update
            if update is None and time.monotonic() - begin > _PATIENCE_S:
                update = _drawn(shown, label, size_bytes)
            if update:
                update(done)

        yield moved


def _lines(label: str, size_bytes: int) -> Callable[[int], None]:
    due = time.monotonic() + _REPORT_S

    def moved(done: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _REPORT_S
            log.info("%s: %.0f of %.0f MB so far", label, done / 1e6, size_bytes / 1e6)

    return moved


def _drawn(shown: ExitStack, label: str, size_bytes: int) -> Callable[[int], None]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    progress = Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True))
    shown.enter_context(progress)
    task = progress.add_task(label, total=size_bytes)
    return lambda done: progress.update(task, completed=done)
