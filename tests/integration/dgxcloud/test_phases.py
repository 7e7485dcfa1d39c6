"""What Run:ai says of a workload, and what we make of it."""

from __future__ import annotations

import logging
import time

import pytest
from tests.contract.backends import DGXCloudCluster
from tests.emulators.faults import Fault
from tests.emulators.runai import RunaiEmulator
from torchx.specs import AppState

from nemo_run.core.execution.dgxcloud import DGXCloudState
from nemo_run.run.torchx_backend.schedulers.dgxcloud import DGX_STATES

pytestmark = pytest.mark.slow

EXPECTED = {
    "Creating": AppState.PENDING,
    "Initializing": AppState.SUBMITTED,
    "Resuming": AppState.RUNNING,
    "Pending": AppState.PENDING,
    "Deleting": AppState.RUNNING,
    "Running": AppState.RUNNING,
    "Updating": AppState.RUNNING,
    "Stopped": AppState.CANCELLED,
    "Stopping": AppState.CANCELLED,
    "Degraded": AppState.FAILED,
    "Failed": AppState.FAILED,
    "Completed": AppState.SUCCEEDED,
    "Terminating": AppState.RUNNING,
    "Unknown": AppState.PENDING,
}


def test_every_phase_has_a_state() -> None:
    assert {state.value: DGX_STATES[state] for state in DGXCloudState} == EXPECTED


@pytest.mark.parametrize("phase", sorted(set(EXPECTED) - {"Degraded"}))
def test_a_phase_is_reported_as_its_state(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, phase: str
) -> None:
    app_id = cluster.schedule("sleep 60")
    (workload,) = emulator.jobs()
    emulator.say_phase(workload.id, phase)
    status = cluster.status(app_id)
    assert status is not None
    # One that waits does not become SUBMITTED again.
    assert status.state is (AppState.PENDING if phase == "Initializing" else EXPECTED[phase])


def test_a_workload_that_is_degraded_may_recover(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    app_id = cluster.schedule("echo up; sleep 60")
    cluster.wait_for_line(app_id, "up\n")
    (workload,) = emulator.jobs()
    emulator.say_phase(workload.id, "Degraded")
    status = cluster.status(app_id)
    assert status is not None
    assert (status.state, "degraded" in status.message) == (AppState.RUNNING, True)
    emulator.phases.clear()
    cluster.cancel(app_id)
    assert cluster.wait(app_id).state is AppState.CANCELLED


def test_a_workload_that_is_degraded_by_a_pod_that_failed_has_failed(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    app_id = cluster.schedule("exit 7")
    (workload,) = emulator.jobs()
    while workload.phase != "Failed":
        time.sleep(0.02)
    emulator.say_phase(workload.id, "Degraded")
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 7)


def test_a_phase_that_is_new_to_us_is_no_failure_and_said_once(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    app_id = cluster.schedule("sleep 60")
    (workload,) = emulator.jobs()
    emulator.say_phase(workload.id, "Hibernating")
    with caplog.at_level(logging.WARNING):
        states = {cluster.scheduler.describe(app_id).state for _ in range(3)}
    assert states == {AppState.PENDING}
    assert [r.getMessage() for r in caplog.records if "Hibernating" in r.getMessage()] == [
        "Run:ai reported the unknown phase 'Hibernating'"
    ]


@pytest.mark.parametrize("phase", ["Unknown", "Hibernating"])
def test_a_job_that_ran_is_not_put_back_by_what_says_nothing_about_it(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, phase: str
) -> None:
    app_id = cluster.schedule("echo up; sleep 60")
    cluster.wait_for_line(app_id, "up\n")
    cluster.wait_until_running(app_id)
    (workload,) = emulator.jobs()
    emulator.say_phase(workload.id, phase)
    described = cluster.scheduler.describe(app_id)
    assert (described.state, "cannot tell" in described.msg) == (AppState.RUNNING, True)
    emulator.phases.clear()
    cluster.cancel(app_id)
    assert cluster.wait(app_id).state is AppState.CANCELLED


class TestDeleted:
    def test_a_job_whose_workload_was_deleted_was_cancelled(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 60")
        cluster.wait_for_line(app_id, "up\n")
        (workload,) = emulator.jobs()
        workload.delete()
        end = cluster.wait(app_id)
        assert end.state is AppState.CANCELLED
        assert "deleted" in end.message

    def test_a_job_that_had_succeeded_before_has_succeeded(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("true")
        (workload,) = emulator.jobs()
        while workload.phase != "Completed":
            time.sleep(0.02)
        workload.delete()
        while not workload.deleted_at:
            time.sleep(0.02)
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_nothing_is_claimed_of_a_job_that_run_ai_does_not_know_at_all(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("sleep 60")
        (workload,) = emulator.jobs()
        del emulator.workloads[workload.id]
        status = cluster.status(app_id)
        workload.close()
        assert status is not None
        assert status.state is AppState.UNKNOWN
        assert "404" in status.message


class TestCancelling:
    @pytest.mark.parametrize(("nodes", "kind"), [(1, "trainings"), (2, "distributed")])
    def test_a_workload_is_suspended_as_what_it_is(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, nodes: int, kind: str
    ) -> None:
        app_id = cluster.schedule("sleep 60", nodes=nodes)
        (workload,) = emulator.jobs()
        cluster.cancel(app_id)
        asked = [r.path for r in emulator.server.requests("POST", ".*/suspend")]
        assert asked == [f"/api/v1/workloads/{kind}/{workload.id}/suspend"]
        assert workload.phase == "Stopped"
        assert workload.running_pods == []

    @pytest.mark.parametrize("unknown", [404, 405])
    def test_an_older_control_plane_is_asked_as_it_wants(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, unknown: int
    ) -> None:
        emulator.old = True
        emulator.faults.add(Fault(method="POST", path="/suspend$", status=unknown))
        app_id = cluster.schedule("sleep 60")
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_a_job_that_is_still_queued_is_cancelled(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        cluster.wait(cluster.schedule("true", name="first"))  # leaves the mover running
        with emulator.held():
            app_id = cluster.schedule("touch /workspace/ran")
            cluster.cancel(app_id)
            assert cluster.wait(app_id).state is AppState.CANCELLED
        assert not (emulator.volume("work") / "ran").exists()


def test_a_running_workload_can_be_suspended_and_resumed_by_others(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    app_id = cluster.schedule("echo up; sleep 0.5")
    cluster.wait_for_line(app_id, "up\n")
    (workload,) = emulator.jobs()
    client = cluster.executor()._client()  # type: ignore[attr-defined]
    client.suspend("trainings", workload.id)
    while workload.phase != "Stopped":
        time.sleep(0.02)
    client.resume("trainings", workload.id)
    end = cluster.wait(app_id)
    assert end.state is AppState.SUCCEEDED
