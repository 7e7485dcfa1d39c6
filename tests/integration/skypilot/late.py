"""An API server that answers one kind of request later than SkyPilot's client waits."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

LATE_S = 7.0  # the client waits for five


@contextlib.contextmanager
def late_answers(to: bytes, server: tuple[str, int] = ("127.0.0.1", 46580)) -> Iterator[str]:
    """Yield the address of a server that hands all on, and is late once: with its answer to ``to``.

    ``to`` begins a request, such as ``POST /launch``.
    """
    was_late = threading.Event()
    closing = threading.Event()
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
                if part.startswith(to) and not was_late.is_set():
                    was_late.set()
                    asked.set()
                behind.sendall(part)
            end(behind, socket.SHUT_WR)
            back.join()

    def answer(behind: socket.socket, client: socket.socket, asked: threading.Event) -> None:
        for part in parts(behind):
            if asked.is_set():
                closing.wait(LATE_S)
                asked.clear()
            with contextlib.suppress(OSError):  # it did not wait
                client.sendall(part)
        end(client, socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            closing.set()
            end(listener, socket.SHUT_RDWR)
            threads[0].join()
            for connection in connections:
                end(connection, socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
    assert was_late.is_set(), f"nobody asked for {to.decode()}"


def parts(connection: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while part := connection.recv(65536):
            yield part


def end(connection: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(how)
