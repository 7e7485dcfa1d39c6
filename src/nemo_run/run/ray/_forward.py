"""A port of this machine that leads to a Ray cluster, for as long as it is wanted."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import AbstractContextManager

from nemo_run._transport.listener import listening
from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel
from nemo_run.exceptions import BackendError

START_TIMEOUT_S = 30.0


class Forwarding(threading.Thread):
    """Keeps a forward open until `stop_forwarding`."""

    def __init__(self, way: AbstractContextManager[None], port: int) -> None:
        super().__init__(name=f"forward-{port}", daemon=True)
        self._way = way
        self._up, self._stop_asked = threading.Event(), threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            with self._way:
                self._up.set()
                self._stop_asked.wait()
        except (BackendError, OSError) as err:  # told to the caller, who waits
            self._error = err
            self._up.set()

    def wait_until_up(self) -> None:
        """Return when connections are accepted.

        Raises:
            BackendError: the port is taken, or the way there is not allowed.
            TimeoutError: nothing happened for 30 seconds.
        """
        if not self._up.wait(START_TIMEOUT_S):
            raise TimeoutError(f"The port was not forwarded within {START_TIMEOUT_S:.0f} s.")
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Return when `stop_forwarding` is called, or with Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            while self.is_alive():
                self.join(0.5)
        self.stop_forwarding()

    def stop_forwarding(self) -> None:
        """End the forward, and return when the port is free; fine if it has ended."""
        self._stop_asked.set()
        if self.is_alive():
            self.join(START_TIMEOUT_S)


def way_to(
    tunnel: SSHTunnel | LocalTunnel, host: str, port: int, *, local_port: int
) -> AbstractContextManager[None]:
    """Return what has ``local_port`` lead to ``host:port`` as the end of a tunnel sees it."""
    if isinstance(tunnel, SSHTunnel):
        return tunnel.forward(host, port, local_port=local_port)
    return _relay(host, port, local_port)


def _relay(host: str, port: int, local_port: int) -> AbstractContextManager[None]:
    """Pass on connections of this machine, where it is one of the cluster's network."""
    return listening(
        local_port, lambda near: _serve(near, host, port), target=f"{host}:{port}", backend="ray"
    )


def _serve(near: socket.socket, host: str, port: int) -> None:
    try:
        far = socket.create_connection((host, port), timeout=10)
    except OSError:
        return
    with far:
        far.settimeout(None)
        back = threading.Thread(target=_copy, args=(far, near), daemon=True)
        back.start()
        _copy(near, far)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
