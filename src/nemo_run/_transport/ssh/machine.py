"""Where the processes of this user on this machine meet: sockets, locks, and what ssh says."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nemo_run._backends.local.supervisor.disk import machine_directory
from nemo_run._files import make_private_directory
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import ConfigError

LOCK_WAIT_S = 300.0
PAUSE_S = 0.05

# What we speak of PROTOCOL.mux, which is in OpenSSH's sources.
MUX_VERSION = 4
MUX_HELLO = 0x00000001
MUX_ALIVE_CHECK = 0x10000004
MUX_ALIVE = 0x80000005
MUX_TIMEOUT_S = 15.0


def directory(below: bytes = b"") -> Path:
    """Return a directory on this machine, for this user only, whose name leaves room for sockets'.

    A name of a socket has some hundred bytes. A home directory may be long, and on another machine.
    ``below`` is for tests; otherwise it is where this user's processes meet.

    Raises:
        ConfigError: another user has made it first.
    """
    try:
        return make_private_directory(Path(os.fsdecode(machine_directory(below))) / "ssh")
    except PermissionError as err:
        raise ConfigError(
            f"Connections cannot be kept in {err.filename}: {err.strerror}. Have it removed by its "
            "owner, or by an administrator."
        ) from err


@contextmanager
def log_file() -> Iterator[str]:
    """Have an empty file while entered."""
    descriptor, name = tempfile.mkstemp(prefix="log-", dir=directory())
    os.close(descriptor)
    try:
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def locked(name: str, kind: int, *, wait_s: float = LOCK_WAIT_S) -> Iterator[bool]:
    """Hold a lock among the processes of this machine while entered; tell whether we got it."""
    descriptor = os.open(directory() / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        waiting = Waiting(PAUSE_S, PAUSE_S, timeout_s=wait_s)
        while not (got := _try_lock(descriptor, kind)) and not waiting.is_over:
            waiting.pause()
        yield got
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def master_pid(path: str) -> int | None:
    """Return the process that holds the connection behind a socket; None if there is none.

    It has answered by then, so that it is not one about to end because the network did.
    """
    with socket.socket(socket.AF_UNIX) as way:
        way.settimeout(MUX_TIMEOUT_S)
        try:
            way.connect(path)
            way.sendall(_packet(MUX_HELLO, MUX_VERSION) + _packet(MUX_ALIVE_CHECK, 0))
            with way.makefile("rb") as answers:
                while words := _words(answers):
                    if words[0] == MUX_ALIVE:
                        return words[2]
        except OSError:  # not there, not listening, gone while we asked, or without an answer
            return None
    return None


def _packet(*words: int) -> bytes:
    body = struct.pack(f">{len(words)}I", *words)
    return struct.pack(">I", len(body)) + body


def _words(answers: IO[bytes]) -> tuple[int, ...]:
    """Return the next packet; nothing if the other end has closed."""
    head = answers.read(4)
    body = answers.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
    count = len(body) // 4
    return struct.unpack(f">{count}I", body[: count * 4])
