"""The sessions of vendors' clients, which are those of requests, with limits of ours.

A server that drips, sends a little that unpacks to a lot, or sends a request on to another host
is one that does not answer.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import BaseAdapter

from nemo_run._transport.http import ANSWER_S, MOST_BYTES, broken, printable, whole_body
from nemo_run._transport.pools import Deadline, guarded, guarded_pool


def bound(
    session: requests.Session,
    *,
    answer_s: float = ANSWER_S,
    most_bytes: int = MOST_BYTES,
    waits: bool = False,
) -> None:
    """Have all calls of a session keep to limits; those that are read as a stream, to their head.

    1. A whole answer takes ``answer_s`` at most, and has ``most_bytes`` at most when unpacked.
    2. No redirect leads to another origin, and none is followed by a call that is not a GET.

    ``waits`` is for a server that begins to answer when something is done, and may be reached by
    way of a login page: ``answer_s`` counts from the head on, and a GET may be sent on.

    Calls that do not raise a `requests.RequestException`, as for a server that cannot be reached.
    """
    session.headers["Accept-Encoding"] = "gzip"
    for prefix, adapter in list(session.adapters.items()):
        if not isinstance(adapter, _Bounded):
            session.adapters[prefix] = _Bounded(adapter, answer_s, most_bytes, waits)


class _Bounded(BaseAdapter):
    """Sends by another adapter."""

    def __init__(self, inner: BaseAdapter, answer_s: float, most_bytes: int, waits: bool) -> None:
        super().__init__()
        self._inner = inner
        self._answer_s = answer_s
        self._most_bytes = most_bytes
        self._waits = waits
        manager = getattr(inner, "poolmanager", None)
        if manager is not None and hasattr(manager, "pool_classes_by_scheme"):
            guarded(manager)
        if type(inner).__module__.startswith("docker."):  # to a socket, with pools of its own
            _guard_pools(inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        options = {"timeout": timeout, "verify": verify, "cert": cert, "proxies": proxies}
        with Deadline(self._answer_s, begun=not self._waits) as deadline, self._said(deadline):
            response = self._inner.send(request, stream=True, **options)
            deadline.begin()
            _check_redirect(request, response, may_leave=self._waits)
            if not stream:
                # Pools that are not urllib3's own, such as those of sockets, are not guarded yet.
                connection: Any = getattr(response.raw, "connection", None)
                if isinstance(getattr(connection, "sock", None), socket.socket):
                    deadline.guard(connection.sock)
                response._content = whole_body(response.raw, self._most_bytes)
                response._content_consumed = True
        return response

    def close(self) -> None:
        self._inner.close()

    @contextmanager
    def _said(self, deadline: Deadline) -> Iterator[None]:
        try:
            yield
            if deadline.passed:
                raise TimeoutError
        except broken() as err:  # an error of requests is an OSError
            if deadline.passed:
                raise requests.ReadTimeout(f"no whole answer in {self._answer_s:.0f} s") from err
            if isinstance(err, requests.RequestException):
                raise
            raise requests.ConnectionError(str(err)) from err


def _guard_pools(adapter: Any) -> None:
    """Have the connections of an adapter end at the deadline that their thread has entered."""
    plain = adapter.get_connection

    def get_connection(*args: Any, **options: Any) -> Any:
        return guarded_pool(plain(*args, **options))

    adapter.get_connection = get_connection


def _check_redirect(
    request: requests.PreparedRequest, response: requests.Response, *, may_leave: bool
) -> None:
    if not response.is_redirect:
        return
    here, target = request.url or "", response.headers["location"]
    there = urljoin(here, target)
    stays = urlsplit(here)[:2] == urlsplit(there)[:2]
    if request.method in ("GET", "HEAD") and (stays or may_leave):
        return
    response.close()
    raise requests.ConnectionError(
        f"{response.status_code} to {printable(target)!r}, which is not followed"
    )
