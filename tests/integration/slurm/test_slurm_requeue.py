"""Jobs that Slurm itself ends: for a node that failed, or to make room for another."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.configuration import URGENT_PARTITION
from tests.integration.slurm.jobs import Jobs, wait_until
from torchx.specs import AppState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NEVER_AGAIN = {"additional_parameters": {"no_requeue": True}}


@pytest.fixture
def jobs(slurm: SlurmCluster, tmp_path: Path) -> Jobs:
    return Jobs(slurm, tmp_path)


def started(jobs: Jobs, **settings: Any) -> tuple[str, str]:
    """Return a job that runs until it is started again, and its node."""
    text = 'echo start ${SLURM_RESTART_COUNT:-0}; [ -n "$SLURM_RESTART_COUNT" ] || sleep 600'
    app_id = jobs.schedule(text, **settings)
    jobs.wait_for_line(app_id, "start 0\n")
    jobs.wait_for(app_id, AppState.RUNNING)
    return app_id, jobs.squeue(app_id, "%N")


def restarts(jobs: Jobs, app_id: str) -> int:
    return int(jobs.scheduler.describe(app_id).num_restarts)


class TestNodes:
    def test_a_job_whose_node_failed_is_started_again_on_another(self, jobs: Jobs) -> None:
        app_id, node = started(jobs)
        with jobs.engine.without_node(node):
            wait_until(lambda: restarts(jobs, app_id) == 1, "another start", 90)
            end = jobs.wait(app_id, timeout_s=180)
        assert end.state is AppState.SUCCEEDED
        assert restarts(jobs, app_id) == 1
        assert jobs.lines(app_id)[-1] == "start 1\n"

    def test_one_that_is_not_to_be_started_again_has_failed_with_its_node(self, jobs: Jobs) -> None:
        app_id, node = started(jobs, **NEVER_AGAIN)
        with jobs.engine.without_node(node):
            end = jobs.wait(app_id, timeout_s=90)
        assert end.state is AppState.FAILED
        assert end.message == f"NODE_FAIL: a node failed on {node}"


class TestPreemption:
    def test_a_job_that_had_to_make_room_is_started_again(self, jobs: Jobs) -> None:
        with jobs.engine.preempting():
            # On this node only, so that it waits while the other has it.
            pinned = {"additional_parameters": {"nodelist": "node1"}}
            app_id, node = started(jobs, exclusive=True, **pinned)
            go, urgent = urgently(jobs, node)
            wait_until(lambda: restarts(jobs, app_id) == 1, "its being put back", 90)
            jobs.wait_for(app_id, AppState.PENDING)
            go.touch()
            assert jobs.wait(urgent, timeout_s=90).state is AppState.SUCCEEDED
            assert jobs.wait(app_id, timeout_s=180).state is AppState.SUCCEEDED
        assert restarts(jobs, app_id) == 1
        assert jobs.lines(app_id)[-1] == "start 1\n"

    def test_one_that_is_not_to_be_started_again_has_failed_with_that_cause(
        self, jobs: Jobs
    ) -> None:
        with jobs.engine.preempting():
            app_id, node = started(jobs, exclusive=True, **NEVER_AGAIN)
            go, urgent = urgently(jobs, node)
            end = jobs.wait(app_id, timeout_s=90)
            go.touch()
            assert jobs.wait(urgent, timeout_s=90).state is AppState.SUCCEEDED
        assert end.state is AppState.FAILED
        assert end.message.startswith("PREEMPTED: had to make room")


def urgently(jobs: Jobs, node: str) -> tuple[Path, str]:
    """Return a job that takes a node away from others, and the file that it waits for."""
    go = jobs.scratch / "go"
    text = f"until [ -e {shlex.quote(str(go))} ]; do sleep 0.1; done"
    wanted = {"additional_parameters": {"nodelist": node}, "exclusive": True}
    return go, jobs.schedule(text, name="urgent", partition=URGENT_PARTITION, **wanted)
