"""Many jobs are asked about with one question."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.slurm.jobs import Jobs, script, wait_until
from torchx.specs import AppState

import nemo_run as run
from nemo_run._records import JobStore

pytestmark = pytest.mark.slow


@pytest.fixture(params=["slurm", "bare_slurm"], ids=["accounting", "without-accounting"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Jobs:
    return Jobs(request.getfixturevalue(request.param), tmp_path)


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A file that jobs wait for."""
    return tmp_path / "go"


def until(go: Path) -> str:
    return f"until [ -e {go} ]; do sleep 0.1; done"


class TestNews:
    def test_of_jobs_that_do_what_they_did_there_is_none(self, jobs: Jobs, go: Path) -> None:
        ids = [jobs.schedule(until(go), name=f"job-{n}") for n in range(3)]
        for app_id in ids:
            jobs.wait_for(app_id, AppState.RUNNING)
        scheduler, before = jobs.scheduler, jobs.engine.sshd.commands()
        assert scheduler.news(dict.fromkeys(ids, AppState.RUNNING)) == {}
        assert jobs.engine.sshd.commands() == before + 1
        go.touch()

    def test_a_job_that_has_started_is_told_of_and_recorded(self, jobs: Jobs, go: Path) -> None:
        app_id = jobs.schedule(until(go))
        wait_until(lambda: jobs.squeue(app_id, "%T") == "RUNNING", "the start of the job")
        news = jobs.scheduler.news({app_id: AppState.SUBMITTED})
        assert news[app_id].state is AppState.RUNNING
        record = JobStore().get(app_id, "slurm_tunnel")
        assert record.state == "RUNNING"
        assert record.started_at == news[app_id].started_at
        go.touch()

    def test_one_that_has_ended_is_to_be_asked_about(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("exit 3")
        wait_until(lambda: jobs.squeue(app_id, "%T") == "FAILED", "the end of the job")
        assert jobs.scheduler.news({app_id: AppState.SUBMITTED}) == {app_id: None}
        assert jobs.wait(app_id).exit_code == 3

    def test_one_that_another_process_has_heard_of_is(self, jobs: Jobs, go: Path) -> None:
        app_id = jobs.schedule(until(go))
        jobs.wait_for(app_id, AppState.RUNNING)
        assert jobs.scheduler.news({app_id: AppState.PENDING}) == {app_id: None}
        go.touch()
        jobs.wait(app_id, timeout_s=60)
        assert jobs.scheduler.news({app_id: AppState.RUNNING}) == {app_id: None}

    def test_one_of_which_nothing_can_be_read_is(self, jobs: Jobs, go: Path) -> None:
        ids = [jobs.schedule(until(go), name=f"job-{n}") for n in range(2)]
        for app_id in ids:
            jobs.wait_for(app_id, AppState.RUNNING)
        JobStore().path(ids[0], "slurm_tunnel").write_text("{")
        known = dict.fromkeys([*ids, "no-such-job"], AppState.RUNNING)
        assert jobs.scheduler.news(known) == {ids[0]: None, "no-such-job": None}
        go.touch()

    def test_nobody_answers(self, jobs: Jobs, go: Path) -> None:
        app_id = jobs.schedule(until(go))
        jobs.wait_for(app_id, AppState.RUNNING)
        with jobs.engine.sshd.down():
            assert jobs.scheduler.news({app_id: AppState.RUNNING}) == {app_id: None}
        go.touch()
        assert jobs.wait(app_id, timeout_s=60).state is AppState.SUCCEEDED


def test_an_experiment_hears_of_many_jobs_at_once(jobs: Jobs, go: Path) -> None:
    with run.Experiment("many", executor=jobs.executor(), clean_mode=True) as exp:
        for number in range(8):
            exp.add(script(until(go)), name=f"job-{number}")
        exp.run()
        watch, commands = exp._watch, jobs.engine.sshd.commands
        wait_until(
            lambda: {state.state for state in watch.states()} == {AppState.RUNNING},
            "the start of all jobs",
        )
        before = commands()
        assert {state.state for state in watch.states()} == {AppState.RUNNING}
        assert commands() == before + 1
        go.touch()
    status = exp.status(return_dict=True) or {}
    assert {entry["status"] for entry in status.values()} == {AppState.SUCCEEDED}
