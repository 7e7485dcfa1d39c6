"""A home that cannot be written, and a disk that is full."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script, states, statuses
from tests.integration.launching import conductors, kill, launch, ours, wait_for, write

import nemo_run as run

pytestmark = pytest.mark.slow

JOB = """
with run.Experiment("disk", clean_mode=True) as exp:
    exp.add(script("echo hi"), name="a")
    exp.run()
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)]
    subprocess.run(mount, check=True)
    yield where
    for pid in ours():
        kill(pid)
    subprocess.run(["umount", "-l", str(where)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte free."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass
    return filler


def said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""


def test_a_home_that_cannot_be_written_is_named(small_disk: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    home = small_disk / "home"
    done = launch(write(tmp_path, JOB), NEMORUN_HOME=str(home))
    assert done.returncode == 1
    assert str(home) in said(done)
    assert "ead-only" in said(done)


def test_a_home_that_is_a_file_is_named(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("")
    done = launch(write(tmp_path, JOB), NEMORUN_HOME=str(home))
    assert done.returncode == 1
    assert str(home) in said(done)


def test_a_full_disk_is_said_and_nothing_is_started(small_disk: Path, tmp_path: Path) -> None:
    fill(small_disk)
    done = launch(write(tmp_path, JOB), NEMORUN_HOME=str(small_disk / "home"))
    assert done.returncode == 1
    assert "No space left" in said(done)


def test_what_ran_before_the_disk_was_full_is_still_known(small_disk: Path) -> None:
    run.config.set_nemorun_home(str(small_disk / "home"))
    with experiment("disk") as exp:
        exp.add(script("echo hi; exit 3"), name="a")
        exp.run()
    fill(small_disk)
    found = run.Experiment.from_id(exp._id)
    assert states(found) == {"a": "FAILED"}
    with pytest.raises((OSError, run.exceptions.NemoRunError)), experiment("more") as more:
        more.add(script("true"), name="b")
        more.run()
    assert states(run.Experiment.from_id(exp._id)) == {"a": "FAILED"}


def test_a_disk_that_fills_up_while_a_job_runs_does_not_make_its_outcome_wrong(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMORUN_HOME", str(small_disk / "home"))
    run.config.set_nemorun_home(str(small_disk / "home"))
    with experiment("disk") as exp:
        exp.add(script("echo up; sleep 1.5; exit 0"), name="good")
        exp.add(script("echo up; sleep 1.5; exit 3"), name="bad")
        exp.run(detach=True)
    wait_for(lambda: set(states(exp).values()) == {"RUNNING"}, "the start")
    filler = fill(small_disk)
    wait_for(lambda: not any("sleep" in text for text in ours().values()), "the end")
    filler.unlink()
    exp.wait()
    final = states(run.Experiment.from_id(exp._id))
    assert final["bad"] == "FAILED"
    assert final["good"] == "SUCCEEDED"


def test_a_conductor_outlives_a_full_disk_and_says_what_it_waits_for(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMORUN_HOME", str(small_disk / "home"))
    run.config.set_nemorun_home(str(small_disk / "home"))
    go = tmp_path / "go"
    with experiment("disk") as exp:
        first = exp.add(script(f"while [ ! -e '{go}' ]; do sleep 0.02; done"), name="first")
        exp.add(script("true"), name="second", dependencies=[first])
        exp.run(detach=True)
    wait_for(lambda: states(exp)["first"] == "RUNNING", "the start")
    filler = fill(small_disk)
    go.touch()
    wait_for(lambda: "No space left" in statuses(exp)["second"]["message"], "the message")
    assert states(exp)["first"] == "SUCCEEDED"
    assert conductors()
    filler.unlink()
    wait_for(lambda: states(exp)["second"] == "SUCCEEDED", "the end", timeout_s=90)


def test_looking_at_what_ended_needs_no_writing(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMORUN_HOME", str(small_disk / "home"))
    run.config.set_nemorun_home(str(small_disk / "home"))
    with experiment("looked-at") as exp:
        exp.add(script("exit 3"), name="bad")
        exp.add(script("true"), name="good")
        exp.run(detach=True)
    wait_for(lambda: not any("supervisor" in text for text in ours().values()), "the end of both")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "nemo_run", "experiment", "status", "looked-at", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "UNKNOWN" not in done.stdout
    assert states(run.Experiment.from_id(exp._id)) == {"bad": "FAILED", "good": "SUCCEEDED"}
