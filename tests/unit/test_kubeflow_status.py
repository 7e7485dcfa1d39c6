"""What Kubernetes says of pods and TrainJobs, read, and what follows from it for a job."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_run._backends.kubeflow.client import TrainJob
from nemo_run._backends.kubeflow.pods import Node, Seen, failed_code, seen
from nemo_run._backends.kubernetes.pods import (
    Condition,
    Container,
    End,
    Pod,
    Said,
    failed_first,
)
from nemo_run._transport.answers import Answer
from nemo_run.core.execution.kubeflow import KubeflowJobState

AT = "2026-01-01T00:00:0{}Z"
SECOND = 1767225600.0
"""What AT means with a 0 in it."""

RUNNING = {"running": {"startedAt": AT.format(0)}}


def ended(code: int, message: str = "", reason: str = "Error", second: int = 1) -> dict[str, Any]:
    at = AT.format(second)
    return {
        "terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": at}
    }


def settled(code: int, attempts: int = 1, second: int = 1) -> dict[str, Any]:
    """Return how a container ends whose script says that the task is over."""
    return ended(code, f"nemo_run: exit_code={code} attempts={attempts} lines=0\n", second=second)


def pod(
    state: dict[str, Any] | None = None,
    *,
    before: dict[str, Any] | None = None,
    restarts: int = 0,
    index: str = "0",
    policy: str = "OnFailure",
    **status: Any,
) -> Pod:
    containers = [] if state is None else [{"name": "node", "restartCount": restarts}]
    for container in containers:
        container |= {"state": state, "lastState": before or {}}
    data = {
        "metadata": {
            "name": "job-node-0-0-abcde",
            "creationTimestamp": AT.format(0),
            "labels": {"batch.kubernetes.io/job-completion-index": index},
        },
        "spec": {"restartPolicy": policy},
        "status": {"startTime": AT.format(0), "containerStatuses": containers, **status},
    }
    return Pod.read(Answer(data))


def node(*args: Any, **more: Any) -> Node:
    return Node.of(pod(*args, **more))


def job(*conditions: dict[str, Any], deleting: bool = False, **parts: int) -> TrainJob:
    metadata = {"name": "job", "uid": "1"}
    if deleting:
        metadata["deletionTimestamp"] = AT.format(0)
    status: dict[str, Any] = {"conditions": list(conditions)}
    if parts:
        status["jobsStatus"] = [{"name": "node", **parts}]
    return TrainJob.read(Answer({"metadata": metadata, "status": status}))


def condition(kind: str, holds: bool = True, **more: str) -> dict[str, Any]:
    return {"type": kind, "status": str(holds), **more}


class TestPods:
    def test_a_pod_is_read(self) -> None:
        read = pod(
            ended(3, "words", "OOMKilled"),
            before=ended(2),
            restarts=1,
            phase="Running",
            reason="Evicted",
            message="too much",
            conditions=[
                condition(
                    "Ready", False, reason="No", message="why", lastTransitionTime=AT.format(4)
                )
            ],
        )
        end = End(exit_code=3, at=SECOND + 1, reason="OOMKilled", message="words")
        assert read == Pod(
            name="job-node-0-0-abcde",
            labels={"batch.kubernetes.io/job-completion-index": "0"},
            phase="Running",
            said=Said(reason="Evicted", message="too much"),
            lasting=True,
            created_at=SECOND,
            started_at=SECOND,
            containers=(
                Container(
                    name="node",
                    restarts=1,
                    running=False,
                    waiting=None,
                    ended=end,
                    before=End(exit_code=2, at=SECOND + 1, reason="Error"),
                ),
            ),
            conditions=(
                Condition(kind="Ready", holds=False, since=SECOND + 4, reason="No", message="why"),
            ),
        )
        assert read.container("node") is read.containers[0]
        assert read.container("other") is None

    def test_a_pod_of_which_little_is_said(self) -> None:
        read = Pod.read(Answer({"metadata": {"name": "a"}}))
        assert (read.phase, read.created_at, read.lasting) == ("Unknown", 0.0, True)
        assert (read.said, read.containers, read.waits_for) == (Said(), (), "")
        assert str(read.said) == ""

    def test_a_container_of_which_little_is_said(self) -> None:
        (bare,) = pod({}, containerStatuses=[{"state": {"terminated": {"exitCode": 1}}}]).containers
        assert bare == Container(
            name="",
            restarts=0,
            running=False,
            waiting=None,
            ended=End(exit_code=1, at=None),
            before=None,
        )
        (condition,) = pod(conditions=[{}]).conditions
        assert condition == Condition(kind="", holds=False, since=None)
        (odd,) = pod(conditions=[{"status": "True"}]).conditions
        assert odd.holds

    def test_what_a_container_waits_for_is_said_in_a_word(self) -> None:
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
        read = pod(waiting)
        assert read.waits_for == "ImagePullBackOff"
        assert str(read.containers[0].waiting) == "ImagePullBackOff: no such image"
        assert pod({"waiting": {}}).waits_for == ""
        assert pod(RUNNING).waits_for == ""
        assert pod(RUNNING).containers[0].running

    def test_a_pod_that_never_restarts_does_not_last(self) -> None:
        assert not pod(policy="Never").lasting
        assert pod(policy="Always").lasting

    @pytest.mark.parametrize(
        ("codes", "first"), [([], None), ([0, 0], 0), ([0, 3, 4], 3), ([None, 2], 2)]
    )
    def test_the_end_that_counts_is_that_of_the_first_to_fail(
        self, codes: list[int | None], first: int | None
    ) -> None:
        pods = [pod(RUNNING if code is None else ended(code)) for code in codes]
        found = failed_first(pods)
        assert (None if found is None else found.exit_code) == first


class TestNodes:
    def test_a_node_whose_task_is_over(self) -> None:
        assert node(settled(2, 3), restarts=4, index="7") == Node(
            name="job-node-0-0-abcde",
            index=7,
            nonce="",
            restarts=4,
            lasting=True,
            running=False,
            outcome=node(settled(2, 3)).outcome,
            settled_before=False,
            exit_code=2,
            reason="",
            started_at=SECOND,
            ended_at=SECOND + 1,
        )

    def test_a_node_without_a_container_yet(self) -> None:
        made = node()
        assert (made.restarts, made.running, made.outcome, made.exit_code) == (0, False, None, None)
        assert (made.ended_at, made.log) == (None, (0, False))

    @pytest.mark.parametrize(
        ("label", "index"),
        [("3", 3), ("", 0), ("x", 0), ("1234567890", 0), ("123456789", 123456789)],
    )
    def test_the_number_of_a_node_is_its_label(self, label: str, index: int) -> None:
        assert node(index=label).index == index

    def test_a_container_that_only_repeats_the_log_is_not_read(self) -> None:
        again = node(RUNNING, before=settled(1), restarts=2)
        assert again.log == (1, True)
        assert again.outcome is not None
        assert (again.exit_code, again.settled_before) == (1, True)
        assert node(RUNNING, before=ended(1), restarts=2).log == (2, False)
        assert node(settled(1), before=settled(1), restarts=2).log == (2, False)

    @pytest.mark.parametrize(
        ("state", "status", "reason"),
        [
            (ended(137, "for us", "OOMKilled"), {}, "OOMKilled"),
            (ended(1), {"reason": "Evicted", "message": "disk"}, "Evicted: disk"),
            ({"waiting": {"reason": "ErrImagePull", "message": "no"}}, {}, "ErrImagePull: no"),
            ({"waiting": {"reason": "ContainerCreating"}}, {}, ""),
            ({"waiting": {"reason": "PodInitializing"}}, {}, ""),
            (ended(0, "", "Completed"), {}, ""),
            (RUNNING, {"conditions": [condition("PodScheduled", True, reason="x")]}, ""),
            (RUNNING, {"conditions": [condition("Ready", False, reason="x")]}, ""),
        ],
    )
    def test_why_a_node_is_as_it_is(
        self, state: dict[str, Any], status: dict[str, Any], reason: str
    ) -> None:
        assert node(state, **status).reason == reason

    def test_a_node_that_no_machine_has_room_for_says_so(self) -> None:
        waits = condition("PodScheduled", False, reason="Unschedulable", message="no GPUs")
        assert node(conditions=[waits]).reason == "Unschedulable: no GPUs"

    def test_a_node_whose_task_is_over_waits_for_nothing(self) -> None:
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        assert node(waiting, before=settled(1)).reason == ""
        assert node(waiting, before=ended(1)).reason == "CrashLoopBackOff"


class TestJobs:
    def test_a_job_that_kubeflow_calls_complete_has_succeeded(self) -> None:
        over = condition("Complete", lastTransitionTime=AT.format(9))
        found = seen(job(over), [node(settled(0, 3))], 1, on_volume=False)
        assert found == Seen(
            state=KubeflowJobState.SUCCEEDED,
            exit_code=0,
            restarts=2,
            started_at=SECOND,
            ended_at=SECOND + 9,
        )

    def test_a_job_that_kubeflow_calls_failed_says_why(self) -> None:
        over = condition("Failed", reason="BackoffLimit", message="too often")
        killed = node(ended(137, "", "OOMKilled"))
        assert seen(job(over), [killed], 1, on_volume=False) == Seen(
            state=KubeflowJobState.FAILED,
            message="OOMKilled",
            exit_code=137,
            started_at=SECOND,
            ended_at=SECOND + 1,
        )
        plain = seen(job(over), [node(settled(2))], 1, on_volume=False)
        assert (plain.message, plain.exit_code) == ("BackoffLimit: too often", 2)

    def test_a_condition_that_does_not_hold_says_nothing(self) -> None:
        found = seen(job(condition("Failed", False)), [], 1, on_volume=False)
        assert (found.state, found.message) == (KubeflowJobState.CREATED, "")

    def test_a_job_has_failed_when_the_task_is_over_on_every_node(self) -> None:
        nodes = [node(settled(0, second=3)), node(settled(5, 2, second=2), index="1")]
        found = seen(job(active=1), nodes, 2, on_volume=True)
        assert found == Seen(
            state=KubeflowJobState.FAILED,
            exit_code=5,
            restarts=1,
            started_at=SECOND,
            ended_at=SECOND + 3,
        )
        waits = seen(job(active=1), nodes, 3, on_volume=True)
        assert waits.state is KubeflowJobState.RUNNING
        assert waits.message == "node 1 has failed with exit code 5"
        good = [node(settled(0)), node(settled(0), index="1")]
        assert seen(job(active=1), good, 2, on_volume=True).state is KubeflowJobState.RUNNING

    def test_the_last_pod_of_a_node_counts(self) -> None:
        pods = [node(ended(1)), node(RUNNING)]
        found = seen(job(active=1), pods, 1, on_volume=False)
        assert (found.state, found.message) == (KubeflowJobState.RUNNING, "")

    @pytest.mark.parametrize(
        ("state", "restarts", "begun"),
        [
            (None, 0, False),
            ({"waiting": {"reason": "ContainerCreating"}}, 0, False),
            ({"waiting": {"reason": "ContainerCreating"}}, 1, True),
            (RUNNING, 0, True),
            (ended(0), 0, True),
        ],
    )
    def test_a_job_runs_once_a_container_of_it_has_begun(
        self, state: dict[str, Any] | None, restarts: int, begun: bool
    ) -> None:
        found = seen(job(), [node(state, restarts=restarts)], 1, on_volume=False)
        assert (found.state is KubeflowJobState.RUNNING) is begun
        assert found.started_at == (SECOND if begun else None)
        assert (found.exit_code, found.ended_at, found.restarts) == (None, None, 0)

    def test_why_a_job_does_not_begin_is_said(self) -> None:
        held = condition("Suspended", reason="Queued", message="by Kueue")
        assert seen(job(held), [], 1, on_volume=False).message == "Queued: by Kueue"
        image = node({"waiting": {"reason": "ErrImagePull"}})
        assert seen(job(held), [image], 1, on_volume=False).message == "ErrImagePull"

    def test_a_job_that_is_being_deleted_says_so(self) -> None:
        gone = seen(job(deleting=True), [node(RUNNING)], 1, on_volume=False)
        assert gone.message == "it is being deleted"

    def test_the_code_of_a_job_is_of_the_node_that_failed_first(self) -> None:
        late, early = node(settled(3, second=5)), node(settled(4, second=2), index="1")
        never = node(RUNNING, index="2")
        assert failed_code([late, never, early]) == 4
        assert failed_code([never]) is None
        assert failed_code([node(settled(0)), node(ended(9))]) == 9
        # A message of another code than the container's is not one of the script's.
        told = node(ended(137, "nemo_run: exit_code=6 attempts=1 lines=0\n"))
        assert failed_code([told]) == 137
