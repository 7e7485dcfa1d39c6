"""What Slurm has forgotten, or cannot say now, does not make an outcome wrong."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.integration.slurm.jobs import Jobs, wait_until
from torchx.specs import AppState, is_terminal

from nemo_run._backends.slurm.batch import STATE_DIR

pytestmark = pytest.mark.slow


@pytest.fixture(params=["slurm", "bare_slurm"], ids=["accounting", "without-accounting"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Jobs:
    return Jobs(request.getfixturevalue(request.param), tmp_path)


def forgotten(jobs: Jobs, *app_ids: str) -> bool:
    """Tell whether the controller does not know any of these jobs, or elements of jobs."""
    said = jobs.engine.run("squeue", "-h", "-t", "all", "-r", "-o", "%i").split()
    return not set(said) & set(app_ids)


def test_the_ends_of_jobs_are_known_when_the_controller_has_forgotten_them(jobs: Jobs) -> None:
    with jobs.engine.forgetful():
        good = jobs.schedule("echo hi", name="good")
        bad = jobs.schedule("exit 3", name="bad")
        wait_until(lambda: forgotten(jobs, good, bad), "oblivion", 90)
        ends = [jobs.status(good), jobs.status(bad)]
    found = [(end.state, end.exit_code) for end in ends if end is not None]
    assert found == [(AppState.SUCCEEDED, 0), (AppState.FAILED, 3)]
    assert jobs.lines(good) == ["hi\n"]


def test_an_element_that_failed_long_ago_is_not_forgotten(jobs: Jobs) -> None:
    mark = jobs.scratch / "go"
    wait = f"while [ ! -e {shlex.quote(str(mark))} ]; do sleep 0.2; done"
    # The last one would not do: it is kept for the array as a whole.
    text = f'[ "$SLURM_ARRAY_TASK_ID" = 0 ] && exit 6; {wait}'
    with jobs.engine.forgetful():
        app_id = jobs.schedule(text, array="0-1")
        wait_until(lambda: forgotten(jobs, f"{app_id}_0"), "oblivion", 90)
        during = jobs.status(app_id)
        mark.touch()
        end = jobs.wait(app_id, timeout_s=60)
    assert during is not None
    assert during.state is AppState.RUNNING
    assert (end.state, end.exit_code) == (AppState.FAILED, 6)
    assert f"{app_id}_0" in end.message


def test_an_array_that_was_cancelled_early_is_not_unknown_later(jobs: Jobs) -> None:
    with jobs.engine.forgetful():
        app_id = jobs.schedule("echo up; sleep 300", array="0-2%1")
        jobs.wait_for_line(app_id, "up\n")
        jobs.engine.run("scancel", app_id)
        (state_dir,) = jobs.remote.glob(f"*/*/*/{STATE_DIR}/*")
        (state_dir / "cancelled").touch()  # as whoever was killed while cancelling leaves it
        elements = [f"{app_id}_{n}" for n in range(3)]
        wait_until(lambda: forgotten(jobs, app_id, *elements), "oblivion", 90)
        end = jobs.status(app_id)
    assert end is not None
    assert end.state is AppState.CANCELLED


def test_half_an_array_is_no_end_while_the_controller_is_away(jobs: Jobs) -> None:
    mark = jobs.scratch / "go"
    wait = f"while [ ! -e {shlex.quote(str(mark))} ]; do sleep 0.2; done"
    app_id = jobs.schedule(f'[ "$SLURM_ARRAY_TASK_ID" = 1 ] || {wait}', array="0-1")
    elements = ("squeue", "-h", "-t", "all", "-r", "-j", app_id, "-o", "%T")
    wait_until(
        lambda: sorted(jobs.engine.run(*elements).split()) == ["COMPLETED", "RUNNING"], "one end"
    )
    jobs.wait_for(app_id, AppState.RUNNING)
    with jobs.engine.without_controller():
        during = jobs.status(app_id)
        mark.touch()
    assert during is not None
    assert during.state is AppState.RUNNING
    assert "cannot be reached" in during.message
    assert jobs.wait(app_id, timeout_s=90).state is AppState.SUCCEEDED


def test_a_job_that_waits_to_be_started_again_has_not_failed(jobs: Jobs) -> None:
    text = 'echo try; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
    app_id = jobs.schedule(text)
    jobs.wait_for_line(app_id, "try\n")
    jobs.engine.run("scontrol", "requeuehold", app_id)
    wait_until(lambda: jobs.squeue(app_id, "%T") == "PENDING", "the queue")
    jobs.wait_for(app_id, AppState.PENDING)
    with jobs.engine.without_controller():
        during = jobs.status(app_id)
    assert during is not None
    assert not is_terminal(during.state)
    jobs.engine.run("scontrol", "release", app_id)
    end = jobs.wait(app_id, timeout_s=90)
    assert (end.state, end.restarts) == (AppState.SUCCEEDED, 1)
