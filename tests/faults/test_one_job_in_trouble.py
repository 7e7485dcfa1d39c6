"""Trouble of one job, one answer or one file ends nothing else."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script, states, statuses
from tests.faults.odd_backends import OddAnswers, install, say
from tests.integration.launching import conductors, kill, lines, wait_for

import nemo_run as run


@pytest.fixture(autouse=True)
def odd_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site, monkeypatch)


def gate(path: Path) -> str:
    return f"while [ ! -e '{path}' ]; do sleep 0.02; done"


def status_file(exp: run.Experiment, job: str) -> Path:
    entry = statuses(exp)[job]
    (path,) = Path(entry["local_dir"]).glob("**/.replica/status")
    return path


def test_a_read_that_fails_does_not_end_a_job_or_its_dependents(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with experiment() as exp:
        first = exp.add(script(gate(go)), name="first")
        exp.add(script("true"), name="second", dependencies=[first])
        exp.run(detach=True)
    found = run.Experiment.from_id(exp._id)
    wait_for(lambda: states(found)["first"] == "RUNNING", "the start")
    status = status_file(found, "first")
    aside = status.with_name("aside")
    # A directory in place of a file: every read of it fails, as it would with EIO.
    status.rename(aside)
    status.mkdir()
    try:
        wait_for(lambda: "cannot be read" in statuses(found)["first"]["message"], "the message")
        assert states(found) == {"first": "RUNNING", "second": "UNSUBMITTED"}
        time.sleep(1)  # several rounds of the conductor
        assert conductors()
    finally:
        status.rmdir()
        aside.rename(status)
    go.touch()
    wait_for(lambda: set(states(found).values()) == {"SUCCEEDED"}, "the end of both")
    assert statuses(found)["first"]["message"] == ""


def test_a_job_whose_directory_is_away_for_a_while_is_not_said_to_be_unsubmitted(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    with experiment() as exp:
        exp.add(script(gate(go)), name="job")
        exp.run(detach=True)
    found = run.Experiment.from_id(exp._id)
    wait_for(lambda: states(found)["job"] == "RUNNING", "the start")
    directory = Path(exp._exp_dir, "job")
    directory.rename(tmp_path / "away")
    try:
        assert states(found) == {"job": "RUNNING"}
        assert "not to be found" in statuses(found)["job"]["message"]
        assert states(run.Experiment.from_id(exp._id)) == {"job": "SUBMITTED"}
    finally:
        (tmp_path / "away").rename(directory)
    go.touch()
    wait_for(lambda: states(found)["job"] == "SUCCEEDED", "the end")


def _says(exp: run.Experiment, word: str) -> bool:
    return word in statuses(exp)["odd"]["message"]


def test_an_answer_that_makes_no_sense_does_not_end_the_other_jobs(tmp_path: Path) -> None:
    odd, ran, go = tmp_path / "odd", tmp_path / "ran", tmp_path / "go"
    odd.write_text("KeyError")
    with experiment() as exp:
        exp.add(script(gate(go)), name="odd", executor=OddAnswers(says=str(odd)))
        first = exp.add(script("true"), name="first")
        exp.add(script(f"echo ran >> '{ran}'"), name="second", dependencies=[first])
        exp.run(detach=True)
    found = run.Experiment.from_id(exp._id)
    wait_for(lambda: lines(ran) == ["ran"], "the dependent of another job")
    assert conductors()
    for kind in ("TypeError", "RecursionError", "OSError", "MemoryError"):
        say(odd, kind)
        wait_for(partial(_says, found, kind), kind)
        assert states(found)["odd"] == "SUBMITTED"
        assert conductors()
    odd.unlink()
    go.touch()
    wait_for(lambda: set(states(found).values()) == {"SUCCEEDED"}, "the end of all")
    wait_for(lambda: not conductors(), "the end of the conductor")


def test_a_dependent_whose_turn_falls_into_an_outage_waits_for_its_end(tmp_path: Path) -> None:
    away, go = tmp_path / "away", tmp_path / "go"
    with experiment() as exp:
        first = exp.add(script(gate(go)), name="first")
        exp.add(
            script("true"),
            name="second",
            dependencies=[first],
            executor=OddAnswers(unreachable=str(away)),
        )
        exp.run(detach=True)
    found = run.Experiment.from_id(exp._id)
    away.touch()
    go.touch()
    wait_for(lambda: "waits to be launched" in statuses(found)["second"]["message"], "the message")
    assert "is away" in statuses(found)["second"]["message"]
    assert states(found) == {"first": "SUCCEEDED", "second": "UNSUBMITTED"}
    (pid,) = conductors()
    kill(pid)
    away.unlink()
    found.resume()
    assert states(found) == {"first": "SUCCEEDED", "second": "SUCCEEDED"}


def test_jobs_that_wait_for_a_slot_are_not_started_by_cancelling_others(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with experiment(executor=run.LocalExecutor(jobs_at_a_time=4)) as exp:
        for number in range(30):
            exp.add(script(f"echo {number} >> '{ran}'; sleep 60"), name=f"job-{number}")
        exp.run(detach=True)
    wait_for(lambda: len(lines(ran)) == 4, "the first four")
    found = run.Experiment.from_id(exp._id)
    found._watch.conductor.refresh()
    found._watch.end_all()
    assert set(states(found).values()) == {"CANCELLED"}
    assert len(lines(ran)) == 4


def test_a_job_whose_plan_is_damaged_fails_and_the_others_go_on(tmp_path: Path) -> None:
    go, ran = tmp_path / "go", tmp_path / "ran"
    with experiment() as exp:
        first = exp.add(script(gate(go)), name="first")
        exp.add(script("true"), name="damaged", dependencies=[first])
        exp.add(script(f"echo ran >> '{ran}'"), name="whole", dependencies=[first])
        exp.run(detach=True)
    Path(exp._exp_dir, "_PLAN", "1.json").write_text("{")
    go.touch()
    found = run.Experiment.from_id(exp._id)
    wait_for(lambda: not conductors(), "the end of the conductor")
    assert states(found) == {"first": "SUCCEEDED", "damaged": "FAILED", "whole": "SUCCEEDED"}
    assert "is damaged" in statuses(found)["damaged"]["message"]
    assert lines(ran) == ["ran"]
