"""Outages, cut connections and answers that are lost do no harm."""

from __future__ import annotations

import threading
import time

import pytest
from tests.contract.backends import KubeflowCluster
from tests.emulators.faults import Fault
from tests.emulators.kubernetes import KubernetesEmulator
from tests.integration.kubeflow.waiting import until
from torchx.specs import AppState, is_terminal

from nemo_run.exceptions import BackendUnavailableError, ConnectionLostError, SubmitError

pytestmark = pytest.mark.slow

TRAINJOBS = r"/trainjobs$"


def test_an_answer_that_is_lost_does_not_make_two_jobs(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    emulator.faults.add(Fault(method="POST", path=TRAINJOBS, times=1, handled=True, drop=True))
    emulator.faults.add(Fault(method="POST", path="/secrets$", times=1, handled=True, status=503))
    app_id = bare.schedule("echo once")
    assert bare.wait(app_id).state is AppState.SUCCEEDED
    assert bare.lines(app_id) == ["once\n"]
    assert len(emulator.created) == 1


def test_an_answer_that_is_lost_does_not_keep_files_from_travelling(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    emulator.faults.add(Fault(method="POST", path="/pods$", times=1, handled=True, drop=True))
    app_id = cluster.schedule("echo once")
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert len(emulator.movers) == 1


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429}, {"drop": True}])
def test_a_busy_server_is_asked_again(
    bare: KubeflowCluster, emulator: KubernetesEmulator, fault: dict[str, int]
) -> None:
    emulator.faults.add(Fault(times=4, **fault))  # type: ignore[arg-type]
    app_id = bare.schedule("echo hi")
    assert bare.wait(app_id).state is AppState.SUCCEEDED
    assert len(emulator.created) == 1


def test_a_job_that_is_refused_leaves_nothing(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    with pytest.raises(SubmitError, match="numNodez"):
        bare.schedule("true", container_kwargs={"numNodez": 1})
    assert (emulator.created, emulator.secrets) == ([], {})
    (state,) = bare.listed().values()
    assert state is AppState.FAILED


def test_an_outage_does_not_hide_why_a_job_was_refused(
    bare: KubeflowCluster, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.faults.add(Fault(method="DELETE", path="/secrets/", status=503))
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
    with pytest.raises(SubmitError, match="numNodez"):
        bare.schedule("true", container_kwargs={"numNodez": 1})


def test_a_secret_whose_answer_was_lost_does_not_stay_without_its_job(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    emulator.faults.add(Fault(method="POST", path="/secrets$", times=1, handled=True, drop=True))
    emulator.faults.add(Fault(method="GET", path="/secrets/", status=403))
    with pytest.raises(SubmitError, match="was not submitted"):
        bare.schedule("true")
    assert (emulator.created, emulator.secrets) == ([], {})


def test_a_cluster_that_does_not_know_trainjobs_now_says_nothing_about_a_job(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    with emulator.held():
        app_id = bare.schedule("echo hi")
        emulator.kubeflow = False  # say, while it is upgraded
        status = bare.status(app_id)
        assert status is not None
        assert not is_terminal(status.state)
        assert "no TrainJobs are known" in status.message
        emulator.kubeflow = True
    assert bare.wait(app_id).state is AppState.SUCCEEDED


def test_a_job_of_which_nobody_could_say_that_it_was_created_is_found_later(
    bare: KubeflowCluster, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = bare.plan("echo once")
    emulator.faults.add(Fault(method="POST", path=TRAINJOBS, handled=True, delay_s=100))

    def cut() -> None:
        until(lambda: emulator.created, timeout_s=100 * 60)
        emulator.server.stop()

    thread = threading.Thread(target=cut)
    now = time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
        thread.start()
        with pytest.raises(ConnectionLostError, match="not known whether"):
            bare.scheduler.schedule(planned)
        thread.join()
    emulator.faults.clear()
    emulator.server.start()
    app_id = bare.scheduler.submitted(planned)
    assert app_id is not None
    assert bare.wait(app_id).state is AppState.SUCCEEDED
    assert bare.scheduler.schedule(planned) == app_id
    assert len(emulator.created) == 1


@pytest.mark.parametrize("path", [TRAINJOBS, r"/secrets$"])
def test_a_job_that_was_never_created_leaves_no_secret_once_it_is_cancelled(
    bare: KubeflowCluster, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    made = path != TRAINJOBS
    now = time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
        with (
            emulator.faults.on(Fault(method="POST", path=path, status=503, handled=made)),
            pytest.raises(ConnectionLostError),
        ):
            bare.schedule("true")
    assert len(emulator.secrets) == 1
    (app_id,) = bare.listed()
    bare.cancel(app_id)
    assert emulator.secrets == {}


def test_a_job_that_may_be_ours_and_cannot_be_looked_at_is_not_given_up(
    bare: KubeflowCluster, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.faults.add(Fault(method="POST", path=TRAINJOBS, times=1, handled=True, drop=True))
    emulator.faults.add(Fault(method="GET", path="/trainjobs/", skip=1, status=503))
    now = time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
        with pytest.raises(ConnectionLostError, match="not known whether"):
            bare.schedule("true")
    emulator.faults.clear()
    assert len(emulator.created) == 1
    (app_id,) = bare.listed()
    assert bare.wait(app_id).state is AppState.SUCCEEDED


def test_a_job_that_could_not_be_submitted_for_an_outage_can_be_later(
    bare: KubeflowCluster, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = bare.plan("echo once")
    now = time.monotonic
    with emulator.unreachable(), monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
        with pytest.raises(BackendUnavailableError):
            bare.scheduler.schedule(planned)
    assert bare.scheduler.submitted(planned) is None
    app_id = bare.scheduler.schedule(planned)
    assert bare.wait(app_id).state is AppState.SUCCEEDED
    assert len(emulator.created) == 1


def test_a_log_that_is_cut_goes_on_after_the_last_whole_line(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    emulator.faults.add(Fault(path="/log$", times=3, cut_after=150))
    app_id = cluster.schedule("for i in $(seq 60); do echo line $i; sleep 0.01; done")
    lines = cluster.lines(app_id, should_tail=True)
    assert lines == [f"line {i}\n" for i in range(1, 61)]


def test_following_outlives_an_outage(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    go = cluster.scratch / "go"
    app_id = cluster.schedule(f"echo one; until [ -e '{go}' ]; do sleep 0.05; done; echo two")
    lines = iter(cluster.scheduler.log_iter(app_id, "job", should_tail=True))
    assert next(lines) == "one\n"
    with emulator.unreachable():
        go.touch()
        until(lambda: not emulator.created[0].pods[0].container.running)  # type: ignore[union-attr]
    assert list(lines) == ["two\n"]
    assert cluster.wait(app_id).state is AppState.SUCCEEDED


def test_a_log_that_cannot_be_had_now_is_an_error(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    app_id = cluster.schedule("echo hi")
    cluster.wait(app_id)
    with emulator.unreachable(), pytest.raises(BackendUnavailableError):
        list(cluster.scheduler.log_iter(app_id, "job"))


def test_cancelling_tries_through_a_short_outage(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    app_id = cluster.schedule("echo up; sleep 60")
    cluster.wait_for_line(app_id, "up\n")
    emulator.faults.add(Fault(times=5, status=503))
    cluster.cancel(app_id)
    assert cluster.wait(app_id).state is AppState.CANCELLED
    until(lambda: not emulator.pods)
