"""Jobs on a cluster of a real SkyPilot, beyond what every backend promises."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.contract.backends import SkypilotCluster
from torchx.specs import AppState

import nemo_run as run

pytestmark = [pytest.mark.slow, pytest.mark.skypilot, pytest.mark.timeout(1200)]


@pytest.fixture
def cluster(skypilot_bed: Path, tmp_path: Path) -> SkypilotCluster:
    return SkypilotCluster(tmp_path)


def test_every_node_runs_the_task_and_has_a_log_of_its_own(cluster: SkypilotCluster) -> None:
    script = 'echo "$SKYPILOT_NODE_RANK of $num_nodes, first $head_node_ip"'
    app_id = cluster.schedule(script, num_nodes=2)
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    (role,) = cluster.scheduler.describe(app_id).roles
    assert role.num_replicas == 2
    logs = [cluster.lines(app_id, k=rank) for rank in range(2)]
    assert logs == [[f"{rank} of 2, first 127.0.0.1\n"] for rank in range(2)]


def test_one_node_that_fails_makes_the_job_fail(cluster: SkypilotCluster) -> None:
    end = cluster.wait(cluster.schedule("exit $((SKYPILOT_NODE_RANK * 9))", num_nodes=2))
    assert (end.state, end.exit_code) == (AppState.FAILED, 9)


def test_the_code_travels(cluster: SkypilotCluster, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "word.txt").write_text("travelled\n")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    packager = run.PatternPackager(
        include_pattern=str(repository / "*.txt"), relative_path=str(repository)
    )
    with run.Experiment("travel", executor=cluster.executor(packager=packager)) as exp:
        exp.add(run.Script(inline="cat word.txt"), name="job")
        exp.run()
        app_id = exp.jobs[0].handle.rpartition("/")[2]
    assert cluster.lines(app_id) == ["travelled\n"]


def test_a_job_is_found_whose_launcher_never_heard_of_its_request(
    cluster: SkypilotCluster, nemorun_home: Path
) -> None:
    planned = cluster.plan("sleep 5; echo found")
    app_id = cluster.scheduler.schedule(planned)
    (path,) = (nemorun_home / "jobs" / "skypilot").glob("*.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "ref": None, "state": "UNSUBMITTED"}))
    assert cluster.scheduler.submitted(planned) == app_id
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["found\n"]


def test_a_job_that_was_never_asked_for_is_known_as_such(
    cluster: SkypilotCluster, nemorun_home: Path
) -> None:
    planned = cluster.plan("true")
    record = cluster.scheduler._new_record(planned, planned.request.app_id)
    cluster.scheduler._put(record)
    assert cluster.scheduler.submitted(planned) is None
    status = cluster.status(record.app_id)
    assert status is not None
    assert status.state is AppState.UNSUBMITTED
