"""Commands and files on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nemo_run._files import write_whole
from nemo_run.core.tunnel._commands import RunOptions, collect, too_long
from nemo_run.core.tunnel._result import Result
from nemo_run.exceptions import BackendError, ConfigError

HOST = "localhost"
LOOK_S = 0.1


def run(text: str, options: RunOptions) -> Result:
    """Have a shell run ``text`` to its end.

    Raises:
        ConnectionLostError: it takes longer than it may; it is killed, with its children.
    """
    argv = [shutil.which("bash") or "/bin/sh", "-c", text]
    if options.pty:
        return Result(text, "", "", subprocess.run(argv, check=False).returncode)
    with subprocess.Popen(
        argv,
        stdin=options.stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = collect(process, options)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise too_long(text, HOST, options.timeout) from None
        except BaseException:
            _kill(process)
            raise
    return Result(text, out, err, process.returncode)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def copy(source: Path, target: Path) -> None:
    """Copy a file or what is in a directory; nothing if both are the same.

    Raises:
        ConfigError: there is nothing to copy.
        BackendError: the system does not let us.
    """
    if source.absolute() == target.absolute():
        return
    if not source.exists():
        raise ConfigError(f"{str(source)!r} cannot be copied: there is no such file or directory.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
    except OSError as err:
        raise BackendError(
            f"Could not copy {str(source)!r} to {str(target)!r}: {err}.", operation="transfer"
        ) from err


def write(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, mode=mode, sync=False)


def read(path: Path, offset: int, limit: int) -> bytes:
    """Return up to ``limit`` bytes of a file from ``offset`` on; none if there is no file yet."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:
        return b""


def follow(
    path: Path, *, offset: int, block_bytes: int, ended: Callable[[], bool]
) -> Iterator[bytes]:
    """Yield what is in a file from ``offset`` on, and what is appended until ``ended``."""
    while True:
        over = ended()  # asked before reading: what was written until the end is then in the file
        while data := read(path, offset, block_bytes):
            offset += len(data)
            yield data
        if over:
            return
        time.sleep(LOOK_S)
