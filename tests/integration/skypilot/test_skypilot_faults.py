"""What SkyPilot and its clusters may do without a job being lost.

These tests stop things that others share, so they are run alone and in this order.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.contract.backends import SkypilotCluster
from torchx.specs import AppState

import nemo_run as run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skypilot,
    pytest.mark.skypilot_alone,
    pytest.mark.timeout(1200),
    # SkyPilot starts an API server by itself, and does not wait for that process.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def cluster(skypilot_bed: Path, tmp_path: Path) -> SkypilotCluster:
    return SkypilotCluster(tmp_path)


def sky(*arguments: str) -> None:
    subprocess.run(["sky", *arguments], check=True, capture_output=True)


def test_a_job_is_found_after_the_api_server_was_restarted(cluster: SkypilotCluster) -> None:
    app_id = cluster.schedule("echo up; sleep 20; echo done; exit 3")
    cluster.wait_for_line(app_id, "up\n")
    sky("api", "stop")
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 3)
    assert cluster.lines(app_id) == ["up\n", "done\n"]


def test_state_and_logs_outlive_the_cluster(cluster: SkypilotCluster) -> None:
    app_id = cluster.schedule("echo kept; exit 4")
    cluster.wait(app_id)
    sky("down", "-y", os.environ["NEMO_RUN_TEST_SKYPILOT_CLUSTER"])
    seen = cluster.in_new_process().call("seen", app_id)
    assert seen == {"state": "FAILED", "exit_code": 4, "lines": ["kept\n"], "listed": [app_id]}


def test_cancelling_takes_down_a_cluster_that_was_made_for_the_experiment(
    cluster: SkypilotCluster,
) -> None:
    executor = cluster.executor(cluster_name=None, cpus=1, memory=1)
    with run.Experiment("own", executor=executor) as exp:
        exp.add(run.Script(inline="echo up; sleep 600"), name="job")
        exp.run(detach=True)
    app_id = exp.jobs[0].handle.rpartition("/")[2]
    cluster.wait_for_line(app_id, "up\n")
    assert cluster.scheduler.unused_clusters() == {}
    cluster.cancel(app_id)
    status = cluster.status(app_id)
    assert status is not None
    assert status.state is AppState.CANCELLED
    assert run.SkypilotExecutor.status(app_id) == (None, None)
    assert cluster.lines(app_id) == ["up\n"]
