"""A failure explains itself wherever it is shown: status, JSON, exception, list, closing hint."""

from __future__ import annotations

import getpass
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests import patience
from tests.contract.experiments import experiment, script, statuses
from torchx.schedulers.api import Stream
from torchx.specs import AppState

import nemo_run as run
from nemo_run.cli import experiments as cli_experiments
from nemo_run.exceptions import JobFailedError
from nemo_run.run.torchx_backend.packaging import package
from nemo_run.run.torchx_backend.schedulers.api import LogQuery
from nemo_run.run.torchx_backend.schedulers.local import create_scheduler

IMPORT = "cat > x.py <<'END'\nimport not_installed_here\nEND\necho first\npython3 x.py"
WHY = "ModuleNotFoundError: No module named 'not_installed_here'"


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> run.Experiment:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    with experiment("explained", check=False) as exp:
        exp.add(script("echo fine"), name="fine")
        exp.add(script(IMPORT), name="bad")
        exp.add(script("echo never"), name="after", dependencies=["bad"])
        exp.run()
    return exp


def output_of(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    cli_experiments.main(words, "nemorun experiment")
    return capsys.readouterr().out


def test_why_a_job_failed_is_shown_everywhere(
    failed: run.Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    found = statuses(failed)["bad"]
    assert found["message"] == WHY
    assert found["cause"]["kind"] == "import_error"
    assert found["cause"]["lines"][0] == "first"
    assert found["cause"]["lines"][-1] == WHY
    assert statuses(failed)["after"]["cause"]["kind"] == "dependency"
    assert statuses(failed)["fine"]["cause"] is None

    with pytest.raises(JobFailedError) as raised:
        failed.raise_if_failed()
    error = raised.value
    assert (error.job, error.cause, error.exit_code) == ("bad", "import_error", 1)
    assert str(error).startswith(f"Job bad FAILED with exit code 1: {WHY}")
    assert error.tail[-1] == f"{WHY}\n"

    id = failed._id
    assert WHY in output_of("status", id, capsys=capsys)
    assert WHY in output_of("show", id, capsys=capsys)
    assert f"job 1: {WHY}" in output_of("list", capsys=capsys)
    shown = json.loads(output_of("status", id, "--json", capsys=capsys))["jobs"]["bad"]
    assert shown["cause"]["kind"] == "import_error"
    (listed,) = json.loads(output_of("list", "explained", "--json", capsys=capsys))
    assert listed["message"] == f"job 1: {WHY}"


def test_the_closing_hint_names_the_job_that_failed() -> None:
    console = Console(file=io.StringIO(), width=200)
    with run.Experiment("hinting", check=False, enable_goodbye_message=True) as exp:
        exp.console = console
        exp.add(script("echo fine"), name="fine")
        exp.add(script("exit 3"), name="bad")
        exp.run()
    text = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO above
    assert "experiment.logs('bad')" in text
    assert f"logs {exp._id} 1" in text


def test_a_signal_is_named() -> None:
    with experiment(check=False) as exp:
        exp.add(script("kill -KILL $$"), name="job")
        exp.run()
    found = statuses(exp)["job"]
    assert (found["exit_code"], found["signal"]) == (-9, "SIGKILL")
    assert found["cause"]["kind"] == "killed"
    with pytest.raises(JobFailedError, match="FAILED with SIGKILL"):
        exp.raise_if_failed()


def test_a_cancelled_job_says_who_cancelled_it() -> None:
    with experiment(check=False) as exp:
        exp.add(script("sleep 300"), name="job")
        exp.run(detach=True)
    exp.cancel("job")
    found = statuses(exp)["job"]
    assert found["status"] is AppState.CANCELLED
    assert found["cause"]["kind"] == "cancelled"
    assert f" by {getpass.getuser()} on " in found["message"]


def test_the_lines_are_those_of_the_replica_that_failed_first(tmp_path: Path) -> None:
    executor = run.LocalExecutor()
    executor.assign("exp", str(tmp_path), "task", "task")
    text = (
        f"cd '{tmp_path}'; if mkdir flag 2> /dev/null\n"
        "then until [ -e failed ]; do sleep 0.05; done\n"
        "sleep 1; echo late; exit 4\nelse echo soon; touch failed; exit 3; fi"
    )
    app: Any = package("task", script(text), executor, num_replicas=2)
    scheduler = create_scheduler("nemo_run")
    app_id = scheduler.schedule(scheduler.submit_dryrun(app, executor))
    deadline = patience.deadline(60)
    while (status := scheduler.status_of(app_id)) is None or status.ended_at is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    query = LogQuery(role=app.roles[0].name, replica=0, stream=Stream.COMBINED)
    assert list(scheduler.tail(app_id, query, 5)) == ["soon\n"]
