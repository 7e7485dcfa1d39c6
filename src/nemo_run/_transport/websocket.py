"""WebSockets for threads, over the package websockets.

Its client for threads holds a lock while it sends, and needs that lock to receive: with a command
that prints while it is sent its input, both sides would wait for each other for ever. Its client
for asyncio does not. Each connection has an event loop in a thread of its own, since the thread
that calls may have one that runs, as those of notebooks do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from nemo_run._transport.route import Route, usual_route

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

T = TypeVar("T")

OPEN_S = 30.0
_PING_S = 20.0
_MOST_BYTES = 4 << 20
"""Of one message. Some are kept until they are received; servers send a few kilobytes in each."""


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
        route: Route | None = None,
        open_s: float = OPEN_S,
    ) -> None:
        """Connect to an ``http`` or ``https`` URL within ``open_s``. Redirects are not followed.

        Raises:
            HandshakeError: the server answered otherwise.
        """
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._closing = False
        self._connection: ClientConnection | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        way = route or usual_route(url)
        try:
            self._connection = self._do(lambda: _open(url, protocol, headers, way, open_s))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; a call that waits on it in another thread fails."""
        with self._lock:
            # What is asked for from now on fails at once, and what was before is ended below.
            if self._closing:
                return
            self._closing = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        if self._connection is not None:
            self._connection.transport.abort()
            await self._connection.wait_closed()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def send(self, data: bytes, *, timeout_s: float) -> None:
        """Send one message; return when this machine's system has taken it."""
        connection = self._connection
        assert connection is not None
        self._do(lambda: _within(timeout_s, connection.send(data)))

    def receive(self, *, timeout_s: float) -> bytes | None:
        """Return the next message, None when the server is done.

        Raises:
            TimeoutError: none came in that time.
        """
        from websockets.protocol import State

        connection = self._connection
        assert connection is not None
        try:
            return self._do(lambda: _within(timeout_s, _received(connection)))
        except TimeoutError:
            if connection.state is State.OPEN:
                raise
            # A server that broke the rules of the protocol may never hang up.
            raise ConnectionError("the server sent what is no WebSocket message") from None

    def _do(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Have the thread of this connection do something, and wait for that."""
        from websockets.exceptions import WebSocketException

        with self._lock:
            if self._closing:
                raise ConnectionError("the connection was closed")
            done = asyncio.run_coroutine_threadsafe(start(), self._loop)
        try:
            return done.result()
        except (WebSocketException, EOFError, ValueError) as err:
            raise ConnectionError(str(err)) from err
        except CancelledError as err:
            raise ConnectionError("the connection was closed") from err


async def _open(
    url: str, protocol: str, headers: Mapping[str, str], route: Route, open_s: float
) -> ClientConnection:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidProxy, InvalidStatus, ProxyError
    from websockets.typing import Subprotocol

    class Direct(connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc  # whom we show a token to is for the user to say

    secure: dict[str, Any] = {"ssl": route.tls()} if url.startswith("https:") else {}
    if secure and route.server_name:
        secure |= {"server_hostname": route.server_name}
    try:
        return await Direct(
            url.replace("http", "ws", 1),
            subprotocols=[Subprotocol(protocol)],
            additional_headers=headers,
            proxy=route.proxy or None,
            compression=None,
            open_timeout=open_s,
            ping_interval=_PING_S,
            # A server that writes to a slow disk may read nothing for a while, not even a ping.
            ping_timeout=None,
            close_timeout=1,
            max_size=_MOST_BYTES,
            **secure,
        )
    except InvalidStatus as err:
        body = (err.response.body or b"")[:1000].decode("utf-8", "replace")
        raise HandshakeError(err.response.status_code, body) from err
    except ProxyError as err:
        raise ConnectionError(f"proxy {route.proxy_name} does not connect us: {err}") from err
    except InvalidProxy:
        # What it says has the whole URL in it, with a password that may be there.
        raise ConnectionError(f"proxy {route.proxy_name} cannot be used: check its URL") from None


async def _received(connection: ClientConnection) -> bytes | None:
    from websockets.exceptions import ConnectionClosedOK

    try:
        return await connection.recv(decode=False)
    except ConnectionClosedOK:
        return None


async def _within(timeout_s: float, what: Coroutine[Any, Any, T]) -> T:
    try:
        return await asyncio.wait_for(what, timeout_s)
    except asyncio.TimeoutError as err:  # not a TimeoutError before Python 3.11
        raise TimeoutError(f"nothing came for {timeout_s:.0f} s") from err
