"""Answers that a cluster should not give: none changes what is known of a job."""

from __future__ import annotations

import pytest
from tests import patience
from tests.contract.backends import KubeflowCluster
from tests.emulators.faults import Fault
from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.oddities import FEW, ODD, bomb
from torchx.specs import AppState

from nemo_run.exceptions import BackendError, NemoRunError

pytestmark = pytest.mark.slow


def test_a_job_that_runs_is_still_known_to_run_and_why_nothing_newer_is(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    go = bare.scratch / "go"
    app_id = bare.schedule(f"until [ -e '{go}' ]; do sleep 0.05; done")
    bare.wait_until_running(app_id)
    for name in sorted(ODD):
        with emulator.faults.on(Fault(**ODD[name])):
            during = bare.status(app_id)
        assert during is not None, name
        assert during.state is AppState.RUNNING, name
        assert "kubeflow cannot be" in during.message, name
        assert during.message.isprintable(), name
    go.touch()
    assert bare.wait(app_id).state is AppState.SUCCEEDED


@pytest.mark.parametrize("name", [*FEW, "a redirect", "a conflict"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("POST", "/trainjobs$", id="trainjob"),
        pytest.param("POST", "/secrets$", id="secret"),
        pytest.param("GET", "/v1alpha1$", id="resources"),
    ],
)
def test_a_job_is_submitted_once_through_a_few_of_them(
    bare: KubeflowCluster, emulator: KubernetesEmulator, name: str, method: str, path: str
) -> None:
    odd = {**ODD[name], "method": method, "path": path, "times": 1}
    emulator.faults.add(Fault(**odd, handled=method == "POST"))
    app_id = bare.schedule("echo hi")
    assert bare.wait(app_id).state is AppState.SUCCEEDED
    assert len(emulator.created) == 1
    assert bare.lines(app_id) == ["hi\n"]


@pytest.mark.parametrize("name", [*FEW, "a redirect", "401"])
def test_neither_cancelling_nor_reading_raises_anything_else_than_our_errors(
    bare: KubeflowCluster, emulator: KubernetesEmulator, name: str
) -> None:
    app_id = bare.schedule("echo up; sleep 60")
    bare.wait_for_line(app_id, "up\n")
    with emulator.faults.on(Fault(**ODD[name])):
        with patience.quick_retries(), pytest.raises(BackendError):
            bare.cancel(app_id)
        try:
            list(bare.scheduler.log_iter(app_id, "job"))
        except NemoRunError as err:
            assert str(err).isprintable()
    bare.cancel(app_id)
    assert bare.wait(app_id).state is AppState.CANCELLED


@pytest.mark.parametrize("name", ["wrong types", "a page", "an empty object"])
def test_files_travel_through_odd_answers_about_the_pod_that_moves_them(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, name: str
) -> None:
    emulator.faults.add(Fault(method="GET", path=r"/pods/[^/]*-put-[^/]*$", times=1, **ODD[name]))
    app_id = cluster.schedule("echo hi")
    assert cluster.wait(app_id).state is AppState.SUCCEEDED


def test_a_bomb_says_nothing_about_a_job(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    with emulator.held():
        app_id = bare.schedule("true")
        emulator.faults.add(Fault(answer=bomb(8), headers={"Content-Encoding": "gzip"}))
        status = bare.status(app_id)
        emulator.faults.clear()
    assert status is not None
    assert "expected an answer of at most 32 MiB" in status.message
    assert bare.wait(app_id).state is AppState.SUCCEEDED
