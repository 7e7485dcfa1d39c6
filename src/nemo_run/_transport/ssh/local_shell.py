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
from nemo_run._transport.ssh import commands, terminal
from nemo_run._transport.ssh.exchange import collect
from nemo_run._transport.ssh.options import RunOptions
from nemo_run._transport.ssh.result import Result
from nemo_run.exceptions import BackendError, MissingFileError

HOST = "localhost"
LOOK_S = 0.1


def run(text: str, options: RunOptions) -> Result:
    """Have a shell run ``text`` to its end.

    Raises:
        ConnectionLostError: it takes longer than it may; it is killed, with its children.
    """
    shell = options.shell or shutil.which("bash") or "/bin/sh"
    argv = [shell, "-c", text]
    env = None
    if options.env or options.replace_env:
        env = {**({} if options.replace_env else os.environ), **options.env}
    try:
        code, out, err = _run(argv, options, env)
    except subprocess.TimeoutExpired:
        raise commands.too_long(text, HOST, options) from None
    return commands.result(text, out, err, code, options, shell=shell)


def _run(argv: list[str], options: RunOptions, env: dict[str, str] | None) -> tuple[int, str, str]:
    if options.pty:
        code, out = terminal.run(argv, options, env=env)
        return code, out, ""
    with subprocess.Popen(
        argv,
        stdin=options.stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=env,
    ) as process:
        try:
            out, err = collect(process, options)
        except BaseException:
            _kill(process)
            raise
    return process.returncode, out, err


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def copy(source: Path, target: Path) -> None:
    """Copy a file or what is in a directory; nothing if both are the same.

    Raises:
        MissingFileError: there is nothing to copy.
        BackendError: the system does not let us.
    """
    if source.absolute() == target.absolute():
        return
    if not source.exists():
        raise MissingFileError(str(source))
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
