"""The HTTP that clients stand on: time-outs, back-off, tokens, errors."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.emulators.faults import Fault
from tests.emulators.http import Refused, Request, Response, Server
from tests.emulators.oddities import ODD, bomb

from nemo_run._transport.http import MOST_BYTES, Conflict, Http, by_token
from nemo_run._transport.timestamps import nanoseconds, seconds
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
)

BOMBED = """
import resource

from tests.emulators.faults import Fault
from tests.emulators.http import Server
from tests.emulators.oddities import bomb
from nemo_run._transport.http import Http

server = Server(lambda request: {})
a_gibibyte = bomb(64)
server.faults.add(Fault(answer=a_gibibyte, headers={"Content-Encoding": "gzip"}))
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + (300 << 20), used + (300 << 20)))
try:
    Http(server.url, backend="test", patience_s=0).do("GET", "/x")
except Exception as err:
    print(err)
"""


class Api:
    def __init__(self) -> None:
        self.tokens = {"good"}
        self.server = Server(self._answer)

    def _answer(self, request: Request) -> Any:
        if request.path == "/empty":
            return Response(b"", status=204)
        if request.path == "/text":
            return Response(b"<html>")
        if request.path == "/lines":
            return Response(iter([b"one\n", b"two\n"]))
        if request.path == "/private":
            given = request.headers.get("authorization", "")
            if given.removeprefix("Bearer ") not in self.tokens:
                raise Refused(401, f"bad token: {given}")
        return {"method": request.method, "got": request.json}


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.server.stop()


@pytest.fixture
def http(api: Api) -> Http:
    return Http(api.server.url, backend="test", patience_s=5)


def asked(http: Http, path: str) -> str:
    """Return the method that the server says a GET was."""
    return http.ask("GET", path, lambda answer: answer.text("method"))


class TestAnswers:
    def test_json_goes_both_ways(self, http: Http) -> None:
        answer = http.ask("POST", "/x", lambda a: a.data, body={"a": "naïve"})
        assert answer == {"method": "POST", "got": {"a": "naïve"}}

    def test_what_says_no_more_than_that_it_was_done_may_be_empty(self, http: Http) -> None:
        http.do("DELETE", "/empty")

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, BackendError),
            (401, AuthenticationError),
            (403, AuthenticationError),
            (404, JobNotFoundError),
            (409, Conflict),
        ],
    )
    def test_a_refusal_is_an_error_of_its_kind_and_not_repeated(
        self, api: Api, http: Http, status: int, kind: type[BackendError]
    ) -> None:
        fault = api.server.faults.add(Fault(status=status, message="because"))
        with pytest.raises(kind, match="because") as caught:
            http.do("POST", "/x")
        assert fault.met == 1
        assert caught.value.detail == f"{status} because"
        assert caught.value.backend == "test"


class TestOddAnswers:
    @pytest.fixture
    def http(self, api: Api) -> Http:
        return Http(api.server.url, backend="test", patience_s=0)

    @pytest.mark.parametrize("name", sorted(set(ODD) - {"401", "403"}))
    def test_what_is_not_as_it_should_be_says_nothing_and_what_was_expected(
        self, api: Api, http: Http, name: str
    ) -> None:
        api.server.faults.add(Fault(**ODD[name]))
        with pytest.raises(BackendUnavailableError) as caught:
            http.ask("GET", "/x", lambda answer: answer.id("workloadId"))
        said = str(caught.value)
        assert "expected" in said or "not followed" in said or "409" in said or "header" in said
        assert said.isprintable()
        assert len(said) < 1000

    @pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_no_redirect_is_followed(self, api: Api, http: Http, method: str, status: int) -> None:
        other = Api()
        there = {"Location": f"{other.server.url}/x"}
        api.server.faults.add(Fault(status=status, headers=there))
        with pytest.raises(BackendUnavailableError, match=f"{status} .*which is not followed"):
            http.do(method, "/x", body={"secret": "mine"})
        other.server.stop()
        assert other.server.seen == []

    def test_an_answer_that_never_ends_is_given_up(
        self, api: Api, http: Http, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nemo_run._transport.http.ANSWER_S", 0.5)
        api.server.faults.add(Fault(answer=b" " * 1000, drip_s=0.05))
        began = time.monotonic()
        with pytest.raises(BackendUnavailableError, match="no whole answer in"):
            asked(http, "/x")
        assert time.monotonic() - began < 5

    def test_a_head_that_never_ends_is_given_up(
        self, http: Http, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nemo_run._transport.http.ANSWER_S", 0.5)
        listener = socket.create_server(("127.0.0.1", 0))

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while True:
                    connection.sendall(b"X")
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(BackendUnavailableError, match="no whole answer in"):
            asked(Http(url, backend="test", patience_s=0), "/x")
        assert time.monotonic() - began < 5
        listener.close()

    @pytest.mark.parametrize("packed", [False, True])
    def test_an_answer_that_is_too_large_is_given_up(
        self, api: Api, http: Http, packed: bool
    ) -> None:
        body = bomb(3) if packed else b" " * (MOST_BYTES + 1)
        headers = {"Content-Encoding": "gzip"} if packed else {}
        api.server.faults.add(Fault(answer=body, headers=headers))
        with pytest.raises(BackendUnavailableError, match="at most 32 MiB"):
            asked(http, "/x")

    def test_a_bomb_takes_no_memory(self, tmp_path: Path) -> None:
        """In a process of its own, whose memory is limited."""
        program = tmp_path / "program.py"
        program.write_text(BOMBED)
        done = subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "at most 32 MiB" in done.stdout, done.stderr

    def test_a_packed_answer_is_unpacked(self, api: Api, http: Http) -> None:
        body = gzip.compress(b'{"method": "packed"}')
        api.server.faults.add(Fault(answer=body, headers={"Content-Encoding": "gzip"}))
        assert asked(http, "/x") == "packed"


class TestPatience:
    @pytest.mark.parametrize("fault", [{"status": s} for s in (429, 500, 502, 503, 504)])
    def test_a_server_that_is_busy_is_asked_again(
        self, api: Api, http: Http, fault: dict[str, Any]
    ) -> None:
        met = api.server.faults.add(Fault(times=2, **fault))
        assert asked(http, "/x") == "GET"
        assert met.met == 2

    def test_a_connection_that_is_cut_is_made_again(self, api: Api, http: Http) -> None:
        met = api.server.faults.add(Fault(times=2, drop=True))
        assert asked(http, "/x") == "GET"
        assert met.met == 2

    def test_patience_has_an_end(self, api: Api) -> None:
        http = Http(api.server.url, backend="test", patience_s=0.5)
        api.server.faults.add(Fault(status=503))
        with pytest.raises(BackendUnavailableError, match="503"):
            asked(http, "/x")

    def test_a_call_that_must_not_be_repeated_is_not(self, api: Api, http: Http) -> None:
        met = api.server.faults.add(Fault(status=503))
        with pytest.raises(BackendUnavailableError):
            http.do("POST", "/x", once=True)
        assert met.met == 1

    def test_a_server_that_is_not_there_is_unavailable(self, api: Api) -> None:
        api.server.stop()
        http = Http(api.server.url, backend="test", patience_s=0)
        with pytest.raises(BackendUnavailableError):
            asked(http, "/x")

    def test_a_silent_server_is_given_up(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("nemo_run._transport.http.READ_S", 0.2)
        api.server.faults.add(Fault(delay_s=30))
        http = Http(api.server.url, backend="test", patience_s=0)
        with pytest.raises(BackendUnavailableError, match="timed out"):
            asked(http, "/x")
        api.server.faults.clear()


class TestTokens:
    def test_a_refused_token_is_replaced_once(self, api: Api) -> None:
        given: list[str | None] = []

        def token(refused: str | None) -> str:
            given.append(refused)
            return "good" if refused else "stale"

        http = Http(by_token(api.server.url, token), backend="test")
        assert asked(http, "/private") == "GET"
        assert given == [None, "stale"]

    def test_a_token_that_is_refused_twice_is_an_error(self, api: Api) -> None:
        http = Http(by_token(api.server.url, lambda refused: "bad"), backend="test")
        with pytest.raises(AuthenticationError):
            asked(http, "/private")
        assert len(api.server.seen) == 2

    def test_passwords_of_other_programs_are_not_sent(
        self, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login me password mine\n")
        netrc.chmod(0o600)
        monkeypatch.setenv("NETRC", str(netrc))
        http = Http(by_token(api.server.url, lambda refused: "good"), backend="test")
        assert asked(http, "/private") == "GET"
        asked(Http(api.server.url, backend="test"), "/x")
        assert "authorization" not in api.server.seen[-1].headers


class TestStreams:
    def test_a_stream_is_passed_on(self, http: Http) -> None:
        assert b"".join(http.stream("/lines")) == b"one\ntwo\n"

    def test_a_stream_that_is_cut_is_no_end(self, api: Api, http: Http) -> None:
        api.server.faults.add(Fault(cut_after=5))
        got = b""
        with pytest.raises(BackendUnavailableError):
            for block in http.stream("/lines"):
                got += block
        assert got in (b"one\n", b"one\nt")


def test_a_forked_process_has_connections_of_its_own(api: Api, http: Http) -> None:
    asked(http, "/x")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(asked(http, "/x") is None)
        finally:
            os._exit(code)
    for _ in range(20):
        assert asked(http, "/x") == "GET"
    assert os.waitpid(child, 0)[1] == 0


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1970-01-01T00:00:01Z", 10**9),
            ("1970-01-01T00:00:01.5Z", 1_500_000_000),
            ("1970-01-01T00:00:00.000000001Z", 1),
            ("1970-01-01T02:00:00+02:00", 0),
            ("2024-02-29T12:30:45.123456789Z", 1_709_209_845_123_456_789),
        ],
    )
    def test_any_precision_and_zone_is_read(self, text: str, expected: int) -> None:
        assert nanoseconds(text) == expected
        assert seconds(text) == pytest.approx(expected / 1e9)

    @pytest.mark.parametrize("text", ["", "yesterday", "2024-02-29", "2024-02-29T12:30:45"])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="not a time"):
            nanoseconds(text)
