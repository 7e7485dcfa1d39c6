"""Servers that attack the vendors' clients, whose sessions we configure."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests
from tests import patience
from tests.emulators.oddities import bomb

from nemo_run._backends.docker.client import _frames
from nemo_run._backends.docker.connection import connect
from nemo_run._transport import pools
from nemo_run._transport.bounded import bound
from nemo_run._transport.http import MOST_BYTES
from nemo_run.exceptions import BackendUnavailableError


class _Hostile(BaseHTTPRequestHandler):
    """Does what the path says."""

    server: Server

    def do_GET(self) -> None:
        self.server.seen.append(f"{self.command} {self.path}")
        way = self.server.way or self.path.strip("/").partition("/")[0]
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        getattr(self, f"_{way}")()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def _fine(self) -> None:
        self._answer(b'{"a": 1}')

    def _bomb(self) -> None:
        self._answer(bomb(64), {"Content-Encoding": "gzip"})

    def _large(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(1000):
            self.wfile.write(b" " * (1 << 20))

    def _drip(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self._drop_by_drop(b" ")

    def _dripping_head(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        self._drop_by_drop(b"a")

    def _drop_by_drop(self, drop: bytes) -> None:
        while not self.server.over.wait(0.05):
            self.wfile.write(drop)
            self.wfile.flush()

    def _away(self) -> None:
        self._answer(b"", {"Location": f"{self.server.other}/fine"}, status=307)

    def _late(self) -> None:
        self.server.over.wait(1)
        self._answer(b'{"a": 1}')

    def _round(self) -> None:
        self._answer(b"", {"Location": "/fine"}, status=307)

    def _html(self) -> None:
        self._answer(b"<html>Please log in</html>", {"Content-Type": "text/html"})

    def _wrong(self) -> None:
        self._answer(b"{}", status=500)

    def _answer(
        self, body: bytes, headers: dict[str, str] | None = None, status: int = 200
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *anything: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A server that is hostile in the way of the path, or in one ``way`` for all paths."""

    daemon_threads = True
    other = ""

    def __init__(self, way: str = "", address: Any = ("127.0.0.1", 0)) -> None:
        if isinstance(address, str):
            self.address_family = socket.AF_UNIX
        super().__init__(address, _Hostile)
        self.way = way
        self.seen: list[str] = []
        self.over = threading.Event()

    def server_bind(self) -> None:
        if self.address_family == socket.AF_UNIX:
            self.socket.bind(self.server_address)
        else:
            super().server_bind()

    def handle_error(self, *anything: Any) -> None:
        """A client that hangs up is what the test is about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(*servers: Server) -> Iterator[None]:
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield
    finally:
        for server in servers:
            server.over.set()
            server.shutdown()
            server.server_close()


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    both = Server(), Server()
    both[0].other = both[1].url
    with serving(*both):
        yield both


@pytest.fixture
def answer_s() -> float:
    """How long a whole answer may take."""
    return patience.seconds(20)


@pytest.fixture
def session(answer_s: float) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        bound(session, answer_s=answer_s, most_bytes=1 << 20)
        yield session


def test_an_honest_server_is_understood(
    servers: tuple[Server, Server], session: requests.Session
) -> None:
    assert session.get(f"{servers[0].url}/fine", timeout=patience.seconds(20)).json() == {"a": 1}
    assert session.get(f"{servers[0].url}/round", timeout=patience.seconds(20)).json() == {"a": 1}


@pytest.mark.parametrize("way", ["bomb", "large"])
def test_bytes_are_limited_unpacked_ones_too(
    way: str, servers: tuple[Server, Server], session: requests.Session
) -> None:
    with pytest.raises(requests.ConnectionError, match="at most 1 MiB"):
        session.get(f"{servers[0].url}/{way}", timeout=patience.seconds(20))


@pytest.mark.parametrize("answer_s", [0.5])
@pytest.mark.parametrize("way", ["drip", "dripping_head"])
def test_a_server_that_drips_is_given_up(
    way: str, servers: tuple[Server, Server], session: requests.Session
) -> None:
    begin = time.monotonic()
    with pytest.raises(requests.ReadTimeout, match="no whole answer"):
        session.get(f"{servers[0].url}/{way}", timeout=30)
    assert time.monotonic() - begin < patience.seconds(15)


@pytest.mark.parametrize(
    ("method", "way"), [("GET", "away"), ("POST", "away"), ("POST", "round"), ("PUT", "round")]
)
def test_no_request_goes_on_to_another_host(
    method: str, way: str, servers: tuple[Server, Server], session: requests.Session
) -> None:
    with pytest.raises(requests.ConnectionError, match="not followed"):
        session.request(
            method, f"{servers[0].url}/{way}", json={"secret": "x"}, timeout=patience.seconds(20)
        )
    assert (servers[1].seen, len(servers[0].seen)) == ([], 1)


def test_deadlines_leave_no_timers(
    servers: tuple[Server, Server], session: requests.Session
) -> None:
    session.get(f"{servers[0].url}/fine", timeout=patience.seconds(20))
    assert pools._present.deadline is None


class TestAServerThatIsWaitedFor:
    """SkyPilot's answers when what was asked for is done, and may be behind a login page."""

    @pytest.fixture
    def patient(self, session: requests.Session) -> requests.Session:
        session.mount("http://", requests.adapters.HTTPAdapter())
        bound(session, answer_s=0.5, most_bytes=1 << 20, waits=True)
        return session

    def test_an_answer_may_begin_late(
        self, servers: tuple[Server, Server], patient: requests.Session
    ) -> None:
        assert patient.get(f"{servers[0].url}/late", timeout=30).json() == {"a": 1}
        assert patient.get(f"{servers[0].url}/away", timeout=5).json() == {"a": 1}

    def test_an_answer_that_has_begun_has_a_deadline(
        self, servers: tuple[Server, Server], patient: requests.Session
    ) -> None:
        with pytest.raises(requests.ReadTimeout, match="no whole answer"):
            patient.get(f"{servers[0].url}/drip", timeout=30)
        with pytest.raises(requests.ConnectionError, match="at most 1 MiB"):
            patient.get(f"{servers[0].url}/bomb", timeout=30)

    def test_what_is_posted_goes_nowhere_else(
        self, servers: tuple[Server, Server], patient: requests.Session
    ) -> None:
        with pytest.raises(requests.ConnectionError, match="not followed"):
            patient.post(f"{servers[0].url}/away", json={"secret": "x"}, timeout=5)
        assert servers[1].seen == []

    def test_an_error_is_asked_for_once(
        self, servers: tuple[Server, Server], patient: requests.Session
    ) -> None:
        assert patient.get(f"{servers[0].url}/wrong", timeout=5).status_code == 500
        assert len(servers[0].seen) == 1


class TestDocker:
    """An engine that is reached over the network, or the socket of one."""

    @pytest.mark.parametrize("way", ["bomb", "large", "away", "html"])
    def test_no_answer_takes_memory_or_leads_elsewhere(self, way: str) -> None:
        engine, elsewhere = Server(way), Server()
        engine.other = elsewhere.url
        tracemalloc.start()
        with serving(engine, elsewhere), pytest.raises(BackendUnavailableError):
            connect(f"tcp://127.0.0.1:{engine.server_port}")
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert taken < 3 * MOST_BYTES
        assert elsewhere.seen == []

    @pytest.mark.parametrize("way", ["drip", "dripping_head"])
    def test_a_socket_that_drips_is_given_up(self, way: str, tmp_path: Path) -> None:
        docker = pytest.importorskip("docker")
        engine = Server(way, str(tmp_path / "socket"))
        api = docker.APIClient(base_url=f"unix://{tmp_path}/socket", version="1.41", timeout=30)
        bound(api, answer_s=0.5)
        with serving(engine), closing(api), pytest.raises(requests.ReadTimeout):
            api.info()

    def test_a_frame_of_a_log_without_end_is_read_in_pieces(self) -> None:
        class Endless:
            """A log that begins with a frame of four gigabytes."""

            asked: ClassVar[list[int]] = []

            def read(self, size: int) -> bytes:
                self.asked.append(size)
                return b"\1\0\0\0\xff\xff\xff\xff" if size == 8 else b"x" * size

        for _, piece in zip(range(3), _frames(Endless()), strict=False):
            assert len(piece) <= 1 << 20
        assert max(Endless.asked) <= 1 << 20
