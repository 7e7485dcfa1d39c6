"""An API server that answers one kind of request late, or with something else."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import socket
import threading
from collections.abc import Callable, Iterator

LATE_S = 7.0  # the client waits for five
SERVER = ("127.0.0.1", 46580)


@contextlib.contextmanager
def late_answers(to: bytes, server: tuple[str, int] = SERVER) -> Iterator[str]:
    """Yield the address of a server that hands all on, and is late once: with its answer to ``to``.

    ``to`` begins a request, such as ``POST /launch``.
    """
    closing = threading.Event()

    def late(part: bytes) -> bytes:
        closing.wait(LATE_S)
        return part

    with changed_answers(to, late, server, times=1) as address:
        try:
            yield address
        finally:
            closing.set()


@contextlib.contextmanager
def changed_answers(
    to: bytes,
    change: Callable[[bytes], bytes],
    server: tuple[str, int] = SERVER,
    *,
    times: float = math.inf,
) -> Iterator[str]:
    """Yield the address of a server whose answers to ``to`` begin with what ``change`` returns."""
    changed = itertools.count(1)
    asked_at_all = threading.Event()
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = listener.accept()
                behind = socket.create_connection(server)
                connections.extend((client, behind))
                threads.append(threading.Thread(target=attend, args=(client, behind)))
                threads[-1].start()

    def attend(client: socket.socket, behind: socket.socket) -> None:
        asked = threading.Event()
        back = threading.Thread(target=answer, args=(behind, client, asked))
        with client, behind:
            back.start()
            for part in parts(client):
                if part.startswith(to) and next(changed) <= times:
                    asked_at_all.set()
                    asked.set()
                behind.sendall(part)
            end(behind, socket.SHUT_WR)
            back.join()

    def answer(behind: socket.socket, client: socket.socket, asked: threading.Event) -> None:
        for part in parts(behind):
            sent = change(part) if asked.is_set() else part
            asked.clear()
            with contextlib.suppress(OSError):  # it did not wait
                client.sendall(sent)
        end(client, socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            end(listener, socket.SHUT_RDWR)
            threads[0].join()
            for connection in connections:
                end(connection, socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
    assert asked_at_all.is_set(), f"nothing asked for {to.decode()}"


def without_header(name: bytes) -> Callable[[bytes], bytes]:
    """Return what takes a header out of answers."""
    pattern = re.compile(rb"(?mi)^%s:[^\n]*\n" % re.escape(name))
    return lambda part: pattern.sub(b"", part)


def instead(body: bytes, status: bytes = b"200 OK") -> Callable[[bytes], bytes]:
    """Return what gives every question the same answer, and closes the connection then."""
    head = (
        b"HTTP/1.1 %s\r\ncontent-type: application/json\r\nconnection: close\r\n"
        b"content-length: %d\r\n\r\n" % (status, len(body))
    )
    return lambda part: head + body


def parts(connection: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while part := connection.recv(65536):
            yield part


def end(connection: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(how)
