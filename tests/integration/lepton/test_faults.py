"""Whatever happens on the way to Lepton: outcomes are right, and every job is there once."""

from __future__ import annotations

import json
import logging
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import patience
from tests.contract.backends import ROOT, LeptonCluster
from tests.emulators.faults import Fault
from tests.emulators.lepton import TOKEN, LeptonEmulator
from tests.integration.lepton.requests import sent
from torchx.specs import AppState

from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
)

pytestmark = pytest.mark.slow

COUNT = "for i in $(seq 40); do echo line $i; sleep 0.05; done"
LINES = [f"line {i}\n" for i in range(1, 41)]

WAIT = """
import nemo_run as run

executor = run.LeptonExecutor(
    container_image="some/image",
    nemo_run_dir="/volume/nemo_run",
    resource_shape="cpu.small",
    mounts=[{"path": "/", "mount_path": "/volume", "from": "node-nfs:shared"}],
)
with run.Experiment("login", executor=executor, clean_mode=True) as exp:
    task = run.Script(inline="until test -e /volume/go; do sleep 0.1; done; exit 3")
    exp.add(task, name="job")
    exp.run()
end = exp.status(return_dict=True)["job"]
print(end["status"].name, end["exit_code"])
"""


def jobs(emulator: LeptonEmulator) -> list[str]:
    """Return the ids of the jobs there are or were, without the movers of files."""
    return [name for name in emulator.jobs if not name.startswith("data-mover")]


def for_a_while(emulator: LeptonEmulator, fault: Fault, seconds: float) -> None:
    emulator.faults.add(fault)
    threading.Timer(seconds, emulator.faults.remove, [fault]).start()


class TestSubmitting:
    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_it_waits_for_a_workspace_that_is_not_well(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, status: int
    ) -> None:
        fault = Fault(path="/jobs", status=status)
        for_a_while(emulator, fault, 3)
        app_id = cluster.schedule("echo hi")
        assert fault.met > 1
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert len(jobs(emulator)) == 1

    @pytest.mark.parametrize(
        "fault",
        [
            Fault(drop=True, handled=True, times=1),
            Fault(status=500, handled=True, times=1),
            Fault(status=503, handled=True, times=1, skip=1),
            Fault(drop=True, handled=True, times=1, skip=1),
            Fault(cut_after=20, times=1, skip=1),
        ],
        ids=["mover dropped", "mover 500", "job 503", "job dropped", "answer cut short"],
    )
    def test_an_answer_that_is_lost_makes_no_second_job(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, fault: Fault
    ) -> None:
        fault.method, fault.path = "POST", "/jobs$"
        emulator.faults.add(fault)
        app_id = cluster.schedule("echo hi")
        assert fault.met == 1
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["hi\n"]
        assert len(emulator.jobs) == 2

    def test_it_survives_a_workspace_that_is_restarted(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        emulator.server.stop()
        threading.Timer(2, emulator.server.start).start()
        app_id = cluster.schedule("exit 3")
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 3)
        assert len(jobs(emulator)) == 1

    def test_a_launcher_killed_before_the_answer_leaves_a_job_that_is_found(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        emulator.faults.add(Fault(method="POST", path="/jobs$", skip=1, handled=True, delay_s=60))
        launcher = _schedule_elsewhere(cluster, "echo survived; exit 5")
        _wait(lambda: bool(jobs(emulator)))
        launcher.kill()
        launcher.wait()
        emulator.faults.clear()
        ((app_id, _),) = cluster.listed().items()
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 5)
        assert cluster.lines(app_id) == ["survived\n"]
        assert jobs(emulator) == [app_id.rpartition("___")[2]]

    def test_a_launcher_killed_while_files_move_has_submitted_nothing(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        with emulator.held():
            launcher = _schedule_elsewhere(cluster, "echo hi")
            _wait(lambda: bool(emulator.jobs))
            os.kill(launcher.pid, signal.SIGKILL)
            launcher.wait()
        ((app_id, state),) = cluster.listed().items()
        assert state is AppState.UNSUBMITTED
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED
        assert jobs(emulator) == []

    def test_a_plan_is_tried_again_after_its_launcher_was_killed_while_files_moved(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        planned = cluster.plan("echo hi")
        executor, request = planned.executor, planned.request
        with emulator.held():
            mover = threading.Thread(
                target=executor.submit,
                args=(request.name, request.cmd, {}),
                kwargs={"tag": planned.planned.metadata["nemo_run/tag"]},
                daemon=True,
            )
            mover.start()
            _wait(lambda: bool(emulator.jobs))
            assert cluster.scheduler.submitted(planned) is None
        app_id = cluster.scheduler.schedule(planned)
        mover.join(patience.seconds(20))
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert len(jobs(emulator)) == 1


class TestAsking:
    @pytest.mark.parametrize("status", [429, 500, 502, 503])
    def test_an_outage_is_not_an_end(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, status: int
    ) -> None:
        app_id = cluster.schedule("sleep 1; exit 6")
        before = cluster.status(app_id)
        with emulator.faults.on(Fault(status=status)):
            during = cluster.status(app_id)
        assert before is not None
        assert during is not None
        assert during.state is before.state
        assert "cannot be reached" in during.message
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 6)

    def test_an_answer_cut_short_says_nothing(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule("sleep 1")
        with emulator.faults.on(Fault(cut_after=30)):
            during = cluster.status(app_id)
        assert during is not None
        assert "cannot be reached" in during.message
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_a_job_the_workspace_has_lost_is_not_failed(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule("sleep 1")
        with emulator.faults.on(Fault(path="/jobs/", status=404)):
            during = cluster.status(app_id)
        assert during is not None
        assert during.state is AppState.UNKNOWN
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_a_token_that_has_expired_is_named_and_ends_nothing(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule("echo up; until test -e /volume/go; do sleep 0.1; done; exit 2")
        cluster.wait_until_running(app_id)
        del emulator.users[TOKEN]
        during = cluster.status(app_id)
        assert during is not None
        assert during.state is AppState.RUNNING
        assert "lep login" in during.message
        emulator.users[TOKEN] = "me@example.com"
        (emulator.volume("node-nfs:shared") / "go").touch()
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 2)

    @pytest.mark.timeout(300)
    def test_who_waits_goes_on_when_somebody_has_logged_in_again(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, tmp_path: Path
    ) -> None:
        script = tmp_path / "wait.py"
        script.write_text(WAIT)
        env = {k: v for k, v in os.environ.items() if not k.startswith("LEPTON_WORKSPACE")}
        _log_in(emulator, TOKEN, env)
        waiting = subprocess.Popen(
            [sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True
        )
        _wait(lambda: bool(jobs(emulator)))
        emulator.users["new-token"] = emulator.users.pop(TOKEN)
        seen = len(emulator.server.seen)
        _wait(lambda: len(emulator.server.seen) > seen)  # with the old token
        _log_in(emulator, "new-token", env)
        (emulator.volume("node-nfs:shared") / "go").touch()
        output, _ = waiting.communicate(timeout=patience.seconds(100))
        assert output.splitlines()[-1] == "FAILED 3"
        assert len(jobs(emulator)) == 1

    def test_a_token_that_expires_while_a_log_is_followed_is_named(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule(f"{COUNT}; until test -e /volume/go; do sleep 0.1; done")
        lines = iter(cluster.scheduler.log_iter(app_id, "job", should_tail=True))
        next(lines)
        del emulator.users[TOKEN]
        (emulator.volume("node-nfs:shared") / "go").touch()
        with pytest.raises(AuthenticationError, match="lep login"):
            list(lines)
        emulator.users[TOKEN] = "me@example.com"
        assert cluster.lines(app_id, should_tail=True) == LINES

    @pytest.mark.needs("openssl")
    def test_a_server_that_cannot_prove_who_it_is_is_not_talked_to(
        self,
        cluster: LeptonCluster,
        emulator: LeptonEmulator,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        app_id = cluster.schedule("sleep 1")
        emulator.server.stop()
        emulator.server.tls = _certificate(tmp_path)
        emulator.server.start()
        seen = len(emulator.server.seen)
        url = os.environ["LEPTON_WORKSPACE_URL"].replace("http:", "https:")
        monkeypatch.setenv("LEPTON_WORKSPACE_URL", url)
        during = cluster.status(app_id)
        assert during is not None
        assert "certificate" in during.message.lower()
        assert len(emulator.server.seen) == seen


class TestCancelling:
    def test_it_is_asked_for_until_it_is_heard(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 60")
        cluster.wait_for_line(app_id, "up\n")
        for_a_while(emulator, Fault(status=503), 2)
        cluster.cancel(app_id)
        status = cluster.status(app_id)
        assert status is not None
        assert status.state is AppState.CANCELLED

    def test_a_job_cancelled_while_its_files_move_does_not_run(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        with emulator.held():
            launcher = _schedule_elsewhere(cluster, "touch /volume/ran; sleep 60")
            _wait(lambda: bool(emulator.jobs))
            ((app_id, _),) = cluster.listed().items()
            cluster.cancel(app_id)
        assert launcher.wait(patience.seconds(60)) != 0
        assert cluster.wait(app_id).state is AppState.CANCELLED
        assert [job.state for job in emulator.jobs.values() if job.state != "Completed"] in (
            [],
            ["Deleted"],
        )

    def test_a_job_that_does_not_stop_is_reported(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 60")
        cluster.wait_for_line(app_id, "up\n")
        emulator.say_state(app_id.rpartition("___")[2], "Stopping")
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
        with pytest.raises(BackendError, match="still Stopping"):
            cluster.cancel(app_id)


class TestFollowing:
    def test_a_stream_that_is_cut_is_taken_up_where_it_was(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        fault = emulator.faults.add(Fault(path="/log$", cut_after=100, times=4))
        app_id = cluster.schedule(COUNT.replace("0.05", "0.2"))
        assert cluster.lines(app_id, should_tail=True) == LINES
        assert fault.met > 0

    def test_streams_that_cannot_be_had_are_done_without(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        emulator.faults.add(Fault(path="/log$", status=500))
        app_id = cluster.schedule(COUNT)
        assert cluster.lines(app_id, should_tail=True) == LINES

    def test_an_outage_of_everything_is_waited_for(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule(COUNT)
        lines = iter(cluster.scheduler.log_iter(app_id, "job", should_tail=True))
        seen = [next(lines) for _ in range(3)]
        for_a_while(emulator, Fault(status=503), 2)
        assert seen + list(lines) == LINES

    def test_a_workspace_that_is_restarted_is_waited_for(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule(COUNT)
        lines = iter(cluster.scheduler.log_iter(app_id, "job", should_tail=True))
        seen = [next(lines) for _ in range(3)]
        emulator.server.stop()
        threading.Timer(1.5, emulator.server.start).start()
        assert seen + list(lines) == LINES

    def test_a_job_that_is_started_again_is_followed_to_its_last_end(
        self, cluster: LeptonCluster
    ) -> None:
        app_id = cluster.schedule("echo try; sleep 0.3; exit 1", retries=2)
        assert cluster.lines(app_id, should_tail=True) == ["try\n"] * 3

    def test_slow_answers_are_waited_for(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule("echo one; echo two")
        emulator.faults.add(Fault(delay_s=0.5))
        assert cluster.lines(app_id, should_tail=True) == ["one\n", "two\n"]


@pytest.mark.timeout(400)
def test_a_minute_without_lepton_in_the_middle_of_everything(
    cluster: LeptonCluster, emulator: LeptonEmulator
) -> None:
    cluster.poll_s = 0.5
    count = "i=0; until test -e /volume/go; do echo $((i += 1)); sleep 0.5; done; echo last; exit 7"
    running = cluster.schedule(count, name="running")
    emulator.faults.add(Fault(path="/log$", cut_after=30))  # so that streams are asked for anew
    cluster.wait_for_line(running, "1\n")
    outage = Fault(status=503)
    with ThreadPoolExecutor() as threads:
        log = threads.submit(cluster.lines, running, should_tail=True)
        end = threads.submit(cluster.wait, running, timeout_s=300)
        with emulator.held():
            app_id = threads.submit(cluster.schedule, "exit 3", name="submitted")
            _wait(lambda: sum(name.startswith("data-mover") for name in emulator.jobs) == 2)
            with emulator.faults.on(outage):
                time.sleep(60)
        (emulator.volume("node-nfs:shared") / "go").touch()
        *numbers, last = log.result()
        ended = end.result()
        submitted = cluster.wait(app_id.result())
    assert outage.met > 10
    assert [int(number) for number in numbers] == list(range(1, len(numbers) + 1))
    assert last == "last\n"
    assert (ended.state, ended.exit_code) == (AppState.FAILED, 7)
    assert (submitted.state, submitted.exit_code) == (AppState.FAILED, 3)
    assert len(jobs(emulator)) == 2


def test_giving_up_says_what_was_in_the_way(
    cluster: LeptonCluster, emulator: LeptonEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
    emulator.faults.add(Fault(method="POST", status=503, message="under maintenance"))
    with pytest.raises(BackendUnavailableError, match="under maintenance") as caught:
        cluster.schedule(["true"])
    assert not isinstance(caught.value, ConnectionLostError)  # nothing can have been submitted
    assert sent(emulator) == []
    assert list(cluster.listed().values()) == [AppState.UNSUBMITTED]


def test_giving_up_without_knowing_leaves_a_job_that_is_found(
    cluster: LeptonCluster, emulator: LeptonEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.faults.add(Fault(method="POST", path="/jobs$", skip=1, drop=True, handled=True))
    emulator.faults.add(Fault(method="GET", path="/jobs/(?!data-mover)", status=503))
    planned = cluster.plan("exit 3")
    with monkeypatch.context() as patch:
        now = time.monotonic
        patch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
        # Not just unavailable, which would say that nothing was submitted.
        with pytest.raises(ConnectionLostError, match="not clear"):
            cluster.scheduler.schedule(planned)
    emulator.faults.clear()
    app_id = cluster.scheduler.submitted(planned)
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 3)
    assert len(jobs(emulator)) == 1


def test_what_goes_wrong_is_not_printed(
    cluster: LeptonCluster,
    emulator: LeptonEmulator,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("nemo_run"), "handlers", [])
    app_id = cluster.schedule("sleep 0.5")
    with emulator.faults.on(Fault(status=503)):
        cluster.status(app_id)
    cluster.wait(app_id)
    assert capfd.readouterr() == ("", "")


def _schedule_elsewhere(cluster: LeptonCluster, task: str) -> subprocess.Popen[bytes]:
    request = json.dumps([cluster.name, str(cluster.root), "schedule", [task], {}])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.contract.backends", request],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _log_in(emulator: LeptonEmulator, token: str, env: dict[str, str]) -> None:
    """Do what ``lep login`` does."""
    where = emulator.environment
    code = f"""
from leptonai.api.v2.workspace_record import WorkspaceRecord
WorkspaceRecord.set({where["LEPTON_WORKSPACE_ID"]!r}, {token!r}, {where["LEPTON_WORKSPACE_URL"]!r})
"""
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def _wait(condition: object, timeout_s: float = 60) -> None:
    assert callable(condition)
    deadline = patience.deadline(timeout_s)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _certificate(directory: Path) -> ssl.SSLContext:
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    subprocess.run(
        ["openssl", "req", *options, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
