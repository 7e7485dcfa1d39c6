"""HTTP with time-outs, back-off and our errors, for the clients that speak it themselves.

The package requests is loaded with the first call.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
)

if TYPE_CHECKING:
    import requests

log = logging.getLogger(__name__)

CONNECT_S, READ_S = 10.0, 60.0
PAUSES_S = (0.1, 10.0)
"""Between two tries: at first, and at most."""

_SAID_S = 1.0
"""Who waits longer than this for the next try wants to know why."""

_BUSY = frozenset({429, 500, 502, 503, 504})
_OBJECT = re.compile(r"^<[^>]* object at 0x[0-9a-f]+>: ")


class Conflict(BackendError):
    """Something of that name is there already."""


class Http:
    """One server. Safe to use from several threads, and after a fork.

    Attributes:
        patience_s: how long calls that may be repeated are repeated.
    """

    def __init__(
        self,
        url: str,
        *,
        backend: str,
        token: Callable[[str | None], str] | None = None,
        patience_s: float = 5.0,
    ) -> None:
        """``token`` returns a bearer token, another one than the refused one it is given."""
        self.url = url.rstrip("/")
        self.backend = backend
        self.patience_s = patience_s
        self._token = token
        self._local = threading.local()

    def json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        patience_s: float | None = None,
        once: bool = False,
    ) -> Any:
        """Return the decoded answer, None where there is none; with ``once`` do not repeat it.

        Raises:
            BackendUnavailableError: no answer, or one that says to come back later.
            AuthenticationError, JobNotFoundError, Conflict, BackendError: the server said no.
        """
        patience = 0.0 if once else self.patience_s if patience_s is None else patience_s
        for attempt in attempts(patience):
            try:
                response = self._send(method, path, body=body, query=query)
            except BackendUnavailableError as err:
                attempt.failed(err)
                continue
            with closing(response):
                if not response.content:
                    return None
                try:
                    return response.json()
                except ValueError as err:
                    raise self._error(
                        BackendError, f"{method} {path}", f"no JSON: {response.text[:200]}"
                    ) from err
        raise AssertionError("unreachable")

    def stream(self, path: str, *, query: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        """Yield the body as it comes.

        Raises:
            BackendUnavailableError: the connection was cut, or silent for too long.
        """
        response = self._send("GET", path, query=query, stream=True)
        with closing(response):
            import requests

            try:
                yield from response.iter_content(chunk_size=None)
            except requests.RequestException as err:
                raise self._unavailable(f"GET {path}", _why(err)) from err

    def response(self, method: str, path: str, *, body: Any = None) -> requests.Response:
        """Return the answer as it is, whatever it says.

        Raises:
            BackendUnavailableError: there was none.
        """
        return self._ask(method, path, body=body)

    def _send(self, method: str, path: str, **what: Any) -> requests.Response:
        response = self._ask(method, path, **what)
        if response.status_code >= 300:
            with closing(response):
                raise self._refusal(response, f"{method} {path}")
        return response

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        stream: bool = False,
    ) -> requests.Response:
        """Send once, and once more with a new token after a 401."""
        import requests

        token: str | None = None
        while True:
            refused, token = token, self._token(token) if self._token is not None else None
            try:
                response = self._session().request(
                    method,
                    f"{self.url}{path}",
                    json=body,
                    params=query,
                    headers={"Accept": "application/json"},
                    auth=_show(token),
                    timeout=(CONNECT_S, READ_S),
                    stream=stream,
                )
            except requests.RequestException as err:
                raise self._unavailable(f"{method} {path}", _why(err)) from err
            log.debug("%s %s%s: %d", method, self.url, path, response.status_code)
            if response.status_code != 401 or token is None or refused is not None:
                return response
            response.close()

    def _session(self) -> requests.Session:
        import requests
        from requests.adapters import HTTPAdapter

        owner, session = getattr(self._local, "session", (None, None))
        if session is None or owner != os.getpid():
            # Connections are not shared with a process that was forked from this one.
            session = requests.Session()
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(pool_maxsize=4))
            self._local.session = os.getpid(), session
        return session

    def _refusal(self, response: requests.Response, operation: str) -> BackendError:
        said = _said(response)
        status = response.status_code
        if status in _BUSY:
            return self._unavailable(operation, f"{status} {said}")
        kinds = {
            401: AuthenticationError,
            403: AuthenticationError,
            404: JobNotFoundError,
            409: Conflict,
        }
        return self._error(kinds.get(status, BackendError), operation, f"{status} {said}")

    def _unavailable(self, operation: str, detail: str) -> BackendUnavailableError:
        error = self._error(BackendUnavailableError, operation, detail)
        assert isinstance(error, BackendUnavailableError)
        return error

    def _error(self, kind: type[BackendError], operation: str, detail: str) -> BackendError:
        return kind(
            f"{self.url} did not do {operation}: {detail}",
            backend=self.backend,
            operation=operation,
            detail=detail,
        )


def _show(token: str | None) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """Return what puts the token on a request; without, requests would look into ~/.netrc."""

    def put(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update(bearer(token))
        return request

    return put


def bearer(token: str | None) -> dict[str, str]:
    """Return the header that shows a token, if there is one."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _why(error: BaseException) -> str:
    """Return what went wrong with a connection, out of the layers that it was reported through."""
    inner = getattr(error, "reason", None) or next(iter(error.args), None)
    if isinstance(inner, BaseException):
        return _why(inner)
    return _OBJECT.sub("", str(error))


def _said(response: requests.Response) -> str:
    """Return the server's message, out of its JSON where that is what it sent."""
    try:
        data = response.json()
    except ValueError:
        return response.text[:500]
    if isinstance(data, dict):
        return str(data.get("message") or data.get("details") or data)[:500]
    return str(data)[:500]


class _Attempt:
    def __init__(self, deadline: float, pause_s: float) -> None:
        self._deadline = deadline
        self._pause_s = pause_s

    def failed(self, error: BackendUnavailableError) -> None:
        """Wait for the next attempt, or give up."""
        if time.monotonic() + self._pause_s > self._deadline:
            raise error
        level = logging.INFO if self._pause_s > _SAID_S else logging.DEBUG
        log.log(level, "%s; trying again in %.1f s", error, self._pause_s)
        time.sleep(self._pause_s)


def attempts(patience_s: float) -> Iterator[_Attempt]:
    """Yield what to tell of each failure, for as long as there is patience."""
    deadline = time.monotonic() + patience_s
    pause_s, most_s = PAUSES_S
    while True:
        # Spread, so that many clients that lost the same server do not come back as one.
        yield _Attempt(deadline, pause_s * random.uniform(0.7, 1.3))
        pause_s = min(pause_s * 2, most_s)
