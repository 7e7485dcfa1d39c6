"""The way to the server of a devspace: where it is now, and how bytes get there."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_run._files import write_whole
from nemo_run._transport.ssh import openssh
from nemo_run.core.tunnel._node_server import KEYS, SERVER
from nemo_run.core.tunnel.client import SSHTunnel, Tunnel
from nemo_run.devspace import _alias
from nemo_run.devspace._records import Record, public_key
from nemo_run.exceptions import BackendError, BackendUnavailableError

BLOCK_BYTES = 1 << 16
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*\$?")
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]+={0,3}")
CHECK_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Note:
    """What the server of a devspace says of itself."""

    label: str
    user: str
    node: str
    address: str
    port: int
    reverse: bool
    host_key: str
    private: str
    workspace: str

    def __post_init__(self) -> None:
        """Refuse what another machine must not get into ssh's settings, or onto a terminal.

        Raises:
            ValueError: a value has a form that servers of ours do not write.
        """
        ipaddress.ip_address(self.address)
        good = (
            _USER.fullmatch(self.user)
            and _KEY.fullmatch(self.host_key)
            and type(self.port) is int
            and 0 < self.port < 1 << 16
            and (self.label + self.node + self.workspace).isprintable()
            and (not self.workspace or self.workspace.startswith("/"))
        )
        if not good:
            raise ValueError("not the note of a server of ours")


def read_note(tunnel: Tunnel, directory: str) -> Note | None:
    """Return what the server in ``directory`` says of itself; None if none is up.

    Raises:
        BackendError: the place cannot be reached.
    """
    data = tunnel.read(f"{directory}/{SERVER}")
    try:
        return Note(**json.loads(data)) if data else None
    except (TypeError, ValueError, RecursionError):
        return None


def find_server(record: Record) -> Note | None:
    """Return where the server of a devspace is; None if it is not up.

    The note of an earlier devspace of the same name, which was killed, is not taken for it.
    """
    note = read_note(record.tunnel, record.directory)
    return note if note is not None and note.label == record.label else None


def know(record: Record, note: Note) -> None:
    """Have ssh know the server's key and user."""
    line = f"{record.alias} {note.host_key}\n".encode()
    _replace(record.known_hosts, line)
    _replace(record.home / "user", note.user.encode())


def _replace(path: Path, data: bytes) -> None:
    if not path.exists() or path.read_bytes() != data:
        write_whole(path, data)


def let_in(record: Record) -> None:
    """Have the server let in this machine's key.

    Able to write there is who could have launched the devspace.
    """
    path, line = f"{record.directory}/{KEYS}", public_key(record.name)
    known = record.tunnel.read(path).decode("utf-8", "replace").splitlines()
    if line not in known:
        record.tunnel.write(path, "\n".join([*known, line, ""]))


def argv(record: Record, command: Sequence[str] = (), *options: str) -> list[str]:
    """Return the command that uses a devspace by its alias, without the user's own config."""
    config = ["-F", str(_alias.config_path())]
    return [openssh.find_program(), *config, *options, "--", record.alias, *command]


def check(record: Record) -> None:
    """Log in once.

    Raises:
        BackendError: that does not work; says what to do.
    """
    asked = argv(record, ["true"], "-o", "BatchMode=yes", "-n")
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
        )
        said, code = done.stderr.strip(), done.returncode
    except subprocess.TimeoutExpired:
        said, code = f"no answer within {CHECK_TIMEOUT_S:g} s", 1
    if code:
        raise BackendUnavailableError(
            f"Devspace {record.name!r} runs and cannot be reached: {said or 'ssh said nothing'}. "
            "Where login nodes may not connect to compute nodes, launch it with --reverse.",
            backend="devspace",
            operation="connect",
            detail=said,
        )


def proxy(record: Record) -> int:
    """Be the connection of an ssh client: pass bytes between our streams and the server.

    Asks each time where the server is, so that an alias holds when a job was started again.

    Raises:
        BackendError: the server is not up, or cannot be reached.
    """
    note = find_server(record)
    if note is None:
        raise BackendUnavailableError(
            f"Devspace {record.name!r} is not up. See: nemorun devspace list",
            backend="devspace",
            operation="connect",
        )
    know(record, note)
    tunnel = record.tunnel
    if isinstance(tunnel, SSHTunnel):
        words = tunnel.stdio_forward(note.address, note.port)
        os.execv(words[0], words)
    return _relay(note.address, note.port)


def _relay(host: str, port: int) -> int:
    try:
        far = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
    except OSError as err:
        raise BackendError(
            f"{host}:{port} cannot be reached: {err}.", backend="devspace", operation="connect"
        ) from err
    far.settimeout(None)
    with far:
        threading.Thread(target=_send, args=(far,), daemon=True).start()
        while data := far.recv(BLOCK_BYTES):
            while data:
                data = data[os.write(sys.stdout.fileno(), data) :]
    return 0


def _send(far: socket.socket) -> None:
    while data := os.read(sys.stdin.fileno(), BLOCK_BYTES):
        far.sendall(data)
    far.shutdown(socket.SHUT_WR)
