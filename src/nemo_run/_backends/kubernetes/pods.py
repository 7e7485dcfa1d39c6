"""Pods as an API server describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nemo_run._transport.answers import Answer

PLAIN_REASONS = frozenset({"", "Error", "Completed", "ContainerCreating", "PodInitializing"})
"""What Kubernetes says where there is nothing to say."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """A word of Kubernetes' for why something is so, and perhaps a sentence about it."""

    reason: str = ""
    message: str = ""

    @classmethod
    def read(cls, answer: Answer) -> Said:
        return cls(reason=answer.text("reason", ""), message=answer.text("message", ""))

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.reason, self.message)))


@dataclass(frozen=True, kw_only=True)
class End(Said):
    """How a container ended."""

    exit_code: int
    at: float | None

    @classmethod
    def read(cls, answer: Answer) -> End:
        return cls(
            exit_code=answer.number("exitCode"),
            at=answer.moment("finishedAt"),
            reason=answer.text("reason", ""),
            message=answer.text("message", ""),
        )


@dataclass(frozen=True, kw_only=True)
class Condition(Said):
    """Something that holds of an object, or does not."""

    kind: str
    holds: bool
    since: float | None

    @classmethod
    def read(cls, answer: Answer) -> Condition:
        return cls(
            kind=answer.text("type", ""),
            holds=answer.text("status", "") == "True",
            since=answer.moment("lastTransitionTime"),
            reason=answer.text("reason", ""),
            message=answer.text("message", ""),
        )


def conditions_of(status: Answer) -> tuple[Condition, ...]:
    return tuple(map(Condition.read, status.items("conditions")))


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container of a pod.

    Attributes:
        restarts: how often Kubernetes has started it again.
        waiting: why it does not run yet; None where it does, or has ended.
        ended: how it ended; None where it runs or waits.
        before: how it ended the time before.
    """

    name: str
    restarts: int
    running: bool
    waiting: Said | None
    ended: End | None
    before: End | None

    @classmethod
    def read(cls, answer: Answer) -> Container:
        state, last = answer.inner("state"), answer.inner("lastState")
        return cls(
            name=answer.text("name", ""),
            restarts=answer.number("restartCount", 0),
            running=state.has("running"),
            waiting=Said.read(state.inner("waiting")) if state.has("waiting") else None,
            ended=_end(state),
            before=_end(last),
        )


def _end(state: Answer) -> End | None:
    return End.read(state.inner("terminated")) if state.has("terminated") else None


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod.

    Attributes:
        phase: Kubernetes' word: Pending, Running, Succeeded, Failed or Unknown.
        said: why the whole pod is as it is, say evicted.
        lasting: whether Kubernetes starts its containers again, instead of making another pod.
    """

    name: str
    labels: Mapping[str, str]
    phase: str
    said: Said
    lasting: bool
    created_at: float
    started_at: float | None
    containers: tuple[Container, ...]
    conditions: tuple[Condition, ...]

    @classmethod
    def read(cls, answer: Answer) -> Pod:
        metadata, status = answer.inner("metadata"), answer.inner("status")
        return cls(
            name=metadata.id("name"),
            labels=metadata.texts("labels"),
            phase=status.text("phase", "Unknown"),
            said=Said.read(status),
            lasting=answer.inner("spec").text("restartPolicy", "") != "Never",
            created_at=metadata.moment("creationTimestamp") or 0.0,
            started_at=status.moment("startTime"),
            containers=tuple(map(Container.read, status.items("containerStatuses"))),
            conditions=conditions_of(status),
        )

    def container(self, name: str) -> Container | None:
        return next((item for item in self.containers if item.name == name), None)

    @property
    def waits_for(self) -> str:
        """Why a container of it does not run yet, in a word; empty where all do."""
        waiting = (item.waiting for item in self.containers if item.waiting is not None)
        return next((said.reason for said in waiting if said.reason), "")


def failed_first(pods: Iterable[Pod]) -> End | None:
    """Return how the container ended that failed first; where none failed, how the first ended."""
    ends = [c.ended for pod in pods for c in pod.containers if c.ended is not None]
    return next((end for end in ends if end.exit_code), ends[0] if ends else None)
