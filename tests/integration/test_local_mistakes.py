"""What goes wrong around an experiment is said, and nobody waits for what cannot come."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience
from tests.contract.experiments import states
from tests.integration.launching import kill, lines, only_experiment, start, wait_for, write

import nemo_run as run


@pytest.mark.timeout(60)
def test_waiting_for_jobs_that_nobody_will_start_returns_with_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, ran = tmp_path / "begun", tmp_path / "ran"
    go_on = tmp_path / "go_on"
    path = write(
        tmp_path,
        f"first = 'touch {begun}; while [ ! -e {go_on} ]; do sleep 0.05; done'\n"
        "with run.Experiment('mine') as exp:\n"
        "    one = exp.add(script(first), name='one')\n"
        f"    exp.add(script('echo x >> {ran}'), name='two', dependencies=[one])\n"
        "    exp.run()\n",
    )
    launcher = start(path)
    wait_for(begun.exists, "the start of the first job")
    kill(launcher.pid)
    launcher.wait()
    go_on.touch()
    exp = only_experiment("mine")
    capsys.readouterr()

    exp.wait()

    assert "Call resume()" in " ".join(capsys.readouterr().out.split())
    assert states(exp) == {"one": "SUCCEEDED", "two": "UNSUBMITTED"}
    exp.resume()
    assert states(run.Experiment.from_id(exp._id)) == {"one": "SUCCEEDED", "two": "SUCCEEDED"}
    assert lines(ran) == ["x"]


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["", ", clean_mode=True"])
def test_whoever_stops_reading_the_output_sees_no_traceback(tmp_path: Path, settings: str) -> None:
    path = write(
        tmp_path,
        f"with run.Experiment('mine', log_level='WARN'{settings}) as exp:\n"
        "    exp.add(script('for i in $(seq 200); do echo $i; sleep 0.005; done'), name='a')\n"
        "    exp.run(tail_logs=True)\n",
    )
    with (tmp_path / "errors").open("w") as errors:
        launcher = subprocess.Popen(
            [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert launcher.stdout is not None
        assert any(line == "1\n" for line in launcher.stdout)
        launcher.stdout.close()
        launcher.wait(patience.seconds(60))

    assert (tmp_path / "errors").read_text() == ""
    exp = only_experiment("mine")
    exp.wait()
    assert states(exp) == {"a": "SUCCEEDED"}


@pytest.mark.slow
def test_a_launcher_killed_before_git_has_answered_leaves_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 5\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    begun = tmp_path / "begun"
    path = write(
        tmp_path,
        "with run.Experiment('mine') as exp:\n"
        f"    exp.add(script('touch {begun}; sleep 1'), name='one')\n"
        "    exp.run()\n",
    )
    launcher = start(path)
    wait_for(begun.exists, "the start of the job")
    kill(launcher.pid)
    launcher.wait()

    exp = only_experiment("mine")
    assert exp.provenance is not None
    assert exp.provenance.cwd == str(tmp_path)
    assert exp.provenance.code == "not known: the launcher ended before git answered"
    exp.wait()
    assert states(exp) == {"one": "SUCCEEDED"}
