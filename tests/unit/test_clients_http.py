"""The HTTP that clients stand on: time-outs, back-off, tokens, errors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.emulators.faults import Fault
from tests.emulators.http import Refused, Request, Response, Server

from nemo_run._clients.http import Conflict, Http
from nemo_run._clients.rfc3339 import nanoseconds, seconds
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
)


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


class TestAnswers:
    def test_json_goes_both_ways(self, http: Http) -> None:
        answer = http.json("POST", "/x", body={"a": "naïve"})
        assert answer == {"method": "POST", "got": {"a": "naïve"}}

    def test_no_content_is_none(self, http: Http) -> None:
        assert http.json("GET", "/empty") is None

    def test_what_is_no_json_is_told(self, http: Http) -> None:
        with pytest.raises(BackendError, match="no JSON: <html>"):
            http.json("GET", "/text")

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
            http.json("GET", "/x")
        assert fault.met == 1
        assert caught.value.detail == f"{status} because"
        assert caught.value.backend == "test"


class TestPatience:
    @pytest.mark.parametrize("fault", [{"status": s} for s in (429, 500, 502, 503, 504)])
    def test_a_server_that_is_busy_is_asked_again(
        self, api: Api, http: Http, fault: dict[str, Any]
    ) -> None:
        met = api.server.faults.add(Fault(times=2, **fault))
        assert http.json("GET", "/x")["method"] == "GET"
        assert met.met == 2

    def test_a_connection_that_is_cut_is_made_again(self, api: Api, http: Http) -> None:
        met = api.server.faults.add(Fault(times=2, drop=True))
        assert http.json("GET", "/x")["method"] == "GET"
        assert met.met == 2

    def test_patience_has_an_end(self, api: Api) -> None:
        http = Http(api.server.url, backend="test", patience_s=0.5)
        api.server.faults.add(Fault(status=503))
        began = time.monotonic()
        with pytest.raises(BackendUnavailableError, match="503"):
            http.json("GET", "/x")
        assert time.monotonic() - began < 3

    def test_a_call_that_must_not_be_repeated_is_not(self, api: Api, http: Http) -> None:
        met = api.server.faults.add(Fault(status=503))
        with pytest.raises(BackendUnavailableError):
            http.json("POST", "/x", once=True)
        assert met.met == 1

    def test_a_server_that_is_not_there_is_unavailable(self, api: Api) -> None:
        api.server.stop()
        http = Http(api.server.url, backend="test", patience_s=0)
        with pytest.raises(BackendUnavailableError):
            http.json("GET", "/x")

    def test_a_silent_server_is_given_up(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("nemo_run._clients.http.READ_S", 0.2)
        api.server.faults.add(Fault(delay_s=30))
        http = Http(api.server.url, backend="test", patience_s=0)
        with pytest.raises(BackendUnavailableError, match="timed out"):
            http.json("GET", "/x")
        api.server.faults.clear()


class TestTokens:
    def test_a_refused_token_is_replaced_once(self, api: Api) -> None:
        given: list[str | None] = []

        def token(refused: str | None) -> str:
            given.append(refused)
            return "good" if refused else "stale"

        http = Http(api.server.url, backend="test", token=token)
        assert http.json("GET", "/private")["method"] == "GET"
        assert given == [None, "stale"]

    def test_a_token_that_is_refused_twice_is_an_error(self, api: Api) -> None:
        http = Http(api.server.url, backend="test", token=lambda refused: "bad")
        with pytest.raises(AuthenticationError):
            http.json("GET", "/private")
        assert len(api.server.seen) == 2

    def test_passwords_of_other_programs_are_not_sent(
        self, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login me password mine\n")
        netrc.chmod(0o600)
        monkeypatch.setenv("NETRC", str(netrc))
        http = Http(api.server.url, backend="test", token=lambda refused: "good")
        assert http.json("GET", "/private")["method"] == "GET"
        Http(api.server.url, backend="test").json("GET", "/x")
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
    http.json("GET", "/x")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(http.json("GET", "/x") is None)
        finally:
            os._exit(code)
    for _ in range(20):
        assert http.json("GET", "/x")["method"] == "GET"
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
