"""The client's side of a WebSocket (RFC 6455): binary messages, a sub-protocol, nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from collections.abc import Mapping
from urllib.parse import urlsplit

from nemo_run._clients.wire import Route, Wire

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_MOST_HEADER_BYTES = 1 << 16


class HandshakeError(Exception):
    """The server did not switch protocols.

    Attributes:
        status, body: of its answer.
    """

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body


class WebSocket:
    """A connection; one thread may send while another receives. What goes wrong is an OSError."""

    def __init__(
        self,
        url: str,
        *,
        protocol: str,
        headers: Mapping[str, str],
        timeout_s: float,
        connect_s: float | None = None,
        route: Route | None = None,
    ) -> None:
        """Connect to an ``http`` or ``https`` URL, waiting for each step ``connect_s`` if given.

        Raises:
            HandshakeError: the server answered otherwise.
        """
        parts = urlsplit(url)
        self._wire = Wire(url, timeout_s=connect_s or timeout_s, route=route)
        try:
            self._unread = bytearray()
            self._shake_hands(parts.netloc, f"{parts.path}?{parts.query}", protocol, headers)
            self._wire.limit(timeout_s)
        except BaseException:
            self._wire.close()
            raise

    def close(self) -> None:
        """End the connection; a call that waits on it in another thread fails."""
        self._wire.close()

    def wait(self, timeout_s: float) -> bool:
        """Tell whether something comes within that time."""
        return bool(self._unread) or self._wire.wait(timeout_s)

    def send(self, data: bytes) -> None:
        """Send one message."""
        self._wire.send(_frame(_BINARY, data))

    def ping(self) -> None:
        """Ask whether the server is there, which keeps those in between from forgetting us."""
        self._wire.post(_frame(_PING, b""))

    def receive(self) -> bytes | None:
        """Return the next message, None when the server is done.

        It is empty where the server only asks whether we are there, or says that it is.
        """
        message = b""
        while True:
            first, second = self._read(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", self._read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self._read(8))
            data = self._read(length)
            kind = first & 0x0F
            if kind == _CLOSE:
                return None
            if kind == _PING:
                self._wire.post(_frame(_PONG, data))
            if kind in (_PING, _PONG) and not message:
                return message
            if kind in (_CONTINUATION, _TEXT, _BINARY):
                message += data
                if first & 0x80:
                    return message

    def _shake_hands(
        self, host: str, target: str, protocol: str, headers: Mapping[str, str]
    ) -> None:
        key = base64.b64encode(os.urandom(16))
        lines = [
            f"GET {target} HTTP/1.1",
            f"Host: {host}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key.decode()}",
            f"Sec-WebSocket-Protocol: {protocol}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._wire.send("\r\n".join([*lines, "", ""]).encode("ascii"))
        status, answer = self._head()
        if status != 101:
            length = int(answer.get("content-length", 0))
            raise HandshakeError(status, self._read(min(length, 1000)).decode("utf-8", "replace"))
        expected = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
        if answer.get("sec-websocket-accept") != expected:
            raise HandshakeError(status, "the answer is not that of a WebSocket")

    def _head(self) -> tuple[int, dict[str, str]]:
        words = self._line().split(" ", 2)
        if len(words) < 2 or not words[1].isdecimal():
            raise ConnectionError(f"no HTTP: {' '.join(words)!r}")
        answer = {}
        while line := self._line():
            name, _, value = line.partition(":")
            answer[name.lower()] = value.strip()
        return int(words[1]), answer

    def _line(self) -> str:
        while (end := self._unread.find(b"\n")) < 0:
            if len(self._unread) > _MOST_HEADER_BYTES:
                raise ConnectionError("no HTTP: the head does not end")
            self._fill()
        return self._take(end + 1).decode("latin-1").strip()

    def _read(self, count: int) -> bytes:
        while len(self._unread) < count:
            self._fill()
        return self._take(count)

    def _take(self, count: int) -> bytes:
        data = bytes(self._unread[:count])
        del self._unread[:count]
        return data

    def _fill(self) -> None:
        data = self._wire.receive()
        if not data:
            raise ConnectionError("the connection was closed")
        self._unread += data


def _frame(kind: int, data: bytes) -> bytes:
    head = bytes([0x80 | kind])
    if len(data) < 126:
        head += bytes([0x80 | len(data)])
    elif len(data) < 1 << 16:
        head += struct.pack("!BH", 0x80 | 126, len(data))
    else:
        head += struct.pack("!BQ", 0x80 | 127, len(data))
    mask = os.urandom(4)
    return head + mask + _masked(data, mask)


def _masked(data: bytes, mask: bytes) -> bytes:
    # As one large number: bytewise this would take a hundred times as long.
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    number = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
    return number.to_bytes(len(data), "big")
