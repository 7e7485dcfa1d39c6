"""A port of loopback whose connections are served by threads."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nemo_run.exceptions import BackendError


@contextmanager
def listening(
    local_port: int, serve: Callable[[socket.socket], None], *, target: str, backend: str
) -> Iterator[None]:
    """Have ``serve`` called, in a thread of its own, with each connection to ``local_port``.

    The connection is closed when ``serve`` returns. ``target`` says where the port leads.

    Raises:
        BackendError: the port is taken.
    """
    try:
        server = socket.create_server(("127.0.0.1", local_port))
    except OSError as err:
        raise BackendError(
            f"Port {local_port} of this machine cannot lead to {target}: {err}. Is the port free?",
            backend=backend,
            operation="forward",
        ) from err
    with server:
        accepting = threading.Thread(target=_accept, args=(server, serve), daemon=True)
        accepting.start()
        try:
            yield
        finally:
            # Closing alone does not wake a thread that accepts.
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
    accepting.join(1)


def _accept(server: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            near, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_served, args=(near, serve), daemon=True).start()


def _served(near: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    with near:
        serve(near)
