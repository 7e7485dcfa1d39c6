"""What the pods of a TrainJob, and the TrainJob itself, tell about how it goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nemo_run._backends.kubeflow.client import Cluster, TrainJob
from nemo_run._backends.kubeflow.manifests import (
    INDEX_LABEL,
    JOBSET_LABEL,
    NODE,
    REPLICATED_LABEL,
)
from nemo_run._backends.kubeflow.script import Outcome
from nemo_run._backends.kubernetes.pods import PLAIN_REASONS, End, Pod, Said
from nemo_run.core.execution.kubeflow import KubeflowJobState


@dataclass(frozen=True, kw_only=True)
class Node:
    """A pod that trains.

    Attributes:
        index: the number of its node.
        nonce: what is in all that the script of its job leaves.
        restarts: how often Kubernetes has started its container again.
        lasting: whether Kubernetes starts its container again, instead of making another pod.
        running: whether its container runs, be it only to say that the task has ended.
        outcome: how the task ended here, for good; None while it has not.
        exit_code: of the container, if it has ended.
        reason: why it ended or does not start, where that is worth saying.
    """

    name: str
    index: int
    nonce: str
    restarts: int
    lasting: bool
    running: bool
    outcome: Outcome | None
    settled_before: bool
    exit_code: int | None
    reason: str
    started_at: float | None
    ended_at: float | None

    @classmethod
    def of(cls, pod: Pod, nonce: str = "") -> Node:
        """Return a pod; ``nonce`` is in what the script of its job leaves."""
        container = pod.container(NODE)
        ended, before = (container.ended, container.before) if container else (None, None)
        outcomes = [_outcome(end, nonce) for end in (ended, before)]
        latest = ended or before
        waiting = container.waiting if container and not any(outcomes) else None
        return cls(
            name=pod.name,
            index=_index(pod),
            nonce=nonce,
            restarts=container.restarts if container else 0,
            lasting=pod.lasting,
            running=bool(container and container.running),
            outcome=outcomes[0] or outcomes[1],
            settled_before=outcomes[1] is not None,
            exit_code=latest.exit_code if latest else None,
            reason=_reason(latest, waiting, pod),
            started_at=pod.started_at,
            ended_at=latest.at if latest else None,
        )

    @property
    def log(self) -> tuple[int, bool]:
        """Which container's log to ask for: its number, and whether it is the previous one."""
        # One that is started after the end only repeats the log, and may not be done with that.
        if self.restarts and self.running and self.settled_before:
            return self.restarts - 1, True
        return self.restarts, False


def _outcome(end: End | None, nonce: str) -> Outcome | None:
    """Return what the script in a container left, unless Kubernetes saw another end."""
    outcome = Outcome.from_message(end.message, nonce) if end else None
    return outcome if outcome and end and outcome.exit_code == end.exit_code else None


def _index(pod: Pod) -> int:
    text = pod.labels.get(INDEX_LABEL, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _reason(ended: End | None, waiting: Said | None, pod: Pod) -> str:
    for said in (ended, waiting, pod.said):
        if said is not None and said.reason not in PLAIN_REASONS:
            # What a container leaves as its message is for us, not for people.
            return said.reason if isinstance(said, End) else str(said)
    unscheduled = (c for c in pod.conditions if c.kind == "PodScheduled" and not c.holds)
    return next(map(str, unscheduled), "")


def nodes_of(cluster: Cluster, name: str, nonce: str = "") -> list[Node]:
    """Return the pods of a TrainJob that train, the oldest first; see `Node.of`."""
    found = cluster.pods(f"{JOBSET_LABEL}={name}")
    return [Node.of(pod, nonce) for pod in found if pod.labels.get(REPLICATED_LABEL, NODE) == NODE]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How a TrainJob is."""

    state: KubeflowJobState
    message: str = ""
    exit_code: int | None = None
    restarts: int = 0
    started_at: float | None = None
    ended_at: float | None = None


def seen(job: TrainJob, pods: Sequence[Node], nodes: int, *, on_volume: bool) -> Seen:
    """Return how a job is, from what Kubeflow says and what its pods do.

    ``on_volume`` says that a new pod finds what the one before wrote down.
    """
    state, latest = KubeflowJobState.of(job), _latest(pods)
    outcomes = [pod.outcome for pod in latest if pod.outcome is not None]
    restarts = max((outcome.attempts - 1 for outcome in outcomes), default=0)
    started_at = min((p.started_at for p in pods if p.started_at is not None), default=None)
    if state in (KubeflowJobState.SUCCEEDED, KubeflowJobState.FAILED):
        said, moment = _condition(job, ("Complete", "Failed"))
        failed = state is KubeflowJobState.FAILED
        return Seen(
            state=state,
            message=(first_reason(latest) or said) if failed else "",
            exit_code=failed_code(latest) if failed else 0,
            restarts=restarts,
            started_at=started_at,
            ended_at=_ended_at(latest) if moment is None else moment,
        )
    for_good = on_volume or all(pod.lasting for pod in latest)
    if for_good and len(outcomes) == nodes and any(outcome.exit_code for outcome in outcomes):
        # All that Kubernetes can start again is the script, which knows that it is over.
        return Seen(
            state=KubeflowJobState.FAILED,
            message=first_reason(latest),
            exit_code=failed_code(latest),
            restarts=restarts,
            started_at=started_at,
            ended_at=_ended_at(latest),
        )
    begun = any(pod.running or pod.restarts or pod.exit_code is not None for pod in pods)
    return Seen(
        state=KubeflowJobState.RUNNING if begun else KubeflowJobState.CREATED,
        message=_progress(job, latest),
        restarts=restarts,
        started_at=started_at if begun else None,
    )


def _latest(pods: Iterable[Node]) -> list[Node]:
    """Return the last pod of each node."""
    return list({pod.index: pod for pod in pods}.values())


def _ended_at(pods: Iterable[Node]) -> float | None:
    return max((pod.ended_at for pod in pods if pod.ended_at is not None), default=None)


def failed_code(pods: Sequence[Node]) -> int | None:
    """Return the exit code of the pod that failed first: the others were ended for it."""
    order = sorted(pods, key=lambda pod: pod.ended_at or float("inf"))
    codes = [pod.outcome.exit_code if pod.outcome else pod.exit_code for pod in order]
    return next((code for code in codes if code), None)


def first_reason(pods: Sequence[Node]) -> str:
    return next((pod.reason for pod in pods if pod.reason and pod.exit_code), "")


def _progress(job: TrainJob, pods: Sequence[Node]) -> str:
    if job.deleting:
        return "it is being deleted"
    failed = [pod for pod in pods if pod.outcome is not None and pod.outcome.exit_code]
    if failed and failed[0].outcome is not None:
        return f"node {failed[0].index} has failed with exit code {failed[0].outcome.exit_code}"
    if not pods:
        said, _ = _condition(job, ("Suspended",))
        return said
    return next((pod.reason for pod in pods if pod.reason), "")


def _condition(job: TrainJob, kinds: Sequence[str]) -> tuple[str, float | None]:
    """Return what is said with a condition that holds, and since when."""
    for item in job.conditions:
        if item.kind in kinds and item.holds:
            return str(item), item.since
    return "", None
