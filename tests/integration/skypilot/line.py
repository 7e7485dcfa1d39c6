"""The way to an API server, which can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.integration.skypilot.late import end, parts


class Line:
    """Hands everything on between clients and an API server, until it is cut.

    Attributes:
        address: where clients find it.
        refused: how often a client came while it was cut.
        asked: the first lines of the requests that came, in their order.
    """

    def __init__(self, listener: socket.socket, cut_after: bytes) -> None:
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.refused = 0
        self.asked: list[str] = []
        self._listener = listener
        self._cut_after = cut_after
        self._is_cut = threading.Event()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        self._is_cut.set()
        for connection in self._connections:
            end(connection, socket.SHUT_RDWR)

    def mend(self) -> None:
        self._is_cut.clear()

    def close(self) -> None:
        end(self._listener, socket.SHUT_RDWR)
        self._threads[0].join()
        for connection in self._connections:
            end(connection, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                if self._is_cut.is_set():
                    self.refused += 1
                    client.close()
                    continue
                behind = socket.create_connection(("127.0.0.1", 46580))
                self._connections += [client, behind]
                self._threads.append(threading.Thread(target=self._attend, args=(client, behind)))
                self._threads[-1].start()

    def _attend(self, client: socket.socket, behind: socket.socket) -> None:
        asked = threading.Event()
        back = threading.Thread(target=self._answer, args=(behind, client, asked))
        with client, behind:
            back.start()
            for part in parts(client):
                if part.startswith((b"GET ", b"POST ")):
                    self.asked.append(part.partition(b"\r\n")[0].decode())
                if self._cut_after and part.startswith(self._cut_after):
                    asked.set()
                behind.sendall(part)
            end(behind, socket.SHUT_WR)
            back.join()

    def _answer(self, behind: socket.socket, client: socket.socket, asked: threading.Event) -> None:
        for part in parts(behind):
            if asked.is_set():
                # The server has taken the request, and nobody hears of it.
                self._cut_after = b""
                self._is_cut.set()
                break
            with contextlib.suppress(OSError):  # it did not wait
                client.sendall(part)
        end(client, socket.SHUT_RDWR)


@contextlib.contextmanager
def line(cut_after: bytes = b"") -> Iterator[Line]:
    """Yield a line that is cut when the API server has answered a request that begins so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Line(listener, cut_after)
        try:
            yield made
        finally:
            made.close()
