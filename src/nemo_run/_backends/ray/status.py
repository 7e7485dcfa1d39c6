"""Ray's words for the state of a job become ours."""

from __future__ import annotations

import logging

from torchx.specs import AppState

from nemo_run._backends.ray.client import Job
from nemo_run._jobs.status import JobStatus
from nemo_run._transport.http import printable

log = logging.getLogger(__name__)

RAY_STATES: dict[str, AppState] = {
    "PENDING": AppState.PENDING,
    "RUNNING": AppState.RUNNING,
    # Only ever after it was asked to end, by us or by another user of the cluster.
    "STOPPED": AppState.CANCELLED,
    "SUCCEEDED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
}
"""By Ray's words for the states of a job."""

OF_THE_TASK = "JOB_ENTRYPOINT_COMMAND_ERROR"
"""Ray's word for a task that failed by itself; then the exit code and the log tell more."""

_unclear: set[str] = set()


def status_of(job: Job, *, url: str, restarts: int = 0) -> JobStatus:
    """Return how a job is."""
    state = RAY_STATES.get(job.status, AppState.UNKNOWN)
    if state is AppState.UNKNOWN and job.status not in _unclear:
        _unclear.add(job.status)
        log.warning("%s: Ray reported an unrecognised state, %r", job.id, printable(job.status))
    failed_otherwise = state is AppState.FAILED and job.error != OF_THE_TASK
    return JobStatus(
        state=state,
        message=printable(job.message) if failed_otherwise else "",
        exit_code=_exit_code(job, state),
        url=url,
        restarts=restarts,
        started_at=job.started_at,
        ended_at=job.ended_at if job.has_ended else None,
    )


def _exit_code(job: Job, state: AppState) -> int | None:
    if state is AppState.SUCCEEDED:
        return 0
    if state is not AppState.FAILED or job.exit_code is None:
        return None
    # Python's way to say which signal ended a process.
    return 128 - job.exit_code if job.exit_code < 0 else job.exit_code
