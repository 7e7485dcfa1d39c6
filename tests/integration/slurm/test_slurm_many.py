"""Many jobs are asked about with one question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.slurm.jobs import Jobs, script, wait_until
from torchx.specs import AppState

import nemo_run as run
from nemo_run._experiments.conductor.loop import Conductor
from nemo_run._jobs.store import JobStore

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


def own_tunnel(jobs: Jobs) -> run.SSHTunnel:
    """Return a way to the cluster by which nobody has asked about other jobs."""
    return run.SSHTunnel(
        host="loop", user="root", job_dir=str(jobs.remote), pre_command=f": '{jobs.remote}'"
    )


def started(jobs: Jobs, go: Path, count: int = 2) -> list[str]:
    """Return jobs that run until a file is there."""
    tunnel = own_tunnel(jobs)
    ids = [jobs.schedule(until(go), name=f"job-{n}", tunnel=tunnel) for n in range(count)]
    wait_until(
        lambda: {jobs.squeue(app_id, "%T") for app_id in ids} == {"RUNNING"}, "start of all jobs"
    )
    return ids


class TestStatuses:
    def test_jobs_that_run_are_told_of_by_one_command_and_recorded(
        self, jobs: Jobs, go: Path
    ) -> None:
        ids = started(jobs, go, 3)
        scheduler, before = jobs.scheduler, jobs.engine.sshd.commands()
        statuses = scheduler.statuses_of(ids)
        assert jobs.engine.sshd.commands() == before + 1
        assert {status.state for status in statuses.values()} == {AppState.RUNNING}
        records = [JobStore().get(app_id, "slurm_tunnel") for app_id in ids]
        assert {record.state for record in records} == {"RUNNING"}
        assert all(record.started_at for record in records)
        go.touch()

    def test_one_that_has_ended_is_to_be_asked_about(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("exit 3")
        wait_until(lambda: jobs.squeue(app_id, "%T") == "FAILED", "the end of the job")
        assert jobs.scheduler.statuses_of([app_id]) == {app_id: None}
        assert jobs.wait(app_id).exit_code == 3
        assert jobs.scheduler.statuses_of([app_id]) == {app_id: None}

    def test_so_is_one_of_which_nothing_can_be_read(self, jobs: Jobs, go: Path) -> None:
        damaged, whole = started(jobs, go)
        JobStore().path(damaged, "slurm_tunnel").write_text("{")
        statuses = jobs.scheduler.statuses_of([damaged, whole, "no-such-job"])
        assert statuses.pop(whole).state is AppState.RUNNING
        assert statuses == {damaged: None, "no-such-job": None}
        go.touch()

    def test_trouble_with_a_server_is_over_when_it_is(self, jobs: Jobs, go: Path) -> None:
        ids = started(jobs, go)
        jobs.scheduler.statuses_of(ids)
        with jobs.engine.sshd.down():
            assert jobs.scheduler.statuses_of(ids) == dict.fromkeys(ids)
            assert jobs.says(ids[0], "cannot be reached")
        assert [status.message for status in jobs.scheduler.statuses_of(ids).values()] == ["", ""]
        go.touch()

    def test_a_note_that_cannot_be_written_does_not_matter(self, jobs: Jobs, go: Path) -> None:
        (app_id,) = started(jobs, go, 1)
        beside = JobStore().path(app_id, "slurm_tunnel").with_suffix(".seen")
        beside.mkdir()
        assert jobs.scheduler.statuses_of([app_id])[app_id].state is AppState.RUNNING
        status = jobs.status(app_id)
        assert status is not None and status.state is AppState.RUNNING
        beside.rmdir()
        go.touch()


class TestExperiments:
    def test_many_jobs_are_heard_of_at_once(self, jobs: Jobs, go: Path) -> None:
        with experiment_of(jobs, go, 8) as exp:
            conductor, commands = exp._watch.conductor, jobs.engine.sshd.commands
            wait_until(lambda: polled(conductor) == {AppState.RUNNING}, "the start of all jobs")
            before = commands()
            assert polled(conductor) == {AppState.RUNNING}
            assert commands() == before + 1
            go.touch()
        assert ends(exp) == {AppState.SUCCEEDED}

    def test_a_server_that_does_not_let_us_in_for_a_while_ends_nothing(
        self, jobs: Jobs, go: Path
    ) -> None:
        sshd = jobs.engine.sshd
        allowed = sshd.etc / "authorized_keys"
        with experiment_of(jobs, go, 2) as exp:
            conductor = exp._watch.conductor
            wait_until(lambda: polled(conductor) == {AppState.RUNNING}, "the start of all jobs")
            keys = allowed.read_text()
            allowed.write_text("")
            try:
                sshd.drop_connections()
                assert polled(conductor) == {AppState.RUNNING}
            finally:
                allowed.write_text(keys)
            go.touch()
        assert ends(exp) == {AppState.SUCCEEDED}


@contextmanager
def experiment_of(jobs: Jobs, go: Path, count: int) -> Iterator[run.Experiment]:
    """An experiment whose jobs wait for a file; entered when they are launched."""
    executor = jobs.executor(tunnel=own_tunnel(jobs))
    with run.Experiment("many", executor=executor, clean_mode=True) as exp:
        for number in range(count):
            exp.add(script(until(go)), name=f"job-{number}")
        exp.run()
        yield exp


def polled(conductor: Conductor) -> set[AppState]:
    conductor.poll()
    return {state.state for state in conductor.states}


def ends(exp: run.Experiment) -> set[AppState]:
    status = exp.status(return_dict=True) or {}
    return {entry["status"] for entry in status.values()}
