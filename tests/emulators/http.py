"""A small HTTP server on loopback: routes to functions, JSON, streams, and faults on demand."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from tests.emulators.faults import Fault, Faults


@dataclass(frozen=True)
class Request:
    """What a client asked. ``query`` holds the last value of each name."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    query_string: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"null")


@dataclass
class Response:
    """An answer: ``body`` is sent as JSON, bytes as they are, an iterator of bytes as chunks.

    A function is given the connection, after the head was sent, to speak another protocol on it.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Refused(Exception):
    """Raised by a handler to answer with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Handler = Callable[..., Any]


class Routes:
    """Which function answers what.

    ``{name}`` in a path becomes an argument of that name; ``{name*}`` may have slashes in it.
    """

    def __init__(self) -> None:
        self._table: list[tuple[str, re.Pattern[str], Handler]] = []

    def on(self, method: str, path: str) -> Callable[[Handler], Handler]:
        text = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)
        pattern = re.compile(re.sub(r"\{(\w+)\*\}", r"(?P<\1>.*)", text))

        def add(handler: Handler) -> Handler:
            self._table.append((method, pattern, handler))
            return handler

        return add

    def find(self, method: str, path: str) -> tuple[Handler, dict[str, str]]:
        allowed = False
        for known, pattern, handler in self._table:
            if match := pattern.fullmatch(path):
                if known == method:
                    return handler, {k: unquote(v) for k, v in match.groupdict().items()}
                allowed = True
        raise Refused(405 if allowed else 404, f"nothing answers {method} {path}")


class Server:
    """Serve until stopped; can be started again on the same port.

    ``answer`` gets every request that no fault took, and returns a `Response`, or something to
    send as JSON, or raises `Refused`. ``seen`` keeps the requests in order. ``tls`` counts from
    the next start on.
    """

    def __init__(
        self,
        answer: Callable[[Request], Any],
        *,
        faults: Faults | None = None,
        port: int = 0,
        error_body: Callable[[int, str], Any] = lambda status, message: {"message": message},
    ) -> None:
        self.answer = answer
        self.faults = faults or Faults()
        self.error_body = error_body
        self.tls: ssl.SSLContext | None = None
        self.seen: list[Request] = []
        self.port = port
        self._http: _Http | None = None
        self._thread: threading.Thread | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        if self._http is None:
            self._http = _Http(self)
            self.port = self._http.server_address[1]
            self._thread = threading.Thread(
                target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Refuse connections and cut those that are open."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http.cut_all()
            assert self._thread is not None
            self._thread.join()
            self._http = None

    def requests(self, method: str, path: str = ".*") -> list[Request]:
        """Return the requests seen whose path matches the pattern as a whole."""
        return [r for r in self.seen if r.method == method and re.fullmatch(path, r.path)]


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    # Waiting for threads on closing would wait for clients that keep their connection.
    block_on_close = False
    request_queue_size = 128

    def __init__(self, owner: Server) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", owner.port), _Connection)
        if owner.tls is not None:
            self.socket = owner.tls.wrap_socket(self.socket, server_side=True)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        with self._lock:
            for connection in self._open:
                _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""


def _instead(owner: Server, fault: Fault) -> Response:
    """Return what a fault has instead of an answer."""
    status = fault.status or 200
    if fault.answer is not None:
        return Response(fault.answer, status, dict(fault.headers))
    return Response(owner.error_body(status, fault.message), status, dict(fault.headers))


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side may have been first
        connection.shutdown(socket.SHUT_RDWR)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer goes out in two writes; without this the second waits for an acknowledgement.
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        owner = cast(_Http, self.server).owner
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # who asks was killed meanwhile
            self.close_connection = True
            return
        request = Request(
            method=self.command,
            path=url.path,
            query={k: v[-1] for k, v in parse_qs(url.query, keep_blank_values=True).items()},
            headers={k.lower(): v for k, v in self.headers.items()},
            body=body,
            query_string=url.query,
        )
        owner.seen.append(request)
        fault = owner.faults.take(request.method, request.path)
        if fault is not None and fault.delay_s and not fault.handled:
            owner.faults.sleep(fault.delay_s)
        if fault is not None and (fault.answer is not None or fault.status) and not fault.handled:
            self._send(_instead(owner, fault), drip_s=fault.drip_s)
            return
        if fault is not None and fault.drop and not fault.handled:
            _cut(self.connection)
            return
        response = self._answer(owner, request)
        if fault is not None and fault.delay_s and fault.handled:
            owner.faults.sleep(fault.delay_s)
        if fault is not None and fault.drop:
            _cut(self.connection)
            return
        if fault is not None and (fault.answer is not None or fault.status):
            response = _instead(owner, fault)
        cut_after, drip_s = (fault.cut_after, fault.drip_s) if fault else (None, 0.0)
        self._send(response, cut_after=cut_after, drip_s=drip_s)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve

    def _answer(self, owner: Server, request: Request) -> Response:
        try:
            answer = owner.answer(request)
        except Refused as err:
            return Response(owner.error_body(err.status, str(err)), err.status)
        return answer if isinstance(answer, Response) else Response(answer)

    def _send(self, response: Response, cut_after: int | None = None, drip_s: float = 0.0) -> None:
        body = response.body
        if callable(body):
            self._head(response)
            self.close_connection = True
            body(self.connection)
            return
        if isinstance(body, Iterator):
            self._stream(response, body, cut_after)
            return
        if not isinstance(body, bytes):
            body = json.dumps(body, ensure_ascii=False).encode()
            response.headers.setdefault("Content-Type", "application/json")
        self._head(response, ("Content-Length", str(len(body))))
        if drip_s:
            self._drip(body, drip_s)
        elif cut_after is not None:
            self.wfile.write(body[:cut_after])
            _cut(self.connection)
        elif self.command != "HEAD":
            self.wfile.write(body)

    def _drip(self, body: bytes, pause_s: float) -> None:
        for byte in body:
            time.sleep(pause_s)
            self.wfile.write(bytes([byte]))
            self.wfile.flush()

    def _stream(self, response: Response, chunks: Iterator[bytes], cut_after: int | None) -> None:
        self._head(response, ("Transfer-Encoding", "chunked"))
        left = cut_after
        for chunk in chunks:
            if left is not None and len(chunk) >= left:
                self._chunk(chunk[:left])
                _cut(self.connection)
                return
            self._chunk(chunk)
            left = None if left is None else left - len(chunk)
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()

    def _head(self, response: Response, *headers: tuple[str, str]) -> None:
        self.send_response(response.status)
        for name, value in (*response.headers.items(), *headers):
            self.send_header(name, value)
        self.end_headers()
