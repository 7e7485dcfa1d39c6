"""Logs of jobs without a volume are copied when these end, and never stand in the way of that."""

from __future__ import annotations

import threading
import time

import pytest
from tests.contract.backends import KubeflowCluster
from tests.emulators.faults import Fault
from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.kubernetes.operator import Runtime
from tests.integration.kubeflow.waiting import until
from torchx.specs import AppState, is_terminal

from nemo_run.exceptions import BackendUnavailableError

pytestmark = pytest.mark.slow

LOG = "/log$"


def test_several_who_see_the_end_at_once_keep_one_whole_log(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    app_id = bare.schedule("seq 100")
    until(lambda: emulator.created[0].ended)
    emulator.faults.add(Fault(path=LOG, delay_s=30))
    seen: list[AppState] = []

    def look() -> None:
        status = bare.status(app_id)
        assert status is not None
        seen.append(status.state)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(emulator.server.requests("GET", ".*/log")) == 3)
    emulator.faults.clear()
    for thread in threads:
        thread.join()
    assert seen == [AppState.SUCCEEDED] * 3
    emulator.expire(emulator.created[0].name)
    assert bare.lines(app_id) == [f"{number}\n" for number in range(1, 101)]


def test_one_failure_right_after_the_end_does_not_lose_the_log(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    app_id = bare.schedule("echo said")
    until(lambda: emulator.created[0].ended)
    emulator.created[0].conditions.clear()  # Kubeflow says it some time after the pods
    with emulator.faults.on(Fault(path=LOG, status=503)):
        early = bare.status(app_id)
        assert early is not None
        assert not is_terminal(early.state)
    assert bare.wait(app_id).state is AppState.SUCCEEDED
    emulator.expire(emulator.created[0].name)
    assert bare.lines(app_id) == ["said\n"]


class TestOfALostNode:
    """Kubernetes answers with 500 where it cannot reach a node."""

    def test_does_not_hide_the_end_for_long(
        self,
        bare: KubeflowCluster,
        emulator: KubernetesEmulator,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        # Its pod stays when it has failed, and nothing happens any more.
        emulator.runtimes["once"] = Runtime(name="once", restart_policy="Never", backoff_limit=0)
        app_id = bare.schedule("exit 3", runtime_ref="once")
        until(lambda: emulator.created[0].ended)
        emulator.faults.add(Fault(path=LOG, status=500))
        early = bare.status(app_id)
        assert early is not None
        assert not is_terminal(early.state), "the log may be there in a moment"
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 300)
        late = bare.status(app_id)
        assert late is not None
        assert (late.state, late.exit_code) == (AppState.FAILED, 3)

    def test_is_not_followed_for_ever(
        self,
        bare: KubeflowCluster,
        emulator: KubernetesEmulator,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        app_id = bare.schedule("echo said")
        until(lambda: emulator.created[0].ended)
        emulator.faults.add(Fault(path=LOG, status=500))
        now, clock, sleep = time.time, time.monotonic, time.sleep
        monkeypatch.setattr(time, "time", lambda: now() + 300)
        # A second is a minute.
        monkeypatch.setattr(time, "monotonic", lambda: clock() * 60)
        monkeypatch.setattr(time, "sleep", lambda seconds: sleep(seconds / 60))
        with pytest.raises(BackendUnavailableError, match="/log: 500"):
            bare.lines(app_id, should_tail=True)


@pytest.mark.parametrize("status", [403, 500])
def test_a_log_that_cannot_be_read_does_not_keep_a_job_from_being_cancelled(
    bare: KubeflowCluster, emulator: KubernetesEmulator, status: int
) -> None:
    app_id = bare.schedule("echo up; sleep 60")
    bare.wait_for_line(app_id, "up\n")
    emulator.faults.add(Fault(path=LOG, status=status))
    bare.cancel(app_id)
    assert (emulator.trainjobs, emulator.pods) == ({}, {})
    assert bare.wait(app_id).state is AppState.CANCELLED
