"""What the emulators stand on: containers that are real, and servers that fail on demand."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import patience
from tests.emulators.faults import Fault, Faults
from tests.emulators.http import Refused, Request, Response, Routes, Server
from tests.emulators.processes import Container, ContainerSpec, alive

pytestmark = pytest.mark.slow


def run(tmp_path: Path, script: str, **settings: object) -> Container:
    spec = ContainerSpec(argv=("/bin/bash", "-c", script), **settings)  # type: ignore[arg-type]
    return Container(spec, tmp_path / "container")


class TestContainer:
    def test_a_program_has_the_given_environment_and_little_else(self, tmp_path: Path) -> None:
        show = "import json, os; print(json.dumps(dict(os.environ)))"
        spec = ContainerSpec(argv=("python3", "-c", show), env={"A": "x\ny $HOME", "a.b": "c"})
        container = Container(spec, tmp_path / "container")
        assert container.wait(patience.seconds(20)) == 0
        seen = json.loads(container.log.text)
        assert seen.pop("A") == "x\ny $HOME"
        assert seen.pop("a.b") == "c"
        assert seen.keys() <= {"PATH", "HOME", "LC_CTYPE"}

    def test_a_mount_is_a_directory_under_another_name(self, tmp_path: Path) -> None:
        (tmp_path / "volume").mkdir()
        # Jobs of others on this machine may have put one there.
        before = os.path.lexists("/nemo_run")
        container = run(
            tmp_path,
            "echo hello > /nemo_run/file; mkdir /at-root; ln -s /nemo_run /link; cat /link/file",
            mounts={"/nemo_run": tmp_path / "volume"},
        )
        assert container.wait(patience.seconds(20)) == 0
        assert container.log.text == "hello\n"
        assert (tmp_path / "volume" / "file").read_text() == "hello\n"
        assert os.path.lexists("/nemo_run") == before
        assert not Path("/at-root").exists()

    def test_a_mount_that_would_change_this_machine_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "volume").mkdir()
        with pytest.raises(ValueError, match="/usr/nowhere"):
            run(tmp_path, "true", mounts={"/usr/nowhere": tmp_path / "volume"})

    def test_files_can_be_hidden_and_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "private").mkdir()
        (tmp_path / "private" / "file").touch()
        container = run(
            tmp_path,
            f"ls -A {tmp_path}/private; getent hosts worker-0.svc",
            hidden=(tmp_path / "private",),
            files={"/etc/hosts": "127.0.0.7 worker-0.svc\n"},
        )
        container.wait(patience.seconds(20))
        assert container.log.text.split() == ["127.0.0.7", "worker-0.svc"]

    @pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
    def test_the_exit_code_is_that_of_the_program(
        self, tmp_path: Path, script: str, code: int
    ) -> None:
        assert run(tmp_path, script).wait(patience.seconds(20)) == code

    def test_a_program_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        container = Container(ContainerSpec(argv=("no-such-program",)), tmp_path / "container")
        assert container.wait(patience.seconds(20)) == 128
        assert "no-such-program" in container.log.text

    def test_all_processes_end_with_the_first(self, tmp_path: Path) -> None:
        container = run(tmp_path, "setsid sleep 60 & echo $!; sleep 0.1")
        container.wait(patience.seconds(20))
        assert not alive(int(container.log.text))

    def test_stopping_ends_what_does_not_listen(self, tmp_path: Path) -> None:
        container = run(tmp_path, "trap '' TERM; (setsid sleep 61 &) ; echo up; sleep 60; sleep 60")
        assert next(container.log.follow()).data == b"up\n"
        container.stop(grace_s=0.2)
        assert not container.running
        assert container.exit_code == 137

    def test_lines_can_be_followed_while_they_come(self, tmp_path: Path) -> None:
        container = run(tmp_path, "echo one; sleep 0.3; printf two")
        lines = list(container.log.follow())
        assert [line.data for line in lines] == [b"one\n", b"two"]
        assert lines[1].time - lines[0].time >= 0.2


ROUTES = Routes()


@ROUTES.on("GET", "/things/{name}")
def thing(request: Request, name: str) -> object:
    if name == "none":
        raise Refused(404, "no such thing")
    return {"name": name, "query": dict(request.query)}


@ROUTES.on("POST", "/things")
def make(request: Request) -> object:
    return Response(request.json, status=201)


@ROUTES.on("GET", "/stream")
def stream(request: Request) -> object:
    return Response(iter([b"one\n", b"two\n", b"three\n"]))


def answer(request: Request) -> object:
    handler, arguments = ROUTES.find(request.method, request.path)
    return handler(request, **arguments)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(answer, faults=Faults())
    yield server
    server.stop()


def get(server: Server, path: str, data: object = None) -> bytes:
    body = None if data is None else json.dumps(data).encode()
    with urllib.request.urlopen(server.url + path, body, timeout=patience.seconds(20)) as reply:
        return bytes(reply.read())


def status_of(server: Server, path: str) -> int:
    try:
        get(server, path)
    except urllib.error.HTTPError as err:
        with err:
            return err.code
    return 200


class TestServer:
    def test_requests_reach_their_function(self, server: Server) -> None:
        assert json.loads(get(server, "/things/a%20b?x=1")) == {"name": "a b", "query": {"x": "1"}}
        assert json.loads(get(server, "/things", {"a": 1})) == {"a": 1}
        assert [r.path for r in server.requests("GET", "/things/.*")] == ["/things/a%20b"]

    def test_who_is_killed_while_asking_has_not_asked(self, server: Server) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(b"POST /things HTTP/1.1\r\nContent-Length: 9\r\n\r\n[1,")
        get(server, "/things/a")
        assert list(server.requests("POST", "/things")) == []

    def test_what_is_not_there_is_404_and_what_is_not_done_405(self, server: Server) -> None:
        assert status_of(server, "/things/none") == 404
        assert status_of(server, "/nothing") == 404
        assert status_of(server, "/things") == 405

    def test_a_stream_comes_in_chunks(self, server: Server) -> None:
        assert get(server, "/stream") == b"one\ntwo\nthree\n"

    def test_it_can_be_stopped_and_started_again(self, server: Server) -> None:
        before = server.port
        server.stop()
        with pytest.raises(urllib.error.URLError):
            get(server, "/things/a")
        server.start()
        assert server.port == before
        assert get(server, "/things/a")


class TestFaults:
    def test_an_answer_can_be_replaced_a_number_of_times(self, server: Server) -> None:
        server.faults.add(Fault(method="GET", path="/things/a", status=503, times=2))
        assert [status_of(server, "/things/a") for _ in range(3)] == [503, 503, 200]

    def test_others_are_not_met(self, server: Server) -> None:
        with server.faults.on(Fault(method="POST", status=500)) as fault:
            assert status_of(server, "/things/a") == 200
        assert fault.met == 0

    def test_a_connection_can_be_dropped_after_the_work_was_done(self, server: Server) -> None:
        done = []
        server.answer = lambda request: done.append(request.path)
        with (
            server.faults.on(Fault(drop=True, handled=True)),
            pytest.raises((http.client.RemoteDisconnected, urllib.error.URLError)),
        ):
            get(server, "/things/a")
        assert done == ["/things/a"]

    def test_a_stream_can_be_cut(self, server: Server) -> None:
        with (
            server.faults.on(Fault(cut_after=6)),
            pytest.raises(http.client.IncompleteRead) as caught,
        ):
            get(server, "/stream")
        assert caught.value.partial == b"one\ntw"

    def test_an_answer_can_be_late(self, server: Server) -> None:
        started = time.monotonic()
        with server.faults.on(Fault(delay_s=0.3)):
            get(server, "/things/a")
        assert time.monotonic() - started >= 0.3
