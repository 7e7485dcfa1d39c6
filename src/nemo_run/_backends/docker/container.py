"""Containers as a Docker engine describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nemo_run._transport import timestamps as rfc3339
from nemo_run._transport.answers import Answer
from nemo_run.exceptions import BackendUnavailableError

BACKEND = "docker_persistent"

LABEL_EXPERIMENT_ID = "nemo-run/experiment-id"
LABEL_NAME = "nemo-run/name"
LABEL_ID = "nemo-run/id"

_NO_TIME = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Container:
    """How a container is.

    Attributes:
        member: what its label says it is within its job.
        status: Docker's word, such as ``running``.
        error: why it could not be started.
        out_of_memory: the kernel ended a process of it for want of memory.
    """

    id: str
    name: str
    job: str
    member: str
    status: str
    exit_code: int
    error: str = ""
    out_of_memory: bool = False
    restarts: int = 0
    started_at: float | None = None
    ended_at: float | None = None

    @classmethod
    def from_json(cls, data: Any) -> Container:
        """Return a container as an engine describes it.

        Raises:
            BackendUnavailableError: the answer is of another form.
        """
        try:
            answer = Answer(data)
            state = answer.inner("State")
            labels = answer.inner("Config").texts("Labels")
            return cls(
                id=answer.id("Id"),
                name=answer.text("Name").lstrip("/"),
                job=labels.get(LABEL_ID, ""),
                member=labels.get(LABEL_NAME, ""),
                status=state.text("Status"),
                exit_code=state.number("ExitCode"),
                error=state.text("Error", ""),
                out_of_memory=state.flag("OOMKilled"),
                restarts=answer.number("RestartCount", 0),
                started_at=_time(state.text("StartedAt", "")),
                ended_at=_time(state.text("FinishedAt", "")),
            )
        except ValueError as err:
            raise BackendUnavailableError(
                f"Docker answered what cannot be read: {err}", backend=BACKEND, operation="status"
            ) from err


def listed(rows: Any) -> list[dict[str, str]]:
    """Return a list of containers, if it is one.

    Raises:
        BackendUnavailableError: the answer is of another form.
    """
    whole = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    if not whole or not all(isinstance(row.get("Id"), str) for row in rows):
        raise BackendUnavailableError(
            "Docker answered what is no list of containers", backend=BACKEND, operation="list"
        )
    return list(rows)


def _time(text: str | None) -> float | None:
    if not text or text.startswith(_NO_TIME[:4]):
        return None
    return rfc3339.seconds(text)
