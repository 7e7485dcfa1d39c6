"""Commands in pods over a WebSocket: servers that stall, refuse, redirect or talk nonsense."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests import patience

from nemo_run._backends.kubernetes.exec import PROTOCOL, CommandError, talk
from nemo_run._transport.websocket import HandshakeError, WebSocket

Act = Callable[[socket.socket], None]
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@contextlib.contextmanager
def server(act: Act) -> Iterator[str]:
    """Have ``act`` do what it likes with each connection, and return the server's URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            act(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def head(connection: socket.socket) -> bytes:
    """Return the head of a request."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += connection.recv(1)
    return data


def accept(connection: socket.socket) -> None:
    """Switch to the protocol that was asked for."""
    lines = [line.partition(b": ") for line in head(connection).split(b"\r\n")]
    key = next(value for name, _, value in lines if name.lower() == b"sec-websocket-key")
    proof = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
    connection.sendall(
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {proof}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
        ).encode()
    )


def message(channel: int, data: bytes) -> bytes:
    """Return a frame with a message of one of the command's streams."""
    body = bytes([channel]) + data
    return b"\x82" + struct.pack("!BQ", 127, len(body)) + body


def stay(connection: socket.socket) -> None:
    """Read until the client goes."""
    while connection.recv(1 << 16):
        pass


def run(url: str, *blocks: bytes, silence_s: float = 20.0, open_s: float = 10.0) -> bytes:
    connection = WebSocket(url, protocol=PROTOCOL, headers={}, open_s=open_s)
    return b"".join(talk(connection, iter(blocks), backend="test", silence_s=silence_s))


def says(*frames: bytes) -> Act:
    def act(connection: socket.socket) -> None:
        accept(connection)
        connection.sendall(b"".join(frames))
        stay(connection)

    return act


SUCCESS = message(3, json.dumps({"status": "Success"}).encode())


class TestTalking:
    def test_the_output_of_a_command_is_returned(self) -> None:
        with server(says(message(1, b"a"), message(2, b"?"), message(1, b"b"), SUCCESS)) as url:
            assert run(url) == b"ab"

    def test_a_thread_that_runs_an_event_loop_may_call(self) -> None:
        async def cell() -> bytes:
            return run(url)

        with server(says(message(1, b"hi"), SUCCESS)) as url:
            assert asyncio.run(cell()) == b"hi"

    def test_nothing_is_left_running(self) -> None:
        before = set(threading.enumerate())
        with server(says(message(1, b"hi"), SUCCESS)) as url:
            run(url, b"x" * 1000)
        left = [t for t in threading.enumerate() if t not in before and "loop" in repr(t._target)]  # type: ignore[attr-defined]
        assert left == []

    @pytest.mark.parametrize(
        "status", [b"", b"<html>", b"[]", b"{}", b"null", b"[" * 100_000, b"\xff"]
    )
    def test_a_status_that_is_none_is_no_word_about_the_command(self, status: bytes) -> None:
        with (
            server(says(message(3, status))) as url,
            pytest.raises(ConnectionError, match="no status came"),
        ):
            run(url)

    def test_what_a_command_said_is_bounded(self) -> None:
        failure = message(3, json.dumps({"status": "Failure", "message": "x" * 1_000_000}).encode())
        with server(says(failure)) as url, pytest.raises(CommandError) as caught:
            run(url)
        assert len(str(caught.value)) < 5000

    def test_a_message_without_end_is_not_kept(self) -> None:
        def act(connection: socket.socket) -> None:
            accept(connection)
            connection.sendall(b"\x82" + struct.pack("!BQ", 127, 1 << 60))
            for _ in itertools.repeat(None):
                connection.sendall(b"x" * (1 << 16))

        with server(act) as url, pytest.raises(ConnectionError):
            run(url)


class TestStalling:
    """Connections that are open for one side only, or whose other side does nothing."""

    def test_a_command_that_says_nothing_is_given_up(self) -> None:
        began = time.monotonic()
        with server(says()) as url, pytest.raises(TimeoutError, match="nothing came"):
            run(url, silence_s=0.5)
        assert time.monotonic() - began < patience.seconds(10)

    def test_a_command_that_does_not_read_is_given_up(self) -> None:
        def act(connection: socket.socket) -> None:
            accept(connection)
            time.sleep(30)

        began = time.monotonic()
        with server(act) as url, pytest.raises(TimeoutError, match="nothing came"):
            run(url, *[b"x" * (1 << 20)] * 64, silence_s=0.5)
        assert time.monotonic() - began < patience.seconds(15)

    def test_a_server_that_never_answers_is_given_up(self) -> None:
        with server(stay) as url, pytest.raises(TimeoutError):
            run(url, open_s=0.3)

    def test_a_server_that_drips_its_answer_is_given_up(self) -> None:
        def act(connection: socket.socket) -> None:
            head(connection)
            for byte in b"HTTP/1.1 101 Switching Protocols\r\n" * 100:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)

        began = time.monotonic()
        with server(act) as url, pytest.raises(OSError):
            run(url, open_s=0.5)
        assert time.monotonic() - began < patience.seconds(10)


class TestHandshakes:
    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"nonsense\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n<html>",
            b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n<html>",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n<html>",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\n" + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
        ],
    )
    def test_an_answer_that_is_none_is_an_error_of_the_connection(self, answer: bytes) -> None:
        def act(connection: socket.socket) -> None:
            head(connection)
            connection.sendall(answer)

        with server(act) as url, pytest.raises((OSError, HandshakeError)):
            run(url)

    def test_a_refusal_has_its_status_and_its_words(self) -> None:
        def act(connection: socket.socket) -> None:
            head(connection)
            connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!")

        with server(act) as url, pytest.raises(HandshakeError) as caught:
            run(url)
        assert (caught.value.status, caught.value.body) == (403, "no!")

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_a_token_does_not_follow_a_redirect(self, status: int) -> None:
        came: list[bytes] = []

        def elsewhere(connection: socket.socket) -> None:
            came.append(head(connection))

        def act(connection: socket.socket) -> None:
            head(connection)
            connection.sendall(
                f"HTTP/1.1 {status} Go\r\nLocation: {other}/x\r\nContent-Length: 0\r\n\r\n".encode()
            )

        with (
            server(elsewhere) as other,
            server(act) as url,
            pytest.raises(HandshakeError, match=str(status)),
        ):
            WebSocket(url, protocol=PROTOCOL, headers={"Authorization": "Bearer secret"})
        assert came == []


@pytest.mark.parametrize("proxy", ["127.0.0.1:{port}", "http://me@127.0.0.1:{port}"])
def test_a_proxy_may_be_written_short(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bytes] = []

    def act(connection: socket.socket) -> None:
        told.append(head(connection))
        connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")

    with server(act) as url:
        monkeypatch.setenv("HTTP_PROXY", proxy.format(port=url.rpartition(":")[2]))
        monkeypatch.setenv("http_proxy", proxy.format(port=url.rpartition(":")[2]))
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(ConnectionError, match=r"proxy 127\.0\.0\.1 .*502"):
            WebSocket("http://cluster.invalid/", protocol=PROTOCOL, headers={})
    assert told[0].startswith(b"CONNECT cluster.invalid:80 ")
