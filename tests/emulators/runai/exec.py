"""Commands in pods, over the server's side of a WebSocket, as a Kubernetes API server has it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence

from tests.emulators.http import Request, Response
from tests.emulators.processes import PATH, Container

PROTOCOL = "v4.channel.k8s.io"
CLOSE_TIMEOUT_S = 10.0
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10


def answer(request: Request, container: Container, argv: Sequence[str]) -> Response:
    """Switch protocols, then run the command until it ends or the client goes."""
    return accepted(request, lambda connection: _Session(connection, container, argv).run())


def accepted(request: Request, talk: Callable[[socket.socket], None]) -> Response:
    """Switch to a WebSocket, and have ``talk`` use its connection."""
    key = request.headers["sec-websocket-key"].encode()
    accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
    return Response(
        talk,
        status=101,
        headers={
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": accept,
            "Sec-WebSocket-Protocol": PROTOCOL,
        },
    )


class Frames:
    """Messages on the server's side of a WebSocket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, data: bytes) -> None:
        self.frame(_BINARY, data)

    def close(self) -> None:
        self.frame(_CLOSE, b"")

    def ping(self, data: bytes) -> None:
        self.frame(_PING, data)

    def frame(self, kind: int, data: bytes) -> None:
        head = bytes([0x80 | kind])
        if len(data) < 126:
            head += bytes([len(data)])
        elif len(data) < 1 << 16:
            head += struct.pack("!BH", 126, len(data))
        else:
            head += struct.pack("!BQ", 127, len(data))
        with self._lock:
            self._connection.sendall(head + data)

    def receive(self) -> bytes | None:
        first, second = self._read(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._read(8))
        assert second & 0x80, "clients mask what they send"
        mask = self._read(4)
        data = self._read(length)
        if first & 0x0F == _CLOSE:
            return None
        repeated = (mask * (length // 4 + 1))[:length]
        number = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
        # An answer to a ping is nothing that the command is sent.
        return b"" if first & 0x0F == _PONG else number.to_bytes(length, "big")

    def _read(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._connection.recv(min(count, 1 << 16))
            if not part:
                raise ConnectionError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class _Session:
    def __init__(self, connection: socket.socket, container: Container, argv: Sequence[str]):
        self._frames = Frames(connection)
        # Its mounts and its root directory; what is left of it ends with the container.
        nsenter = shutil.which("nsenter")
        assert nsenter
        # Users other than root have made it in a namespace in which they are root.
        users = [] if os.getuid() == 0 else ["-U", "--preserve-credentials"]
        enter = [nsenter, "-t", str(container.pid), *users, "-m", "-r", "-w", "--", *argv]
        self._process = subprocess.Popen(
            enter,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": container.spec.env.get("PATH", PATH)},
        )

    def run(self) -> None:
        process = self._process
        readers = [
            threading.Thread(target=self._copy, args=(channel, stream), daemon=True)
            for channel, stream in ((_STDOUT, process.stdout), (_STDERR, process.stderr))
        ]
        for reader in readers:
            reader.start()
        feeder = threading.Thread(target=self._feed, daemon=True)
        feeder.start()
        with contextlib.suppress(OSError):
            self._frames.ping(b"still there?")  # as what is between us and a server may
        code = process.wait()
        for reader in readers:
            reader.join()
        status = {"status": "Success"}
        if code:
            status = {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": f"command terminated with non-zero exit code: {code}",
            }
        with contextlib.suppress(OSError):
            self._frames.send(bytes([_STATUS]) + json.dumps(status).encode())
            self._frames.close()
        # The handshake ends with the client's close. With input unread, the kernel would reset the
        # connection instead, and the client could lose what it was sent last.
        feeder.join(CLOSE_TIMEOUT_S)

    def _copy(self, channel: int, stream) -> None:
        with stream, contextlib.suppress(OSError):
            while data := stream.read1(1 << 16):
                self._frames.send(bytes([channel]) + data)

    def _feed(self) -> None:
        """Pass on what comes; a client that goes away ends the command."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            while (message := self._frames.receive()) is not None:
                if message[:1] == bytes([_STDIN]):
                    with contextlib.suppress(BrokenPipeError):
                        stdin.write(message[1:])
                        stdin.flush()
        except OSError:
            pass
        finally:
            if self._process.poll() is None:
                self._process.kill()
            with contextlib.suppress(OSError):
                stdin.close()
