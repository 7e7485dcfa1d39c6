"""How a TrainJob is, from what its pods tell."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_run._backends.kubeflow.client import TrainJob
from nemo_run._backends.kubeflow.pods import Node, seen
from nemo_run._backends.kubernetes.pods import Pod
from nemo_run._transport.answers import Answer
from nemo_run.core.execution.kubeflow import KubeflowJobState


def job_of(**parts: int) -> TrainJob:
    status = {"jobsStatus": [{"name": "node", **parts}]}
    return TrainJob.read(Answer({"metadata": {"name": "job", "uid": "1"}, "status": status}))


def ended_pod(policy: str) -> Node:
    """Return a pod whose task has failed for good, as far as that pod can tell."""
    ended: dict[str, Any] = {
        "exitCode": 2,
        "reason": "Error",
        "message": "nemo_run: exit_code=2 attempts=1 lines=0\n",
        "finishedAt": "2026-01-01T00:00:01Z",
    }
    data = {
        "metadata": {"name": "job-node-0-0-abcde"},
        "spec": {"restartPolicy": policy},
        "status": {
            "phase": "Running" if policy == "OnFailure" else "Failed",
            "containerStatuses": [{"name": "node", "state": {"terminated": ended}}],
        },
    }
    return Node.of(Pod.read(Answer(data)))


@pytest.mark.parametrize(
    ("policy", "on_volume", "state"),
    [
        pytest.param("OnFailure", False, KubeflowJobState.FAILED, id="the same pod knows"),
        pytest.param("OnFailure", True, KubeflowJobState.FAILED, id="the same pod knows, too"),
        pytest.param("Never", True, KubeflowJobState.FAILED, id="the volume tells the next pod"),
        pytest.param("Never", False, KubeflowJobState.RUNNING, id="the next pod knows nothing"),
    ],
)
def test_a_job_has_failed_before_kubeflow_says_so_if_the_task_cannot_run_again(
    policy: str, on_volume: bool, state: KubeflowJobState
) -> None:
    found = seen(job_of(active=1), [ended_pod(policy)], 1, on_volume=on_volume)
    assert found.state is state


def test_a_job_that_kubeflow_has_not_said_the_end_of_ended_with_its_last_pod() -> None:
    found = seen(job_of(succeeded=1), [ended_pod("OnFailure")], 1, on_volume=False)
    assert found.state is KubeflowJobState.SUCCEEDED
    assert found.ended_at == 1767225601.0
