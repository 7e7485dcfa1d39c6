"""HTTP with time-outs, limits, back-off and our errors, for the clients that speak it themselves.

The package urllib3 is loaded with the first call. No redirect is followed: to whom a token or a
job is shown is for the user to say.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from nemo_run._secrets.masking import masked_text
from nemo_run._transport.answers import Answer, OddAnswerError, decoded
from nemo_run._transport.route import Route, usual_route
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
)

if TYPE_CHECKING:
    from urllib3 import HTTPResponse

log = logging.getLogger(__name__)

T = TypeVar("T")
E = TypeVar("E", bound=BackendError)

CONNECT_S, READ_S = 10.0, 60.0
ANSWER_S = 120.0
"""How long a whole answer may take, however steadily it comes."""
MOST_BYTES = 32 << 20
"""Of an answer, unpacked."""
PAUSES_S = (0.1, 10.0)
"""Between two tries: at first, and at most."""

_BLOCK = 1 << 16
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_OBJECT = re.compile(r"^<[^>]* object at 0x[0-9a-f]+>: ")


class Conflict(BackendError):
    """Something of that name is there already."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """Where a server is, how to get there, and what to show it."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    route: Route | None = None


Ways = Callable[[Way | None], Way]
"""Returns a way; another one than the given one, which was refused."""


def by_token(url: str, token: Callable[[str | None], str]) -> Ways:
    """Return the ways to a server that wants a bearer token.

    ``token`` returns one, and another one than the refused one it is given.
    """

    def way(refused: Way | None) -> Way:
        before = refused.headers["Authorization"].removeprefix("Bearer ") if refused else None
        return Way(url=url.rstrip("/"), headers={"Authorization": f"Bearer {token(before)}"})

    return way


@dataclass(frozen=True)
class Reply:
    """A whole answer, as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class Stream(Iterator[bytes]):
    """What comes of an answer, in blocks; to be closed, also if nothing of it was read."""

    def __init__(
        self, response: HTTPResponse, lost: Callable[[Exception], BackendUnavailableError]
    ) -> None:
        self._response = response
        self._blocks = _blocks(response)
        self._lost = lost

    def __next__(self) -> bytes:
        try:
            return next(self._blocks)
        except broken() as err:
            raise self._lost(err) from err

    def close(self) -> None:
        """End it, also while another thread waits for the next block."""
        way = getattr(getattr(self._response, "connection", None), "sock", None)
        if isinstance(way, socket.socket):
            with suppress(OSError):  # the server may have been first
                way.shutdown(socket.SHUT_RDWR)  # a thread that reads holds a lock on the rest
        self._response.close()


class Http:
    """One server. Safe to use from several threads, and after a fork.

    Attributes:
        patience_s: how long calls that may be repeated are repeated.
        answer_s: how long one call may take, with what is sent; None for the usual.
        server: what to call it in messages.
    """

    def __init__(
        self,
        way: str | Ways,
        *,
        backend: str,
        patience_s: float = 5.0,
        server: str = "",
        answer_s: float | None = None,
    ) -> None:
        """``way`` is a URL, or returns how to get there, before each call."""
        self.backend = backend
        self.patience_s = patience_s
        self.answer_s = answer_s
        # In every message: without the login that an address may have in it.
        self.server = masked_text(server or (way if isinstance(way, str) else "the server"))
        self._way = way

    def way(self, refused: Way | None = None) -> Way:
        """Return where the server is, and how to get there."""
        return Way(url=self._way.rstrip("/")) if isinstance(self._way, str) else self._way(refused)

    def ask(self, method: str, path: str, read: Callable[[Answer], T], **options: Any) -> T:
        """Return what ``read`` makes of the answer; for the options see `call`."""

        def take(reply: Reply) -> T:
            return read(Answer(decoded(reply.body)))

        found: T = self.call(method, path, take, **options)
        return found

    def do(self, method: str, path: str, **options: Any) -> None:
        """Make a call whose answer says no more than that it was done; see `call`."""
        self.call(method, path, lambda reply: reply.body and decoded(reply.body), **options)

    def call(
        self,
        method: str,
        path: str,
        take: Callable[[Reply], T],
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        patience_s: float | None = None,
        once: bool = False,
        missing: T | None = None,
    ) -> T:
        """Return what ``take`` makes of the answer; with ``once`` do not repeat the call.

        With ``missing`` that is returned for a 404, in whatever form it comes.

        Raises:
            BackendUnavailableError: no answer, one that says to come back later, or one that is
                not what it should be.
            AuthenticationError, JobNotFoundError, Conflict, BackendError: the server said no.
        """
        patience = 0.0 if once else self.patience_s if patience_s is None else patience_s
        waiting = retries(patience)
        while True:
            try:
                reply = self.reply(method, path, body=body, query=query)
                if reply.status == 404 and missing is not None:
                    return missing
                if reply.status // 100 != 2:
                    raise self._refusal(reply, method, path)
                try:
                    return take(reply)
                except OddAnswerError as err:
                    raise self._lost(f"{method} {path}", str(err)) from err
            except BackendUnavailableError as err:
                waiting.tolerate(err)

    def reply(
        self, method: str, path: str, *, body: Any = None, query: Mapping[str, str] | None = None
    ) -> Reply:
        """Return the answer as it is, whatever it says.

        Raises:
            BackendUnavailableError: there was none, or it did not end.
        """
        with self._exchange(method, path, query, body) as (way, response):
            return _whole(response, f"{way.url}{path}")

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, silence_s: float | None = None
    ) -> Stream:
        """Return the body as it comes, however long, with pauses of up to ``silence_s``.

        Raises:
            BackendUnavailableError: the connection was cut, or silent for too long.
        """
        with self._exchange("GET", path, query, silence_s=silence_s) as (way, response):
            if response.status == 200:
                return Stream(response, lambda err: self._lost(f"GET {path}", _why(err)))
            reply = _whole(response, f"{way.url}{path}")
        raise self._refusal(reply, "GET", path)

    @contextmanager
    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any = None,
        silence_s: float | None = None,
    ) -> Iterator[tuple[Way, HTTPResponse]]:
        """Send once, and once more by another way after a 401; cut what is still read too late."""
        from nemo_run._transport.pools import Deadline

        url = f"{path}?{urlencode(query)}" if query else path
        way = self.way()
        response: HTTPResponse | None = None
        answer_s = self.answer_s or ANSWER_S
        with Deadline(answer_s) as deadline:
            try:
                response = _send(way, method, url, body, silence_s)
                if response.status == 401 and way.headers:
                    response.close()
                    way = self.way(way)
                    response = _send(way, method, url, body, silence_s)
                log.debug("%s %s%s: %d", method, way.url, path, response.status)
                yield way, response
                if deadline.passed:
                    raise TimeoutError
            except broken() as err:
                if response is not None:
                    response.close()
                why = f"no whole answer in {answer_s:.0f} s" if deadline.passed else _why(err)
                raise self._lost(f"{method} {path}", why) from err

    def _refusal(self, reply: Reply, method: str, path: str) -> BackendError:
        said = f"{reply.status} {_said(reply.body)}".rstrip()
        kind = _REFUSALS.get(reply.status, BackendError)
        if reply.status // 100 == 3:
            said += f" to {printable(reply.headers.get('location', ''))!r}, which is not followed"
            kind = BackendUnavailableError
        elif kind is JobNotFoundError and not isinstance(_json_of(reply.body), dict):
            said += ": expected an object that says so"  # a gateway says it otherwise
            kind = BackendUnavailableError
        elif kind is Conflict and method != "POST":
            kind = BackendUnavailableError  # only what was to be made can be in conflict
        return self._error(kind, f"{method} {path}", said)

    def _lost(self, operation: str, why: str) -> BackendUnavailableError:
        return self._error(BackendUnavailableError, operation, why)

    def _error(self, kind: type[E], operation: str, detail: str) -> E:
        return kind(
            f"{self.server} did not do {operation}: {detail}",
            backend=self.backend,
            operation=operation,
            detail=detail,
        )


_REFUSALS: Mapping[int, type[BackendError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    404: JobNotFoundError,
    409: Conflict,
    **dict.fromkeys((429, 500, 502, 503, 504), BackendUnavailableError),
}


def _send(way: Way, method: str, url: str, body: Any, silence_s: float | None) -> HTTPResponse:
    from urllib3 import Timeout

    from nemo_run._transport.pools import pools_of

    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    if data is body:
        kind = "application/octet-stream"
    return pools_of(way.route or usual_route(way.url)).request(
        method,
        f"{way.url}{url}",
        body=data,
        headers={
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            **({} if data is None else {"Content-Type": kind}),
            **way.headers,
        },
        timeout=Timeout(connect=CONNECT_S, read=silence_s or READ_S),
        retries=False,
        redirect=False,
        preload_content=False,
        enforce_content_length=True,
    )


def _whole(response: HTTPResponse, url: str) -> Reply:
    """Read an answer to its end.

    Raises:
        OddAnswerError: it is larger than any answer should be.
    """
    body = whole_body(response, MOST_BYTES)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status, headers, body, url)


def whole_body(response: HTTPResponse, most_bytes: int) -> bytes:
    """Read a body to its end, unpacked; see `broken` for what it raises."""
    parts, size = [], 0
    for part in _blocks(response):
        size += len(part)
        if size > most_bytes:
            response.close()
            raise OddAnswerError(f"expected an answer of at most {most_bytes >> 20} MiB")
        parts.append(part)
    response.release_conn()
    return b"".join(parts)


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    """Yield a body as it comes, unpacked bit by bit: a little of it may hold a lot."""
    packed = response.stream(_BLOCK, decode_content=False)
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding == "identity":
        yield from packed
        return
    if encoding != "gzip":
        raise OddAnswerError(f"expected plain or gzip, got {printable(encoding)!r}")
    unpacker = zlib.decompressobj(wbits=31)
    for block in packed:
        while block:
            yield unpacker.decompress(block, _BLOCK)
            block = unpacker.unconsumed_tail


def broken() -> tuple[type[Exception], ...]:
    """Return what an answer raises that breaks off, or is none."""
    from urllib3.exceptions import HTTPError

    return (HTTPError, OSError, zlib.error, OddAnswerError)


def _why(error: BaseException) -> str:
    """Return what went wrong with a connection, out of the layers that it was reported through."""
    inner = getattr(error, "reason", None) or next(iter(error.args), None)
    if isinstance(inner, BaseException):
        return _why(inner)
    return _OBJECT.sub("", str(error))


def _said(body: bytes) -> str:
    """Return the server's message, out of its JSON where that is what it sent."""
    data = _json_of(body)
    if isinstance(data, dict):
        return printable(str(data.get("message") or data.get("details") or data))
    return printable(_TAGS.sub(" ", body[: 1 << 14].decode("utf-8", "replace")))


def _json_of(body: bytes) -> Any:
    try:
        return decoded(body)
    except OddAnswerError:
        return None


def printable(text: str) -> str:
    """Return a text for people: one line, short, and nothing that a terminal would act upon."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:5000]).split())[:500]


def retries(patience_s: float) -> Waiting:
    """Return the pauses between tries of one call."""
    return Waiting(*PAUSES_S, timeout_s=patience_s, growth=2, jitter=0.3)
