"""Requests that 0.12 stored, and what it left of their jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.contract.backends import DockerCluster
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PLAIN
from tests.integration.docker.jobs import inspected
from torchx.specs import AppState

import nemo_run as run
from nemo_run.core.execution import docker as executors
from nemo_run.core.execution.docker import (
    LABEL_EXPERIMENT_ID,
    LABEL_ID,
    LABEL_NAME,
    DockerContainer,
    DockerJobRequest,
)

pytestmark = pytest.mark.slow

APP_ID = "job-x1y2z3"


def stored(tmp_path: Path, names: tuple[str, ...] = ("title-1-job",)) -> Path:
    """Store a request as 0.12 does; return the directory of its job."""
    executor = run.DockerExecutor(container_image=PLAIN)
    executor.assign("title_1", str(tmp_path / "title_1"), "job", "job")
    executor.create_job_dir()
    containers = [
        DockerContainer(name=name, command=["true"], executor=executor, extra_env={"A": "1"})
        for name in names
    ]
    DockerJobRequest(id=APP_ID, executor=executor, containers=containers).save()
    return Path(executor.job_dir)


def test_a_stored_request_is_loaded(cluster: DockerCluster, tmp_path: Path) -> None:
    assert DockerJobRequest.load(APP_ID) is None
    stored(tmp_path)
    index = Path(executors.DOCKER_JOB_DIRS)
    assert list(json.loads(index.read_text())) == [APP_ID]
    assert index.stat().st_mode & 0o077 == 0
    loaded = DockerJobRequest.load(APP_ID)
    assert loaded is not None
    assert loaded.containers[0].extra_env == {"A": "1"}
    assert loaded.executor.container_image == PLAIN
    assert DockerJobRequest.load("another") is None


@pytest.mark.parametrize(
    ("code", "state"), [("0", AppState.SUCCEEDED), ("3", AppState.FAILED)], ids=["good", "bad"]
)
def test_a_job_whose_container_is_gone_is_known_by_its_files(
    cluster: DockerCluster, tmp_path: Path, code: str, state: AppState
) -> None:
    job_dir = stored(tmp_path)
    (job_dir / "log_title-1-job.out").write_text("said\n")
    (job_dir / "status_title-1-job.out").write_text(f'{{"id": "{APP_ID}", "exit_code": "{code}"}}')
    end = cluster.wait(APP_ID)
    assert (end.state, end.exit_code) == (state, int(code))
    assert cluster.lines(APP_ID) == ["said\n"]
    assert [role.name for role in cluster.scheduler.describe(APP_ID).roles] == ["job"]


@pytest.mark.parametrize("left", [None, "job-of-before"], ids=["nothing", "another"])
def test_a_job_that_left_nothing_may_be_on_another_engine(
    cluster: DockerCluster, tmp_path: Path, left: str | None
) -> None:
    job_dir = stored(tmp_path)
    if left:
        (job_dir / "status_title-1-job.out").write_text(f'{{"id": "{left}", "exit_code": "0"}}')
    status = cluster.status(APP_ID)
    assert status is not None
    assert status.state is AppState.UNKNOWN
    assert "Set DOCKER_HOST" in status.message


def test_a_group_with_one_failure_has_failed(cluster: DockerCluster, tmp_path: Path) -> None:
    job_dir = stored(tmp_path, ("title-1-job-0", "title-1-job-1"))
    for number, code in enumerate("05"):
        text = json.dumps({"id": APP_ID, "exit_code": code})
        (job_dir / f"status_title-1-job-{number}.out").write_text(text)
    end = cluster.wait(APP_ID)
    assert (end.state, end.exit_code, end.message) == (AppState.FAILED, 5, "job-1 failed")


def test_a_container_that_still_runs_is_found_and_can_be_cancelled(
    cluster: DockerCluster, engine: DockerEngine, tmp_path: Path
) -> None:
    job_dir = stored(tmp_path)
    labels = {LABEL_ID: APP_ID, LABEL_NAME: "title-1-job", LABEL_EXPERIMENT_ID: "title_1"}
    with engine.client() as client:
        client.containers.run(
            PLAIN,
            ["sleep", "600"],
            detach=True,
            network="none",
            labels=labels,
            volumes=[f"{job_dir}:/nemo_run"],
        )
    status = cluster.status(APP_ID)
    assert status is not None
    assert status.state is AppState.RUNNING
    cluster.scheduler.kill(APP_ID)
    assert cluster.wait(APP_ID).state is AppState.CANCELLED


def test_a_request_can_be_run_by_hand(cluster: DockerCluster, tmp_path: Path) -> None:
    executor = run.DockerExecutor(container_image=PLAIN, env_vars={"A": "1", "B": "no"})
    executor.assign("title_1", str(tmp_path / "title_1"), "job", "job")
    executor.create_job_dir()
    command = ["sh", "-c", 'echo "$A $B"; exit 2']
    container = DockerContainer(
        name="by-hand", command=command, executor=executor, extra_env={"B": "2"}
    )
    request = DockerJobRequest(id=APP_ID, executor=executor, containers=[container])
    client = executors.get_client()
    (made,) = request.run(client)
    assert made.wait()["StatusCode"] == 2
    assert made.logs() == b"1 2\n"
    assert [found.id for found in request.get_containers(client)] == [made.id]
    container.delete(client, APP_ID)
    container.delete(client, APP_ID)
    assert container.get_container(client, APP_ID) is None
    assert (Path(executor.job_dir) / "log_by-hand.out").read_text() == "1 2\n"


def test_cleaning_up_removes_what_still_runs(cluster: DockerCluster, engine: DockerEngine) -> None:
    app_id = cluster.schedule("echo up; sleep 600")
    cluster.wait_for_line(app_id, "up\n")
    cluster.executor().cleanup(f"docker_persistent://nemo_run/{app_id}")
    assert inspected(engine, app_id) == []


def test_a_damaged_index_is_left_out(cluster: DockerCluster, nemorun_home: Path) -> None:
    nemorun_home.mkdir(parents=True)
    (nemorun_home / ".docker_jobs.json").write_text('{"job-x1y2z3": "not a config"')
    assert cluster.scheduler.describe(APP_ID) is None
    assert DockerJobRequest.load(APP_ID) is None
    (nemorun_home / ".docker_jobs.json").write_text('{"job-x1y2z3": "not a config"}')
    assert cluster.scheduler.describe(APP_ID) is None
