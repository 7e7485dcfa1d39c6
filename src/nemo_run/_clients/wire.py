"""A TCP connection, with TLS or without, that one thread may send on while another receives.

OpenSSL allows one thread at a time, and an `ssl.SSLSocket` does not see to it. Here only sealing
and opening data is done one at a time; who waits for the other side holds up nobody.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

_BLOCK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Route:
    """How to get to a server, where that is not as the environment says.

    Attributes:
        tls: whom to trust, and what to show them.
        server_name: whom the server's certificate names; empty for the host of the URL.
        proxy: its URL; empty for none.
    """

    tls: ssl.SSLContext
    server_name: str = ""
    proxy: str = ""


class Wire:
    """A connection. What goes wrong with it is an OSError."""

    def __init__(self, url: str, *, timeout_s: float, route: Route | None = None) -> None:
        """Connect to the server of an ``http`` or ``https`` URL, by a proxy where there is one."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if secure else 80)
        proxy = _proxy(url) if route is None else _parsed(route.proxy)
        first = (host, port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
        self._socket = socket.create_connection(first, timeout_s)
        self._sending = threading.Lock()
        self._posted: deque[bytes] = deque()
        self._tls: _Tls | None = None
        self._received = b""
        self._ended = False
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if proxy is not None:
                self._pass(proxy, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            if secure:
                name = route.server_name if route is not None else ""
                self._tls = _Tls(name or host, route.tls if route is not None else _trusted())
                self._shake_hands(self._tls)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """End the connection; a call that waits on it in another thread fails."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def limit(self, timeout_s: float) -> None:
        """Wait for the other side so long from now on."""
        self._socket.settimeout(timeout_s)

    def wait(self, timeout_s: float) -> bool:
        """Tell whether there is something to receive, or the end, within that time."""
        deadline = time.monotonic() + timeout_s
        while not self._received and not self._ended:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self._socket], [], [], left_s)[0]:
                return False
            self._take()
        return True

    def send(self, data: bytes) -> None:
        """Send all of it; what several threads send is not mixed."""
        with self._sending:
            self._write(data)
        self._send_posted()

    def post(self, data: bytes) -> None:
        """Send now, or right after what another thread is sending, without waiting for that.

        Whoever receives does not wait for who sends: the other side may have to be read first.
        """
        self._posted.append(data)
        self._send_posted()

    def _send_posted(self) -> None:
        while self._posted and self._sending.acquire(blocking=False):
            try:
                while self._posted:
                    self._write(self._posted.popleft())
            finally:
                self._sending.release()

    def _write(self, data: bytes) -> None:
        self._socket.sendall(self._tls.seal(data) if self._tls else data)

    def receive(self) -> bytes:
        """Return all that has come, and wait for something where nothing has; empty at the end."""
        while not self._received and not self._ended:
            self._take()
        received, self._received = self._received, b""
        return received

    def _take(self) -> None:
        data = self._socket.recv(_BLOCK)
        self._ended = not data
        if self._tls is not None:
            data = self._tls.open(data)
            if self._tls.has_answer:
                self.post(b"")
        self._received += data

    def _pass(self, proxy: SplitResult, target: str) -> None:
        """Have a proxy connect us to ``target``."""
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if proxy.username is not None:
            words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {b64encode(words.encode()).decode()}")
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n") and len(answer) < _BLOCK:
            byte = self._socket.recv(1)  # what comes after the head is not the proxy's
            if not byte:
                break
            answer += byte
        status = answer.partition(b"\r\n")[0].decode("latin-1")
        if status.split(" ")[1:2] != ["200"]:
            raise ConnectionError(f"proxy {proxy.hostname} does not connect to {target}: {status}")

    def _shake_hands(self, tls: _Tls) -> None:
        while True:
            done = tls.shake_hands()
            self.send(b"")
            if done:
                return
            data = self._socket.recv(_BLOCK)
            if not data:
                raise ConnectionError("the connection was closed during the TLS handshake")
            tls.take(data)


def _proxy(url: str) -> SplitResult | None:
    """Return the proxy that the environment names for a URL: the one that requests uses, too."""
    from requests.utils import get_environ_proxies, select_proxy

    return _parsed(select_proxy(url, get_environ_proxies(url)) or "")


def _parsed(proxy: str) -> SplitResult | None:
    if not proxy:
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _trusted() -> ssl.SSLContext:
    # The variable that the requests package looks at, so that one setting serves all calls.
    return ssl.create_default_context(cafile=os.environ.get("REQUESTS_CA_BUNDLE"))


class _Tls:
    """What TLS makes of data, away from any socket."""

    def __init__(self, host: str, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._engine = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = threading.Lock()

    @property
    def has_answer(self) -> bool:
        """Whether the protocol itself has something to say."""
        return self._outgoing.pending > 0

    def shake_hands(self) -> bool:
        """Go as far as possible; tell whether all is said."""
        try:
            self._engine.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def take(self, data: bytes) -> None:
        self._incoming.write(data)

    def seal(self, data: bytes) -> bytes:
        with self._lock:
            if data:
                self._engine.write(data)
            return self._outgoing.read()

    def open(self, data: bytes) -> bytes:
        """Return what is whole of what has come; nothing where it is all the protocol's own."""
        parts = []
        with self._lock:
            self._incoming.write(data)
            with suppress(ssl.SSLWantReadError):
                while part := self._engine.read(_BLOCK):
                    parts.append(part)
        return b"".join(parts)
