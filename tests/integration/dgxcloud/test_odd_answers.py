"""Answers that Run:ai and its cluster should not give: none changes what is known of a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import patience
from tests.contract.backends import DGXCloudCluster
from tests.emulators.faults import Fault
from tests.emulators.http import Request, Server
from tests.emulators.oddities import FEW, ODD
from tests.emulators.runai import CLIENT_SECRET, RunaiEmulator
from torchx.specs import AppState

from nemo_run.exceptions import BackendError, BackendUnavailableError, NemoRunError, SubmitError

pytestmark = pytest.mark.slow

KUBERNETES = "/namespaces/"


def test_a_job_that_runs_is_still_known_to_run_and_why_nothing_newer_is(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    go = cluster.scratch / "go"
    app_id = cluster.schedule(f"until [ -e '{go}' ]; do sleep 0.05; done")
    cluster.wait_until_running(app_id)
    for name in sorted(ODD):
        with emulator.faults.on(Fault(**ODD[name])):
            during = cluster.status(app_id)
        assert during is not None, name
        assert during.state is AppState.RUNNING, name
        assert "dgx_cloud cannot be" in during.message, name
        assert during.message.isprintable(), name
    go.touch()
    assert cluster.wait(app_id).state is AppState.SUCCEEDED


@pytest.mark.parametrize("name", [*FEW, "a redirect", "a conflict"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("POST", "/trainings$", id="create"),
        pytest.param("GET", "/projects$", id="projects"),
    ],
)
def test_a_job_is_submitted_once_through_a_few_of_them(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, name: str, method: str, path: str
) -> None:
    odd = {**ODD[name], "method": method, "path": path, "times": 1}
    emulator.faults.add(Fault(**odd, handled=method == "POST"))
    app_id = cluster.schedule("echo hi")
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert len(emulator.jobs()) == 1
    assert cluster.lines(app_id) == ["hi\n"]


@pytest.mark.parametrize("name", ["wrong types", "a page", "an empty object", "deep nesting"])
def test_a_job_that_ended_is_known_to_have_once_it_can_be_asked(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, name: str
) -> None:
    app_id = cluster.schedule("exit 3")
    emulator.faults.add(Fault(path=KUBERNETES, times=3, **ODD[name]))
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 3)


@pytest.mark.parametrize("name", [*FEW, "a redirect", "401"])
def test_neither_cancelling_nor_reading_raises_anything_else_than_our_errors(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, name: str
) -> None:
    app_id = cluster.schedule("echo up; sleep 60")
    cluster.wait_for_line(app_id, "up\n")
    with emulator.faults.on(Fault(**ODD[name])):
        with patience.quick_retries(), pytest.raises(BackendError):
            cluster.cancel(app_id)
        try:
            list(cluster.scheduler.log_iter(app_id, "job"))
        except NemoRunError as err:
            assert str(err).isprintable()
    cluster.cancel(app_id)
    assert cluster.wait(app_id).state is AppState.CANCELLED


class TestRedirects:
    """To another server, which would learn the secret, or have the job."""

    @pytest.fixture
    def elsewhere(self) -> Server:
        def answer(request: Request) -> dict[str, str]:
            return {"accessToken": "theirs", "workloadId": "theirs", "name": "theirs"}

        return Server(answer)

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    def test_the_secret_does_not_follow(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, elsewhere: Server, status: int
    ) -> None:
        there = {"Location": f"{elsewhere.url}/api/v1/token"}
        emulator.faults.add(Fault(path="/token$", status=status, headers=there))
        client = cluster.executor()._client()  # type: ignore[attr-defined]
        with pytest.raises(BackendUnavailableError, match="which is not followed") as caught:
            client.token()
        elsewhere.stop()
        assert elsewhere.seen == []
        assert CLIENT_SECRET not in str(caught.value)

    def test_a_job_does_not_follow(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, elsewhere: Server
    ) -> None:
        there = {"Location": f"{elsewhere.url}/api/v1/workloads/trainings"}
        emulator.faults.add(
            Fault(method="POST", path="/trainings$", status=307, headers=there, times=2)
        )
        app_id = cluster.schedule("true")
        elsewhere.stop()
        assert elsewhere.seen == []
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert len(emulator.jobs()) == 1


def test_another_workload_than_was_asked_for_is_not_taken_for_ours(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    theirs = b'{"workloadId": "w-1", "name": "theirs", "projectId": "28", "actualPhase": "Running"}'
    fault = Fault(method="POST", path="/trainings$", answer=theirs, status=202, times=1)
    emulator.faults.add(fault)
    app_id = cluster.schedule("echo mine")
    assert fault.met == 1
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["mine\n"]


def test_pages_without_end_are_given_up(cluster: DGXCloudCluster, emulator: RunaiEmulator) -> None:
    item = '{"id": "w-%d", "name": "many", "projectId": "28", "phase": "Running"}'
    page = ", ".join(item % number for number in range(50))
    emulator.faults.add(
        Fault(method="GET", path="/workloads$", answer=f'{{"workloads": [{page}]}}'.encode())
    )
    client = cluster.executor()._client()  # type: ignore[attr-defined]
    with pytest.raises(BackendUnavailableError, match="no end of workloads"):
        client.named("many")


def test_a_gateway_in_front_of_all_says_what_was_expected(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, tmp_path: Path
) -> None:
    emulator.faults.add(Fault(**ODD["a page"]))
    with pytest.raises((SubmitError, BackendUnavailableError), match="expected JSON"):
        cluster.executor().get_project_and_cluster_id("token")  # type: ignore[attr-defined]
