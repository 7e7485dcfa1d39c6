"""Jobs on an emulated Lepton workspace, through the vendor's own client."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from pprint import pprint

import pytest
from tests import patience
from tests.contract.backends import LeptonCluster
from tests.emulators.lepton import LeptonEmulator
from tests.integration.lepton.requests import sent
from torchx.specs import AppState

import nemo_run as run
from nemo_run.exceptions import JobNotFoundError

pytestmark = pytest.mark.slow


def lose(emulator: LeptonEmulator, app_id: str) -> None:
    """Leave no trace of a job, as a workspace would that was made anew."""
    emulator.jobs.pop(app_id.rpartition("___")[2]).close()


class TestNodes:
    def test_every_replica_is_told_apart_and_its_log_can_be_read(
        self, cluster: LeptonCluster
    ) -> None:
        app_id = cluster.schedule(
            'echo "$NODE_RANK of $NNODES"; getent hosts "$MASTER_ADDR" > /dev/null && echo found',
            nodes=2,
        )
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id, k=0) == ["0 of 2\n", "found\n"]
        assert cluster.lines(app_id, k=1) == ["1 of 2\n", "found\n"]
        assert cluster.lines(app_id, k=1, should_tail=True) == ["1 of 2\n", "found\n"]
        (role,) = cluster.scheduler.describe(app_id).roles
        assert role.num_replicas == 2

    def test_one_node_that_fails_ends_the_job_with_its_code(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule('test "$NODE_RANK" = 0 && sleep 60; exit 7', nodes=2)
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 7)

    def test_arguments_may_name_where_nodes_meet(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule(["echo", "$NODE_RANK", "at $MASTER_ADDR:$MASTER_PORT", "$HOME"])
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["0 at localhost:29400 $HOME\n"]

    def test_commands_of_the_users_run_first(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule(
            "echo $WORD", pre_launch_commands=["export WORD=before", "echo ready"]
        )
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["ready\n", "before\n"]


class TestStates:
    def test_a_queued_job_is_pending(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, tmp_path: Path
    ) -> None:
        planned = cluster.plan("true")
        with emulator.held():
            # The files must get there first.
            planned.request.executor.launched_from_cluster = True
            planned.request.executor.lepton_job_dir = str(tmp_path / "elsewhere")
            app_id = cluster.scheduler.schedule(planned)
            status = cluster.status(app_id)
            assert status is not None
            assert status.state is AppState.PENDING
            cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_a_word_nobody_knows_ends_nothing_and_is_logged_once(
        self,
        cluster: LeptonCluster,
        emulator: LeptonEmulator,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        app_id = cluster.schedule("exit 4")
        job_id = app_id.rpartition("___")[2]
        emulator.say_state(job_id, "Hibernating")
        for _ in range(3):
            status = cluster.status(app_id)
            assert status is not None
            assert status.state is AppState.UNKNOWN
        said = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert len(said) == 1
        del emulator.refused_words[job_id]
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 4)

    @pytest.mark.parametrize(
        ("script", "state"), [("true", AppState.SUCCEEDED), ("exit 1", AppState.FAILED)]
    )
    def test_the_archive_does_not_hide_how_a_job_ended(
        self,
        cluster: LeptonCluster,
        emulator: LeptonEmulator,
        script: str,
        state: AppState,
    ) -> None:
        app_id = cluster.schedule(script)
        job = emulator.jobs[app_id.rpartition("___")[2]]
        job.thread.join(patience.seconds(20))
        emulator.say_state(job.id, "Archived")
        assert cluster.wait(app_id).state is state

    def test_a_job_that_somebody_has_deleted_is_cancelled(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 60")
        cluster.wait_for_line(app_id, "up\n")
        emulator.jobs[app_id.rpartition("___")[2]].delete()
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_a_job_has_an_address_for_people(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule("true")
        cluster.wait(app_id)
        url = cluster.scheduler.describe(app_id).ui_url
        assert url.endswith(f"/compute/jobs/detail/{app_id.rpartition('___')[2]}/replicas/list")


class TestJobsThatAreLost:
    def test_one_that_the_workspace_does_not_have_can_be_cancelled(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        app_id = cluster.schedule("sleep 60")
        lose(emulator, app_id)
        status = cluster.status(app_id)
        assert status is not None
        assert status.state is AppState.UNKNOWN
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_one_of_another_workspace_is_left_alone(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app_id = cluster.schedule("sleep 60")
        lose(emulator, app_id)
        monkeypatch.setenv("LEPTON_WORKSPACE_ID", "ws2")
        with pytest.raises(JobNotFoundError, match="'ws1', and this is 'ws2'"):
            cluster.cancel(app_id)
        status = cluster.status(app_id)
        assert status is not None
        assert status.state is AppState.UNKNOWN
        assert "'ws1', and this is 'ws2'" in status.message


class TestLogs:
    def test_the_last_lines_are_waited_for_when_the_store_is_late(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        emulator.log_lag_s = 2
        app_id = cluster.schedule("for i in 1 2 3; do echo $i; sleep 0.2; done; exit 9")
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 9)
        assert cluster.lines(app_id, should_tail=True) == ["1\n", "2\n", "3\n"]
        assert cluster.lines(app_id) == ["1\n", "2\n", "3\n"]

    def test_the_mark_of_an_earlier_attempt_does_not_end_a_late_log(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        emulator.log_lag_s = 0.6
        second = cluster.scratch / "second"
        task = f"[ -e '{second}' ] && sleep 1 && echo two || {{ touch '{second}'; exit 3; }}"
        app_id = cluster.schedule(task, retries=1)
        assert cluster.lines(app_id, should_tail=True) == ["two\n"]

    def test_more_lines_than_one_answer_holds_are_all_there(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule("seq 12000")
        cluster.wait(app_id)
        assert cluster.lines(app_id) == [f"{n}\n" for n in range(1, 12001)]

    def test_the_store_is_asked_only_for_the_time_of_the_job(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        day_ns = 24 * 3600 * 10**9
        earliest_ns = time.time_ns() - day_ns
        app_id = cluster.schedule("echo hi; exit 2")
        assert cluster.wait(app_id).exit_code == 2
        assert cluster.lines(app_id) == ["hi\n"]
        asked = [int(r.query["start"]) for r in emulator.server.requests("GET", ".*/logs")]
        assert asked
        assert min(asked) > earliest_ns

    def test_scripts_for_0_12_can_print_them(
        self, cluster: LeptonCluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        app_id = cluster.schedule("echo one; echo two; exit 1")
        cluster.wait(app_id)
        run.LeptonExecutor.logs(app_id, fallback_path=None)
        assert capsys.readouterr().out == "one\ntwo\n"


class TestScriptsFor012:
    def test_a_job_can_be_launched_asked_about_and_cancelled(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.LeptonExecutor)
        job_id, state = executor.launch("My_Job.1", ["sleep", "60"])
        assert job_id.startswith("my-job-1-")
        assert state.name in {"Queueing", "Starting", "Running"}
        executor.cancel(job_id)
        executor.cancel(job_id)
        emulator.jobs[job_id].thread.join(patience.seconds(10))
        assert executor.status(job_id).name == "Deleted"
        assert executor.status("never-there").name == "Unknown"

    def test_a_running_job_can_be_stopped(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.LeptonExecutor)
        job_id, _ = executor.launch("job", ["sleep", "60"])
        while executor.status(job_id).name != "Running":
            time.sleep(0.02)
        executor.stop_job(job_id)
        emulator.jobs[job_id].thread.join(patience.seconds(10))
        assert executor.status(job_id).name == "Stopped"


class TestJobsOf012:
    def test_a_job_of_its_index_can_be_asked_about(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, nemorun_home: Path
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.LeptonExecutor)
        job_id, _ = executor.launch("old", ["echo", "hi"])
        app_id = f"title_1___a___b___{job_id}"
        index = {app_id: {"job_status": "Running", "executor": "..."}}
        nemorun_home.mkdir(exist_ok=True)
        (nemorun_home / ".lepton_jobs.json").write_text(json.dumps(index))
        (role,) = cluster.scheduler.describe(app_id).roles
        assert role.name == "a___b"
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["hi\n"]
        assert cluster.scheduler.describe("title_1___a___other") is None


class TestExperiments:
    def test_functions_run_in_order_and_their_logs_are_printed_with_all_replicas(
        self, cluster: LeptonCluster, capfd: pytest.CaptureFixture[str]
    ) -> None:
        executor = cluster.executor(nodes=2)
        with run.Experiment("lepton", executor=executor, clean_mode=True) as exp:
            first = exp.add(run.Partial(pprint, "from a function"), name="first")
            exp.add(run.Script(inline="echo rank $NODE_RANK"), name="second", dependencies=[first])
            exp.run()
            capfd.readouterr()
            exp.logs("first")
            exp.logs("second")
        assert exp.status(return_dict=True) is not None
        shown = capfd.readouterr().err
        assert shown.count("'from a function'\n") == 2
        assert shown.count("rank 0\n") == shown.count("rank 1\n") == 1

    @pytest.mark.parametrize("detach", [False, True])
    def test_an_experiment_goes_through_an_outage(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, detach: bool
    ) -> None:
        with run.Experiment("outage", executor=cluster.executor(), clean_mode=True) as exp:
            first = exp.add(run.Script(inline="sleep 1"), name="first")
            exp.add(run.Script(inline="exit 3"), name="second", dependencies=[first])
            emulator.server.stop()
            threading.Timer(2, emulator.server.start).start()
            exp.run(detach=detach)
        exp.wait()
        status = exp.status(return_dict=True)
        assert status is not None
        assert {name: entry["status"].name for name, entry in status.items()} == {
            "first": "SUCCEEDED",
            "second": "FAILED",
        }
        assert status["second"]["exit_code"] == 3
        assert len(sent(emulator)) == 2
