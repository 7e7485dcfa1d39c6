"""What the pods of a TrainJob, and the TrainJob itself, tell about how it goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_run._clients.k8s import Cluster
from nemo_run._clients.rfc3339 import seconds
from nemo_run.core.execution._kubeflow_manifests import (
    INDEX_LABEL,
    JOBSET_LABEL,
    NODE,
    REPLICATED_LABEL,
)
from nemo_run.core.execution._kubeflow_script import Outcome
from nemo_run.core.execution.kubeflow import KubeflowJobState

_PLAIN_REASONS = frozenset({"", "Error", "Completed", "ContainerCreating", "PodInitializing"})
"""What Kubernetes says where there is nothing to say."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod that trains.

    Attributes:
        index: the number of its node.
        restarts: how often Kubernetes has started its container again.
        lasting: whether Kubernetes starts its container again, instead of making another pod.
        running: whether its container runs, be it only to say that the task has ended.
        outcome: how the task ended here, for good; None while it has not.
        exit_code: of the container, if it has ended.
        reason: why it ended or does not start, where that is worth saying.
    """

    name: str
    index: int
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
    def from_json(cls, data: Mapping[str, Any]) -> Pod:
        status = data.get("status") or {}
        found = [item for item in status.get("containerStatuses") or () if item.get("name") == NODE]
        container = found[0] if found else {}
        state, last = container.get("state") or {}, container.get("lastState") or {}
        ended, before = state.get("terminated") or {}, last.get("terminated") or {}
        outcomes = [Outcome.from_message(str(end.get("message") or "")) for end in (ended, before)]
        latest = ended or before
        waiting = state.get("waiting") or {}
        return cls(
            name=str(data["metadata"]["name"]),
            index=int((data["metadata"].get("labels") or {}).get(INDEX_LABEL) or 0),
            restarts=int(container.get("restartCount") or 0),
            lasting=(data.get("spec") or {}).get("restartPolicy") != "Never",
            running=bool(state.get("running")),
            outcome=outcomes[0] or outcomes[1],
            settled_before=outcomes[1] is not None,
            exit_code=int(latest["exitCode"]) if latest else None,
            reason=_reason(latest, {} if any(outcomes) else waiting, status),
            started_at=_moment(status.get("startTime")),
            ended_at=_moment(latest.get("finishedAt")),
        )

    @property
    def log(self) -> tuple[int, bool]:
        """Which container's log to ask for: its number, and whether it is the previous one."""
        # One that is started after the end only repeats the log, and may not be done with that.
        if self.restarts and self.running and self.settled_before:
            return self.restarts - 1, True
        return self.restarts, False


def _reason(ended: Mapping[str, Any], waiting: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    for said in (ended, waiting, status):
        if (reason := str(said.get("reason") or "")) not in _PLAIN_REASONS:
            text = str(said.get("message") or "")
            return reason if not text or said is ended else f"{reason}: {text}"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason')}: {condition.get('message')}"
    return ""


def _moment(text: Any) -> float | None:
    return seconds(str(text)) if text else None


def pods_of(cluster: Cluster, name: str) -> list[Pod]:
    """Return the pods of a TrainJob that train, the oldest first."""
    found = cluster.pods(f"{JOBSET_LABEL}={name}")
    return [
        Pod.from_json(data)
        for data in found
        if (data["metadata"].get("labels") or {}).get(REPLICATED_LABEL, NODE) == NODE
    ]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How a TrainJob is."""

    state: KubeflowJobState
    message: str = ""
    exit_code: int | None = None
    restarts: int = 0
    started_at: float | None = None
    ended_at: float | None = None


def seen(job: Mapping[str, Any], pods: Sequence[Pod], nodes: int, *, on_volume: bool) -> Seen:
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


def _latest(pods: Iterable[Pod]) -> list[Pod]:
    """Return the last pod of each node."""
    return list({pod.index: pod for pod in pods}.values())


def _ended_at(pods: Iterable[Pod]) -> float | None:
    return max((pod.ended_at for pod in pods if pod.ended_at is not None), default=None)


def failed_code(pods: Sequence[Pod]) -> int | None:
    """Return the exit code of the pod that failed first: the others were ended for it."""
    order = sorted(pods, key=lambda pod: pod.ended_at or float("inf"))
    codes = [pod.outcome.exit_code if pod.outcome else pod.exit_code for pod in order]
    return next((code for code in codes if code), None)


def first_reason(pods: Sequence[Pod]) -> str:
    return next((pod.reason for pod in pods if pod.reason and pod.exit_code), "")


def _progress(job: Mapping[str, Any], pods: Sequence[Pod]) -> str:
    if job["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    failed = [pod for pod in pods if pod.outcome is not None and pod.outcome.exit_code]
    if failed and failed[0].outcome is not None:
        return f"node {failed[0].index} has failed with exit code {failed[0].outcome.exit_code}"
    if not pods:
        said, _ = _condition(job, ("Suspended",))
        return said
    return next((pod.reason for pod in pods if pod.reason), "")


def _condition(job: Mapping[str, Any], kinds: Sequence[str]) -> tuple[str, float | None]:
    """Return what is said with a condition that holds, and since when."""
    for item in (job.get("status") or {}).get("conditions") or ():
        if item.get("type") in kinds and item.get("status") == "True":
            words = filter(None, (item.get("reason"), item.get("message")))
            return ": ".join(map(str, words)), _moment(item.get("lastTransitionTime"))
    return "", None
