"""The protocol between OpenSSH's shared connection and those who use it, as far as we speak it.

It is written down in ``PROTOCOL.mux`` of OpenSSH's sources.
"""

from __future__ import annotations

import socket
import struct
from typing import IO

VERSION = 4
HELLO = 0x00000001
ALIVE_CHECK = 0x10000004
ALIVE = 0x80000005
TIMEOUT_S = 15.0


def master_pid(path: str) -> int | None:
    """Return the process that holds the connection behind a socket; None if there is none.

    It has answered by then, so that it is not one about to end because the network did.
    """
    with socket.socket(socket.AF_UNIX) as way:
        way.settimeout(TIMEOUT_S)
        try:
            way.connect(path)
            way.sendall(_packet(HELLO, VERSION) + _packet(ALIVE_CHECK, 0))
            with way.makefile("rb") as answers:
                while words := _words(answers):
                    if words[0] == ALIVE:
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
