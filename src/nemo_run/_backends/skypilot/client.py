"""The calls we make to SkyPilot about clusters, their jobs and managed jobs, by its public SDK."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_run._backends.skypilot.launches import (
    answer,
    insisting,
    live_launches,
    optimized,
    request,
)
from nemo_run._backends.skypilot.sdk import asking, muted, sdk, value_of
from nemo_run._backends.skypilot.streams import LogLine, in_time, lines, written
from nemo_run.exceptions import JobNotFoundError


@dataclass(frozen=True, kw_only=True)
class SkyJob:
    """A job in the queue of a cluster, or a managed one.

    ``status`` is a word of SkyPilot's ``JobStatus`` or ``ManagedJobStatus``.
    """

    id: int
    name: str
    status: str
    log_path: str = ""
    message: str = ""
    recoveries: int = 0
    started_at: float | None = None
    ended_at: float | None = None

    @classmethod
    def read(cls, record: Any) -> SkyJob:
        """Return a record of a queue, which is a model in new versions and a dict in old ones."""
        get = functools.partial(value_of, record)
        return cls(
            id=int(get("job_id")),
            name=get("job_name") or "",
            status=get("status").value,
            log_path=get("log_path") or "",
            message=get("failure_reason") or get("details") or "",
            recoveries=get("recovery_count") or 0,
            started_at=get("start_at"),
            ended_at=get("end_at"),
        )


def server() -> str:
    """Return which API server answers, without starting one.

    Raises:
        BackendUnavailableError: none does.
    """
    with asking("look at the API server"), muted():
        info = sdk().api_info()
        return f"{value_of(info, 'version')}, API version {value_of(info, 'api_version')}"


# Clusters and their jobs.


def forecast(task: Any, cluster: str | None = None) -> str:
    """Return what SkyPilot would do about a task now, with the price; nothing is created.

    An API server of this machine that is not running stays so.

    Raises:
        BackendError: it does not say.
    """
    server()
    status = cluster_status(cluster) if cluster else None
    return optimized(task) if status is None else f"Cluster {cluster} is there and {status}."


def cluster_status(cluster: str) -> str | None:
    """Return the word of ``ClusterStatus`` for a cluster, or None where there is no such."""

    def word(records: Any) -> str | None:
        return str(value_of(records[0], "status").value) if records else None

    asked = request("status", cluster_names=[cluster])
    return answer(asked, operation="ask for the cluster", read=word)


def jobs(cluster: str) -> list[SkyJob]:
    """Return the queue of a cluster.

    Raises:
        JobNotFoundError: there is no such cluster.
        BackendError: it is not up.
    """
    asked = request("queue", cluster_name=cluster, all_users=True)
    return answer(asked, operation="queue", read=_queue)


def _queue(answered: Any) -> list[SkyJob]:
    records = answered[0] if isinstance(answered, tuple) else answered
    if isinstance(records, (str, Mapping)):
        raise TypeError(f"a queue is a list of jobs, not {records!r}")
    return [SkyJob.read(record) for record in records]


def is_idle(cluster: str) -> bool:
    """Tell whether nothing runs on a cluster, nor is about to."""
    if live_launches(cluster):
        return False
    try:
        found = jobs(cluster)
    except JobNotFoundError:  # also where it did not come up
        return True
    return all(sdk().JobStatus(job.status).is_terminal() for job in found)


def cancel(cluster: str, job_id: int) -> None:
    """End a job of a cluster. Ending one that has ended is fine."""
    answer(request("cancel", cluster_name=cluster, job_ids=[job_id]), operation="cancel")


def down(cluster: str) -> None:
    """Take a cluster down. One that is gone is fine."""
    with contextlib.suppress(JobNotFoundError):
        asked = insisting(lambda: request("down", cluster_name=cluster))
        answer(asked, operation="take down the cluster")


def tail(cluster: str, job_id: int, *, follow: bool) -> Iterator[LogLine]:
    """Yield the log of a job as SkyPilot streams it.

    SkyPilot takes a carriage return for the end of a line; `download` gives what was written.
    """
    with asking("read logs"):
        stream = sdk().tail_logs(cluster, job_id, follow=follow, preload_content=False)
    yield from lines(stream if follow else in_time(stream))


# Managed jobs.


def managed_jobs(job_ids: list[int] | None = None) -> list[SkyJob]:
    """Return managed jobs, all or some."""
    managed = sdk().jobs
    ask = getattr(managed, "queue_v2", None) or managed.queue
    with asking("queue"):
        return _queue(sdk().get(ask(refresh=True, all_users=True, job_ids=job_ids)))


def managed_job_status() -> Any:
    """Return SkyPilot's enum of the states of managed jobs."""
    return sdk().jobs.ManagedJobStatus


def cancel_managed(job_id: int) -> None:
    """End a managed job. Ending one that has ended is fine."""
    with asking("cancel"):
        sdk().get(sdk().jobs.cancel(job_ids=[job_id]))


def tail_managed(job_id: int, *, follow: bool) -> Iterator[LogLine]:
    """Yield the log of a managed job; see `tail`."""
    call = functools.partial(sdk().jobs.tail_logs, job_id=job_id, follow=follow)
    with asking("read logs"):
        if "preload_content" in inspect.signature(sdk().jobs.tail_logs).parameters:
            stream = call(preload_content=False)
        else:
            stream = written(call)
    yield from lines(stream if follow else in_time(stream))
