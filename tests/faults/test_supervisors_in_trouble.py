"""What becomes of jobs whose supervisors, or those who look for them, are in trouble."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script, states, statuses
from tests.faults.injection import Injection
from tests.faults.test_one_job_in_trouble import gate
from tests.integration.launching import (
    alive,
    conductors,
    kill,
    lines,
    ours,
    supervisors,
    wait_for,
)

import nemo_run as run
from nemo_run._backends.local.supervisor import Attempt, Files

pytestmark = [pytest.mark.slow, pytest.mark.needs("cc")]


@pytest.fixture
def injection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Injection:
    injection = Injection(tmp_path / "shim", Path(os.environ["NEMORUN_HOME"]))
    monkeypatch.setattr(sys, "executable", injection.reach_supervisors())
    for name, value in injection.environment.items():
        monkeypatch.setenv(name, value)
    return injection


def started(task: str, retries: int = 0) -> tuple[run.Experiment, Path]:
    """Return an experiment whose only job runs, and the job's state directory."""
    with experiment() as exp:
        exp.add(script(task), name="job", executor=run.LocalExecutor(retries=retries))
        exp.run(detach=True)
    found = run.Experiment.from_id(exp._id)
    wait_for(lambda: states(found)["job"] == "RUNNING", "the start")
    (directory,) = Path(exp._exp_dir).glob("job/nemo_run/*/*/0/.replica")
    return found, directory


def last_attempt(directory: Path) -> Attempt:
    files = Files(str(directory.parent))
    try:
        attempt = files.last_attempt()
    finally:
        files.close()
    assert attempt is not None
    return attempt


def test_a_job_is_not_lost_because_no_process_can_be_seen_for_a_while(
    tmp_path: Path, injection: Injection
) -> None:
    go, ran = tmp_path / "go", tmp_path / "ran"
    with experiment() as exp:
        first = exp.add(script(gate(go)), name="first")
        exp.add(script(f"echo ran >> '{ran}'"), name="second", dependencies=[first])
        exp.run(detach=True)
    found = run.Experiment.from_id(exp._id)
    wait_for(lambda: states(found)["first"] == "RUNNING", "the start")
    injection.only_below(Path("/proc"))
    injection.only_opening()
    injection.often(conductor=1_000_000)
    said = Path(exp._exp_dir, "_CONDUCTOR.log")
    wait_for(lambda: "Too many open files" in said.read_text(), "a look in vain", 10)
    assert states(found) == {"first": "RUNNING", "second": "UNSUBMITTED"}
    assert conductors()
    injection.often()
    go.touch()
    wait_for(lambda: set(states(found).values()) == {"SUCCEEDED"}, "the end of both")
    assert lines(ran) == ["ran"]


def test_an_exit_code_that_only_a_supervisor_in_trouble_knows_is_not_lost(
    tmp_path: Path, injection: Injection
) -> None:
    go, ran = tmp_path / "go", tmp_path / "ran"
    found, directory = started(f"{gate(go)}; echo ran >> '{ran}'; exit 7")
    attempt = last_attempt(directory)
    (watching,) = {*supervisors()} - {attempt.keeper.pid}
    injection.often(supervisor=1_000_000)
    kill(attempt.keeper.pid)
    go.touch()
    wait_for(lambda: lines(ran) == ["ran"] and not alive(attempt.task.pid), "the end of the task")
    met = injection.met().total()
    wait_for(lambda: injection.met().total() > met + 3, "more trouble")
    assert alive(watching)
    injection.often()
    wait_for(lambda: states(found)["job"] == "FAILED", "the end of the job")
    assert statuses(found)["job"]["exit_code"] == 7


def test_a_job_is_tried_again_though_its_status_cannot_be_written(
    tmp_path: Path, injection: Injection
) -> None:
    go, on, ran = tmp_path / "go", tmp_path / "on", tmp_path / "ran"
    task = f"echo $NEMO_RUN_ATTEMPT >> '{ran}'; [ $NEMO_RUN_ATTEMPT = 2 ] && {gate(on)} && exit 0"
    found, directory = started(f"{task}; {gate(go)}; exit 1", retries=1)
    injection.only_below(directory / "status")
    injection.often(supervisor=1_000_000)
    go.touch()
    wait_for(lambda: lines(ran) == ["1", "2"], "the second try")
    injection.often()
    wait_for(lambda: len(statuses(found)["job"]["attempts"]) == 2, "its being told")
    assert states(found)["job"] == "RUNNING"
    on.touch()
    wait_for(lambda: states(found)["job"] == "SUCCEEDED", "the end")
    assert lines(ran) == ["1", "2"]


def test_a_job_whose_supervisor_is_killed_before_it_says_so_is_said_to_run(
    tmp_path: Path, injection: Injection
) -> None:
    go, on, ran = tmp_path / "go", tmp_path / "on", tmp_path / "ran"
    task = f"echo $NEMO_RUN_ATTEMPT >> '{ran}'; [ $NEMO_RUN_ATTEMPT = 2 ] && {gate(on)} && exit 0"
    found, directory = started(f"{task}; {gate(go)}; exit 1", retries=1)
    injection.only_below(directory / "status")
    injection.often(supervisor=1_000_000)
    go.touch()
    wait_for(lambda: lines(ran) == ["1", "2"], "the second try")
    (watching,) = {*supervisors()} - {last_attempt(directory).keeper.pid}
    kill(watching)
    injection.often()
    wait_for(lambda: len(statuses(found)["job"]["attempts"]) == 2, "its being told")
    wait_for(lambda: states(found)["job"] == "RUNNING", "a supervisor that says so")
    on.touch()
    wait_for(lambda: states(found)["job"] == "SUCCEEDED", "the end")
    wait_for(lambda: not ours(), "the end of all processes")
