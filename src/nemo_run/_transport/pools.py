"""Connections of urllib3 that end at a deadline, whatever they wait for.

A time-out counts from byte to byte: a server that sends one now and then would be waited for for
ever. A `Deadline` counts from the beginning, and cuts what is open when it has passed.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from nemo_run._transport.route import Route

_MOST_POOLS = 8
_present = threading.local()
_pools: dict[tuple[int, Route], urllib3.PoolManager] = {}


class Deadline:
    """While entered, connections that this thread uses are cut when the time is up.

    Unless it has ``begun``, the time counts from `begin` on.

    Attributes:
        passed: whether they were.
    """

    def __init__(self, seconds: float, *, begun: bool = True) -> None:
        self.passed = False
        self._begun = begun
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._guarded: list[socket.socket] = []

    def __enter__(self) -> Deadline:
        _present.deadline = self
        if self._begun:
            self._timer.start()
        return self

    def begin(self) -> None:
        """Start to count, unless that is done."""
        if not self._begun:
            self._begun = True
            self._timer.start()

    def __exit__(self, *error: object) -> None:
        _present.deadline = None
        self._timer.cancel()
        with self._lock:
            for connection in self._guarded:
                connection.close()
            self._guarded.clear()

    def guard(self, connection: socket.socket) -> None:
        # A second name of the same connection: the first may go into a TLS socket meanwhile.
        again = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._guarded.append(again)
            if self.passed:
                _cut(again)

    def _pass(self) -> None:
        with self._lock:
            self.passed = True
            for connection in self._guarded:
                _cut(connection)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # the server may have been first
        connection.shutdown(socket.SHUT_RDWR)


def _guard(connection: Any) -> None:
    deadline: Deadline | None = getattr(_present, "deadline", None)
    if deadline is not None and isinstance(connection, socket.socket):
        deadline.guard(connection)


# urllib3 has types in some of its releases only, so they are not looked at.
class _Guarded(HTTPConnection):  # type: ignore[misc]
    def _new_conn(self) -> Any:
        connection = super()._new_conn()
        _guard(connection)
        return connection

    def getresponse(self, *args: Any, **options: Any) -> Any:
        _guard(self.sock)
        return super().getresponse(*args, **options)


class _GuardedTls(_Guarded, HTTPSConnection):  # type: ignore[misc]
    pass


class _Pool(HTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _Guarded


class _TlsPool(HTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _GuardedTls


def guarded(pools: urllib3.PoolManager) -> urllib3.PoolManager:
    """Have a manager's connections end at the deadline that their thread has entered."""
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pools


def guarded_pool(pool: Any) -> Any:
    """Do the same for one pool, whatever its connections are."""
    if "_new_conn" in vars(pool):
        return pool  # done
    plain = pool._new_conn

    def new_conn() -> Any:
        connection = plain()
        heard = connection.getresponse

        def getresponse(*args: Any, **options: Any) -> Any:
            _guard(connection.sock)
            return heard(*args, **options)

        connection.getresponse = getresponse
        return connection

    pool._new_conn = new_conn
    return pool


def pools_of(route: Route) -> urllib3.PoolManager:
    """Return what has the connections of this process that go by a route."""
    key = (os.getpid(), route)  # not shared with a process that was forked from this one
    found = _pools.get(key)
    if found is None:
        while len(_pools) >= _MOST_POOLS:
            oldest = _pools.pop(next(iter(_pools)), None)
            if oldest is not None:
                oldest.clear()  # connections in use are closed when they are given back
        found = _pools.setdefault(key, guarded(_made(route)))
    return found


def _made(route: Route) -> urllib3.PoolManager:
    context = route.tls()
    # urllib3 compares names itself: of two releases, one cannot have OpenSSL do it for addresses.
    context.check_hostname = False
    options: dict[str, Any] = {"ssl_context": context, "maxsize": 8}
    if route.server_name:
        options |= {"server_hostname": route.server_name}
    if not (route.verify and route.check_name):
        options |= {"assert_hostname": False}
    if not route.proxy:
        return urllib3.PoolManager(**options)
    address, words = route.proxy_login
    headers = urllib3.make_headers(proxy_basic_auth=words) if words else None
    return urllib3.ProxyManager(address, proxy_headers=headers, **options)
