"""A job whose launch meets trouble of this machine waits for its end, and is not given up."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, log_of, script, states, statuses
from tests.faults.injection import Injection
from tests.faults.test_one_job_in_trouble import gate
from tests.integration.launching import lines, wait_for

import nemo_run as run

pytestmark = [pytest.mark.slow, pytest.mark.needs("cc")]


@pytest.fixture
def injection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Injection:
    injection = Injection(tmp_path / "shim", Path(os.environ["NEMORUN_HOME"]))
    monkeypatch.setattr(sys, "executable", injection.reach_supervisors())
    for name, value in injection.environment.items():
        monkeypatch.setenv(name, value)
    return injection


def test_an_exit_code_that_cannot_be_written_down_is_written_later(
    tmp_path: Path, injection: Injection
) -> None:
    go, ran = tmp_path / "go", tmp_path / "ran"
    with experiment() as exp:
        exp.add(script(f"{gate(go)}; echo ran >> '{ran}'; exit 7"), name="job")
        exp.run(detach=True)
    found = run.Experiment.from_id(exp._id)
    wait_for(lambda: states(found)["job"] == "RUNNING", "the start")
    injection.often(supervisor=1_000_000)
    go.touch()
    wait_for(lambda: lines(ran) == ["ran"] and injection.met().total() > 3, "the end of the task")
    injection.often()
    wait_for(lambda: states(found)["job"] == "FAILED", "the end of the job")
    assert statuses(found)["job"]["exit_code"] == 7


def test_a_dependent_that_cannot_be_started_for_want_of_space_waits_for_it(
    tmp_path: Path, injection: Injection
) -> None:
    go, ran = tmp_path / "go", tmp_path / "ran"
    with experiment() as exp:
        first = exp.add(script(gate(go)), name="first")
        second = exp.add(script(f"echo ran >> '{ran}'"), name="second", dependencies=[first])
        exp.run(detach=True)
    injection.only_below(Path(exp._exp_dir, second, "nemo_run"))
    injection.often(conductor=1_000_000)
    go.touch()
    found = run.Experiment.from_id(exp._id)
    wait_for(lambda: "could not be started" in statuses(found)["second"]["message"], "the message")
    assert states(found) == {"first": "SUCCEEDED", "second": "UNSUBMITTED"}
    injection.often()
    wait_for(lambda: set(states(found).values()) == {"SUCCEEDED"}, "the end of both")
    assert lines(ran) == ["ran"]


def test_an_attempt_is_run_though_the_disk_does_not_say_that_its_start_is_safe(
    injection: Injection,
) -> None:
    injection.only_syncs()
    with experiment() as exp:
        first = exp.add(script("true"), name="first")
        exp.add(script("echo $NEMO_RUN_ATTEMPT"), name="second", dependencies=[first])
        exp.run(detach=True)
    found = run.Experiment.from_id(exp._id)
    injection.only_below(Path(exp._exp_dir, "second", "nemo_run"))
    injection.often(supervisor=1_000_000)
    wait_for(lambda: injection.met().total() > 1, "the trouble")
    injection.often()
    wait_for(lambda: states(found)["second"] == "SUCCEEDED", "the end")
    assert log_of(found, "second") == "1\n"
