"""A TCP proxy on loopback that can cut, refuse, delay and freeze what goes through it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_BLOCK_BYTES = 1 << 16
_TICK_S = 0.02


class ChaosProxy:
    """Passes connections on to a port of this machine until it is told otherwise.

    Attributes:
        port: that it listens on; the same for its whole life.
        delay_s: how long each block of bytes is held back, in each direction.
        frozen: nothing passes and nothing is closed, as when a cable is pulled.
        connections: how many were opened so far.
        cut_after_bytes: cut everything once so many more bytes came from the client.
        passed_bytes: how many came from the client so far and were passed on.
    """

    def __init__(self, target_port: int) -> None:
        self.delay_s = 0.0
        self.frozen = False
        self.connections = 0
        self.cut_after_bytes: int | None = None
        self.passed_bytes = 0
        self._target_port = target_port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = threading.Event()
        self._listener: socket.socket | None = None
        self.port = 0
        self.accept()

    def accept(self) -> None:
        """Take connections (again)."""
        if self._listener is not None:
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._serve, args=[listener], daemon=True).start()

    def refuse(self) -> None:
        """Take no new connections; those that are open stay."""
        if self._listener is not None:
            # Closing alone would leave the thread in accept() with a socket that still listens.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def cut(self) -> None:
        """Break every open connection, without a word of farewell."""
        with self._lock:
            ends, self._open = self._open, set()
        for each in ends:
            _reset(each)

    def close(self) -> None:
        self._closed.set()
        self.refuse()
        self.cut()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Refuse and cut everything while entered."""
        self.refuse()
        self.cut()
        try:
            yield
        finally:
            self.accept()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target_port), timeout=10)
            except OSError:
                _reset(near)
                continue
            far.settimeout(None)
            with self._lock:
                self.connections += 1
                self._open |= {near, far}
            for source, sink, up in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pump, args=[source, sink, up], daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        try:
            while data := source.recv(_BLOCK_BYTES):
                if self.delay_s:
                    time.sleep(self.delay_s)
                while self.frozen and not self._closed.is_set():
                    time.sleep(_TICK_S)
                if up and not self._may_pass(len(data)):
                    self.cut()
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One end is gone: the other learns of it.
            for each in (source, sink):
                _reset(each)
        with self._lock:
            self._open.discard(source)

    def _may_pass(self, count: int) -> bool:
        with self._lock:
            if self.cut_after_bytes is not None:
                self.cut_after_bytes -= count
                if self.cut_after_bytes < 0:
                    self.cut_after_bytes = None
                    return False
            self.passed_bytes += count
            return True


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
