"""What a real API server says without making anything; with every release that we support."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import ROOT, SkypilotCluster, SkypilotJobs
from tests.integration.skypilot.line import line
from torchx.specs import AppState

import nemo_run as run
from nemo_run._backends.skypilot import client

pytestmark = [pytest.mark.slow, pytest.mark.skypilot, pytest.mark.timeout(600)]

KINDS = pytest.mark.parametrize("kind", [SkypilotCluster, SkypilotJobs])


@pytest.fixture(autouse=True)
def bed(skypilot_bed: Path) -> Path:
    return skypilot_bed


def test_a_dry_launch_makes_no_cluster(tmp_path: Path) -> None:
    cluster = SkypilotCluster(tmp_path)
    executor = cluster.assigned("job", cluster_name="never-made", cpus=2, num_nodes=2)
    assert isinstance(executor, run.SkypilotExecutor)
    task = executor.to_task("job", ["true"])
    assert executor.launch(task, dryrun=True) == (None, None)
    assert client.cluster_status("never-made") is None
    assert (Path(executor.job_dir) / "skypilot_task.yml").exists()


@KINDS
def test_a_plan_shows_the_task_and_what_skypilot_would_do(
    kind: type[SkypilotCluster], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"cluster_name": "never-made"} if kind is SkypilotCluster else {}
    planned = kind(tmp_path).plan(["echo", "hi"], cpus=2, memory=4, num_nodes=2, **settings)
    task, _, said = str(planned).partition("\n# SkyPilot says:\n")
    assert "echo hi" in task
    assert "COST ($)" in said
    assert "Slurm" in said
    assert "2 nodes" in said
    assert all(line.startswith("#") for line in said.splitlines())
    assert client.cluster_status("never-made") is None


@KINDS
def test_what_cannot_be_had_is_said(kind: type[SkypilotCluster], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"cluster_name": "never-made"} if kind is SkypilotCluster else {}
    planned = kind(tmp_path).plan(["true"], cpus=100_000, **settings)
    assert "100000" in str(planned).partition("\n# SkyPilot says:\n")[2]


@KINDS
def test_a_plan_starts_no_api_server(kind: type[SkypilotCluster], tmp_path: Path) -> None:
    shown = _planned_through("http://127.0.0.1:9", kind, tmp_path)
    assert "echo hi" in shown
    assert "SkyPilot says" not in shown


@KINDS
def test_what_skypilot_says_of_a_plan_is_read_when_it_has_said_all(
    kind: type[SkypilotCluster], tmp_path: Path
) -> None:
    with line() as way:
        shown = _planned_through(way.address, kind, tmp_path)
        asked = [request.split()[1].partition("?")[0] for request in way.asked]
    since = asked[asked.index("/optimize") :]
    assert "COST ($)" in shown
    assert since.index("/api/get") < since.index("/api/stream")


def _planned_through(endpoint: str, kind: type[SkypilotCluster], tmp_path: Path) -> str:
    code = (
        "import pathlib, sys; from tests.contract import backends; "
        "kind = getattr(backends, sys.argv[1]); "
        "named = {'cluster_name': 'never-made'} if kind is backends.SkypilotCluster else {}; "
        "print(kind(pathlib.Path(sys.argv[2])).plan(['echo', 'hi'], **named))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, kind.__name__, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "SKYPILOT_API_SERVER_ENDPOINT": endpoint},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def test_jobs_that_are_not_there() -> None:
    assert run.SkypilotExecutor.status("e___never-made___job___1") == (None, None)
    run.SkypilotExecutor.cancel("e___never-made___job___1")
    assert run.SkypilotJobsExecutor.status("c___job___123456") is None
    run.SkypilotJobsExecutor.cancel("c___job___123456")


@pytest.mark.parametrize("word", ["SUBMITTED", "DEPRECATED_SUBMITTED"])
def test_a_state_of_an_earlier_release_is_known_by_value_and_by_name(
    tmp_path: Path, nemorun_home: Path, word: str
) -> None:
    nemorun_home.mkdir(exist_ok=True)
    index = {"c___job___123456": {"job_status": word}}
    (nemorun_home / ".skypilot_jobs.json").write_text(json.dumps(index))
    jobs = SkypilotJobs(tmp_path)
    assert jobs.outage is not None
    with jobs.outage():
        status = jobs.status("c___job___123456")
    assert status is not None
    assert status.state is AppState.SUBMITTED


@pytest.mark.parametrize("kind", ["SkypilotExecutor", "SkypilotJobsExecutor"])
def test_the_doctor_asks_the_api_server(kind: str) -> None:
    found = _doctor(f"{kind}(infra=slurm/loop,cpus=2)")
    assert {finding["verdict"] for finding in found.values()} == {"ok"}
    assert "Slurm" in found["resources"]["detail"]
    assert found["server"]["detail"].startswith(found["sdk"]["detail"].removeprefix("skypilot "))


def test_the_doctor_starts_no_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "http://127.0.0.1:9")
    server = _doctor("SkypilotExecutor(infra=slurm/loop)")["server"]
    assert (server["verdict"], "sky api info" in server["advice"]) == ("warning", True)


def _doctor(executor: str) -> dict[str, dict[str, str]]:
    command = [sys.executable, "-W", "ignore", "-m", "nemo_run", "doctor", "--json", executor]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return {finding["subject"]: finding for finding in json.loads(done.stdout)[executor]}
