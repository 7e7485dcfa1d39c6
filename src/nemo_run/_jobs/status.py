"""What is said about a job: by its backend now, or by its record."""

from __future__ import annotations

from dataclasses import dataclass

from torchx.specs import AppState, ReplicaStatus, RoleStatus

from nemo_run._jobs.records import JobAttempt, JobPart, JobRecord, JobUsage


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """What a backend says about a job.

    Attributes:
        exit_code: of the job's process, where the backend knows it.
        restarts: how often the job was started again.
        started_at, ended_at: seconds since the epoch, where the backend knows them.
        parts: of a job that the backend runs in several, such as the elements of an array.
        attempts: of a job that is tried again, where the backend keeps them apart.
        lost: nothing more will ever be known of it, so there is nothing to wait for.
    """

    state: AppState
    message: str = ""
    exit_code: int | None = None
    url: str = ""
    restarts: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    parts: tuple[JobPart, ...] = ()
    attempts: tuple[JobAttempt, ...] = ()
    lost: bool = False
    usage: JobUsage | None = None


def recorded(record: JobRecord) -> JobStatus:
    """Return what was last known of a job."""
    return JobStatus(
        state=AppState[record.state],
        message=record.message,
        exit_code=record.exit_code,
        url=record.ui_url,
        restarts=record.restarts,
        started_at=record.started_at,
        ended_at=record.ended_at,
        parts=record.parts,
        attempts=record.attempts,
        usage=record.usage,
    )


def role_statuses(record: JobRecord, status: JobStatus, host: str) -> list[RoleStatus]:
    """Return what torchx calls the replicas: the parts of a job, or else those asked for."""
    if status.parts and record.roles:
        name = record.roles[0].name
        parts = [
            ReplicaStatus(part.number, AppState[part.state], name, part.host or host)
            for part in status.parts
        ]
        return [RoleStatus(name, parts)]
    return [
        RoleStatus(
            role.name,
            [ReplicaStatus(k, status.state, role.name, host) for k in range(role.replicas)],
        )
        for role in record.roles
    ]
