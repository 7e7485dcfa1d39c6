"""The client of Run:ai, asked by hand."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest
from tests.emulators.faults import Fault
from tests.emulators.runai import CLIENT_ID, CLIENT_SECRET, RunaiEmulator
from tests.emulators.runai.emulator import CLUSTER_ID

from nemo_run._backends.kubernetes.exec import CommandError
from nemo_run._backends.kubernetes.rest import Kube
from nemo_run._backends.runai.client import RunAI, _expiry
from nemo_run._transport.http import Conflict, Http, by_token
from nemo_run.exceptions import (
    AuthenticationError,
    BackendUnavailableError,
    ConnectionLostError,
    JobNotFoundError,
)

pytestmark = pytest.mark.slow


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(emulator: RunaiEmulator, clock: Clock) -> RunAI:
    return RunAI(emulator.base_url, CLIENT_ID, lambda: CLIENT_SECRET, clock=clock)


def body(name: str, script: str = "true") -> dict[str, Any]:
    return {
        "name": name,
        "projectId": "28",
        "clusterId": CLUSTER_ID,
        "spec": {
            "command": "bash -c",
            "args": f"'{script}'",
            "image": "some/image",
            "storage": {"pvc": [{"name": "work", "path": "/data"}]},
            "backoffLimit": 0,
        },
    }


def tokens(emulator: RunaiEmulator) -> int:
    return len(emulator.server.requests("POST", ".*/token"))


class TestTokens:
    def test_one_is_used_until_shortly_before_it_expires(
        self, client: RunAI, emulator: RunaiEmulator, clock: Clock
    ) -> None:
        first = client.token()
        clock.now += emulator.token_s - 60
        assert client.token() == first
        clock.now += 40
        assert client.token() != first
        assert tokens(emulator) == 2

    def test_a_refused_one_is_replaced_and_only_that(
        self, client: RunAI, emulator: RunaiEmulator
    ) -> None:
        first = client.token()
        second = client.token(refused=first)
        assert second != first
        # Another thread comes back with the same refusal, a little later.
        assert client.token(refused=first) == second
        assert tokens(emulator) == 2

    def test_a_wrong_secret_is_told_without_showing_it(self, emulator: RunaiEmulator) -> None:
        client = RunAI(emulator.base_url, CLIENT_ID, lambda: "my-wrong-secret")
        with pytest.raises(AuthenticationError) as caught:
            client.token()
        assert CLIENT_ID in str(caught.value)
        assert "my-wrong-secret" not in str(caught.value)

    @pytest.mark.parametrize("path", ["", "/api"])
    def test_an_address_that_is_not_that_of_the_api_is_told(
        self, emulator: RunaiEmulator, path: str
    ) -> None:
        client = RunAI(emulator.kube_url + path, CLIENT_ID, lambda: CLIENT_SECRET)
        with pytest.raises(AuthenticationError, match=r"base_url, http://.*, is that of the API"):
            client.token()

    def test_the_time_is_taken_from_the_answer_the_token_or_a_guess(self) -> None:
        claims = base64.urlsafe_b64encode(json.dumps({"exp": 2000}).encode()).decode().rstrip("=")
        assert _expiry("opaque", 60, now=1000) == 1060
        assert _expiry(f"e30.{claims}.sig", None, now=1000) == 2000
        assert 1000 < _expiry("opaque", None, now=1000) <= 1600


def test_who_has_to_wait_is_told_why(
    emulator: RunaiEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    client = RunAI(emulator.base_url, CLIENT_ID, lambda: CLIENT_SECRET, patience_s=60)
    emulator.faults.add(Fault(path="/projects$", status=503, message="be back soon", times=5))
    with caplog.at_level(logging.INFO, logger="nemo_run"):
        assert client.projects("team-a")
    said = [r.getMessage() for r in caplog.records if "trying again" in r.getMessage()]
    assert said
    assert all("503 be back soon" in line for line in said)


class TestWorkloads:
    def test_all_pages_are_read(self, client: RunAI, emulator: RunaiEmulator) -> None:
        with emulator.held():
            names = {client.create("trainings", body(f"many-{n}")).name for n in range(120)}
            assert {workload.name for workload in client.named("many-")} == names
            assert [w.name for w in client.named("many-11")] == [
                "many-11",
                *(f"many-11{n}" for n in range(10)),
            ]
            found = client.find("many-1", "28")
            for workload in emulator.workloads.values():
                workload.suspend()
        assert found is not None
        assert found.name == "many-1"
        assert client.find("many-1", "29") is None
        assert client.find("many", "28") is None

    def test_a_name_is_given_once(self, client: RunAI) -> None:
        first = client.create("trainings", body("once"))
        with pytest.raises(Conflict, match="already exists"):
            client.create("trainings", body("once"))
        assert client.create_named("trainings", body("once")).id == first.id

    def test_a_create_is_sent_once(self, client: RunAI, emulator: RunaiEmulator) -> None:
        fault = emulator.faults.add(Fault(method="POST", path="/trainings$", status=503))
        with pytest.raises(BackendUnavailableError):
            client.create("trainings", body("once"))
        assert fault.met == 1

    def test_trying_to_create_has_an_end(self, client: RunAI, emulator: RunaiEmulator) -> None:
        emulator.faults.add(Fault(method="POST", path="/trainings$", status=503))
        with pytest.raises(BackendUnavailableError) as caught:
            client.create_named("trainings", body("once"), patience_s=0.5)
        assert not isinstance(caught.value, ConnectionLostError)
        assert emulator.workloads == {}

    def test_a_create_of_which_nobody_can_say_what_came_is_told_as_that(
        self, client: RunAI, emulator: RunaiEmulator
    ) -> None:
        emulator.faults.add(Fault(method="POST", path="/trainings$", handled=True, drop=True))
        emulator.faults.add(Fault(method="GET", path="/workloads$", status=503))
        with pytest.raises(ConnectionLostError, match="not known whether workload once"):
            client.create_named("trainings", body("once"), patience_s=0.5)
        emulator.faults.clear()
        assert client.find("once", "28") is not None

    def test_what_is_gone_may_be_deleted_again(self, client: RunAI) -> None:
        client.delete("trainings", "nonsense")
        with pytest.raises(JobNotFoundError):
            client.get("trainings", "nonsense")
        with pytest.raises(JobNotFoundError):
            client.suspend("trainings", "nonsense")

    def test_events_are_told_in_words(self, client: RunAI, emulator: RunaiEmulator) -> None:
        workload = client.create("trainings", body("told"))
        while client.get("trainings", workload.id).phase != "Completed":
            pass
        assert client.events(workload.id)[-1] == "Completed"


class TestCommands:
    @pytest.fixture
    def kube(self, client: RunAI, emulator: RunaiEmulator) -> Kube:
        http = Http(by_token(emulator.kube_url, client.token), backend="dgx_cloud")
        return Kube(http, "runai-team-a")

    @pytest.fixture
    def pod(self, client: RunAI) -> str:
        workload = client.create("workspaces", body("shell", "sleep 60"))
        while client.get("workspaces", workload.id).phase != "Running":
            pass
        (pod,) = client.pods(workload.id)
        return pod.name

    def run(self, kube: Kube, pod: str, *argv: str, stdin: tuple[bytes, ...] = ()) -> bytes:
        return b"".join(kube.run(pod, "main", list(argv), stdin=stdin))

    def test_arguments_and_output_are_passed_as_they_are(self, kube: Kube, pod: str) -> None:
        words = ["a b", "it's", "$HOME", "naïve ☃", "x\ny", ""]
        shown = self.run(kube, pod, "printf", "<%s>", *words)
        assert shown.decode() == "".join(f"<{word}>" for word in words)

    def test_large_input_and_output_arrive_whole(self, kube: Kube, pod: str) -> None:
        # More than all buffers on the way hold, so that both sides have to read while they send.
        blocks = tuple(bytes([n]) * 1_000_003 for n in range(40))
        size = sum(map(len, blocks))
        echoed = self.run(kube, pod, "head", "-c", str(size), stdin=blocks)
        assert echoed == b"".join(blocks)

    def test_what_a_command_says_when_it_fails_is_told(self, kube: Kube, pod: str) -> None:
        with pytest.raises(CommandError, match="no such luck"):
            self.run(kube, pod, "sh", "-c", "echo no such luck >&2; exit 3")

    def test_a_command_needs_not_read_all_it_is_sent(self, kube: Kube, pod: str) -> None:
        assert self.run(kube, pod, "echo", "done", stdin=(b"x" * 5_000_000,)) == b"done\n"

    def test_a_pod_that_is_not_there_is_told(self, kube: Kube) -> None:
        with pytest.raises(JobNotFoundError, match="nonsense"):
            self.run(kube, "nonsense", "true")

    def test_a_connection_that_is_cut_is_told(
        self, kube: Kube, pod: str, emulator: RunaiEmulator
    ) -> None:
        output = kube.run(pod, "main", ["sh", "-c", "echo up; sleep 60"])
        assert next(output) == b"up\n"
        emulator.server.stop()
        with pytest.raises(BackendUnavailableError, match="lost"):
            next(output)

    @pytest.mark.parametrize(("status", "kind"), [(503, BackendUnavailableError), (403, None)])
    def test_a_refusal_is_told(
        self, kube: Kube, pod: str, emulator: RunaiEmulator, status: int, kind: type | None
    ) -> None:
        emulator.faults.add(Fault(path="/exec$", status=status, message="because"))
        with pytest.raises(kind or AuthenticationError, match="because"):
            self.run(kube, pod, "true")

    def test_an_expired_token_is_renewed(
        self, kube: Kube, pod: str, emulator: RunaiEmulator
    ) -> None:
        emulator.expire_tokens()
        assert self.run(kube, pod, "echo", "hi") == b"hi\n"
