"""Trouble between us and Run:ai: the outcome is right, nothing is done twice, nothing hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests import patience
from tests.contract.backends import DGXCloudCluster
from tests.emulators.faults import Fault
from tests.emulators.runai import RunaiEmulator
from tests.integration.dgxcloud.settings import from_the_cluster
from torchx.specs import AppState, is_terminal

from nemo_run.exceptions import AuthenticationError, SubmitError

pytestmark = pytest.mark.slow

MINUTE_S = 1.5
"""A minute, at the pace of the emulator."""

LONG_S = 7.0
"""Longer than anybody tries who only wants to look."""

EXEC = r"/exec$"
KUBERNETES = "/namespaces/"
TRAININGS = r"/workloads/trainings$"


def for_a_minute(
    emulator: RunaiEmulator, fault: Fault, *, seconds: float = MINUTE_S
) -> Callable[[], None]:
    """Have a fault for a while; returns what waits for its end."""
    emulator.faults.add(fault)
    timer = threading.Timer(seconds, emulator.faults.remove, [fault])
    timer.start()
    return timer.join


def wait_for_phase(emulator: RunaiEmulator, phase: str) -> None:
    (job,) = emulator.jobs()
    deadline = patience.deadline(30)
    while job.phase != phase:
        assert time.monotonic() < deadline, job.phase
        time.sleep(0.02)


class TestSubmitting:
    @pytest.mark.parametrize("path", ["/token$", "/projects$", "/workloads$", EXEC, TRAININGS, ""])
    def test_a_job_is_submitted_once_however_busy_the_server_is(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, path: str
    ) -> None:
        ended = for_a_minute(emulator, Fault(path=path, status=503))
        app_id = cluster.schedule("echo hi")
        ended()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert len(emulator.jobs()) == 1
        assert cluster.lines(app_id) == ["hi\n"]

    @pytest.mark.parametrize("fault", [{"status": 503}, {"status": 500}, {"drop": True}])
    def test_a_job_that_was_created_although_the_answer_was_lost_is_found(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, fault: dict[str, object]
    ) -> None:
        lost = Fault(method="POST", path=TRAININGS, times=1, handled=True, **fault)  # type: ignore[arg-type]
        emulator.faults.add(lost)
        app_id = cluster.schedule("echo hi")
        assert lost.met == 1
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert len(emulator.jobs()) == 1

    def test_a_server_that_wants_less_is_given_time(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        emulator.faults.add(Fault(path=TRAININGS, status=429, times=2))
        app_id = cluster.schedule("true")
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert len(emulator.jobs()) == 1

    def test_files_whose_transfer_was_cut_are_sent_again(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        cut = Fault(path=EXEC, drop=True, times=1, handled=True)
        emulator.faults.add(cut)
        app_id = cluster.schedule("echo hi")
        assert cut.met == 1
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_a_refusal_is_told_at_once(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        emulator.faults.add(Fault(path=TRAININGS, status=400, message="quota exceeded"))
        planned = cluster.plan("true")
        with pytest.raises(SubmitError, match="quota exceeded"):
            cluster.scheduler.schedule(planned)
        (app_id,) = cluster.listed()
        status = cluster.status(app_id)
        assert status is not None
        assert status.state is AppState.FAILED

    def test_a_project_that_is_not_there_is_named_with_those_that_are(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        with pytest.raises(SubmitError, match=r"no project 'team-x'.*team-a, team-b"):
            cluster.schedule("true", project_name="team-x")
        assert emulator.workloads == {}

    def test_a_wrong_secret_is_told(
        self, cluster: DGXCloudCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WRONG_SECRET", "nonsense")
        with pytest.raises(AuthenticationError, match="client_secret"):
            cluster.schedule("true", client_secret="env:WRONG_SECRET")


class TestWatching:
    def test_an_outage_of_a_minute_changes_nothing(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("sleep 0.2; exit 3")
        ended = for_a_minute(emulator, Fault(status=503))
        end = cluster.wait(app_id)
        ended()
        assert (end.state, end.exit_code) == (AppState.FAILED, 3)

    def test_an_exit_code_that_the_cluster_cannot_tell_now_is_asked_for_again(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("exit 3")
        wait_for_phase(emulator, "Failed")
        with emulator.faults.on(Fault(path=KUBERNETES, status=503)):
            during = cluster.status(app_id)
        assert during is not None
        assert not is_terminal(during.state)
        assert "cannot be reached" in during.message
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 3)

    def test_an_exit_code_that_is_never_told_is_not_waited_for_for_ever(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nemo_run._backends.runai.jobs.EXIT_CODE_S", 0.0)
        app_id = cluster.schedule("exit 3")
        wait_for_phase(emulator, "Failed")
        with emulator.faults.on(Fault(path=KUBERNETES, status=503)):
            end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, None)

    def test_a_success_needs_no_exit_code(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("true")
        wait_for_phase(emulator, "Completed")
        with emulator.faults.on(Fault(path=KUBERNETES, status=503)):
            end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.SUCCEEDED, 0)

    def test_why_a_server_cannot_be_reached_is_said_in_words(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("sleep 60")
        with emulator.unreachable():
            during = cluster.status(app_id)
        assert during is not None
        assert during.message.endswith("Connection refused")
        assert " object at 0x" not in during.message

    def test_a_restart_changes_nothing(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("sleep 0.5; echo hi")
        emulator.server.stop()
        time.sleep(0.3)
        emulator.server.start()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["hi\n"]

    def test_an_expired_token_is_renewed(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("sleep 0.3; echo hi")
        emulator.expire_tokens()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        emulator.expire_tokens()
        assert cluster.lines(app_id) == ["hi\n"]
        emulator.expire_tokens()
        cluster.cancel(app_id)

    def test_a_token_is_used_until_it_expires(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("true")
        cluster.wait(app_id)
        asked = len(emulator.server.requests("POST", ".*/token"))
        for number in range(3):
            cluster.wait(cluster.schedule("true", name=f"more-{number}"))
        assert len(emulator.server.requests("POST", ".*/token")) == asked

    def test_a_server_that_never_answers_is_not_waited_for_for_ever(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nemo_run._transport.http.READ_S", 0.5)
        app_id = cluster.schedule("echo up; sleep 60")
        cluster.wait_for_line(app_id, "up\n")
        before = cluster.status(app_id)
        emulator.faults.add(Fault(delay_s=60))
        began = time.monotonic()
        during = cluster.status(app_id)
        assert time.monotonic() - began < patience.seconds(20)
        emulator.faults.clear()
        assert before is not None
        assert during is not None
        assert during.state is before.state
        assert "cannot be reached" in during.message


COUNTING = "for i in $(seq 30); do echo line $i; sleep 0.05; done"
COUNTED = [f"line {i}\n" for i in range(1, 31)]


class TestFollowing:
    def follow(self, cluster: DGXCloudCluster, disturb: Callable[[], object]) -> list[str]:
        """Follow a job that counts, with something happening in the middle."""
        app_id = cluster.schedule(COUNTING)
        lines = []
        for line in cluster.scheduler.log_iter(app_id, "job", should_tail=True):
            lines.append(line)
            if len(lines) == 5:
                disturb()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        return lines

    def test_a_restart_in_the_middle_loses_and_repeats_nothing(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        def restart() -> None:
            emulator.server.stop()
            time.sleep(0.3)
            emulator.server.start()

        assert self.follow(cluster, restart) == COUNTED

    def test_an_outage_in_the_middle_loses_and_repeats_nothing(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        def outage() -> None:
            emulator.server.stop()
            emulator.server.start()
            for_a_minute(emulator, Fault(status=503))

        assert self.follow(cluster, outage) == COUNTED

    def test_following_may_begin_in_an_outage(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule(COUNTING)
        ended = for_a_minute(emulator, Fault(status=503), seconds=LONG_S)
        assert cluster.lines(app_id, should_tail=True) == COUNTED
        ended()

    def test_what_is_read_on_the_volume_itself_is_followed_through_an_outage(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule(COUNTING, **from_the_cluster(emulator))
        lines = []
        for line in cluster.scheduler.log_iter(app_id, "job", should_tail=True):
            lines.append(line)
            if len(lines) == 5:
                for_a_minute(emulator, Fault(status=503), seconds=LONG_S)
        assert lines == COUNTED
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_a_token_that_expires_in_the_middle_loses_and_repeats_nothing(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        assert self.follow(cluster, emulator.expire_tokens) == COUNTED

    def test_streams_that_are_cut_all_the_time_lose_and_repeat_nothing(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        cut = emulator.faults.add(Fault(path="/log$", cut_after=130, times=12))
        app_id = cluster.schedule(COUNTING)
        assert cluster.lines(app_id, should_tail=True) == COUNTED
        assert cut.met > 2

    def test_a_job_that_says_nothing_for_long_is_followed_to_its_end(
        self, cluster: DGXCloudCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nemo_run._transport.http.READ_S", 0.5)
        app_id = cluster.schedule("echo first; sleep 2; echo last")
        assert cluster.lines(app_id, should_tail=True) == ["first\n", "last\n"]


class TestCancelling:
    def test_a_cancel_that_could_not_be_asked_for_is_told(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from nemo_run.exceptions import BackendUnavailableError

        app_id = cluster.schedule("echo up; sleep 60")
        cluster.wait_for_line(app_id, "up\n")
        with emulator.unreachable(), pytest.raises(BackendUnavailableError):
            cluster.cancel(app_id)
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED
