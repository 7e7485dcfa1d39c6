"""Experiments in a line, or as data for programs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from nemo_run.run import _catalogue
from nemo_run.run._catalogue import Entry, JobSummary

if TYPE_CHECKING:
    from nemo_run.run._directory import JobState

_NAMES = {"local_persistent": "local", "docker_persistent": "docker", "slurm_tunnel": "slurm"}


def as_data(entry: Entry) -> dict[str, Any]:
    """Return what programs get of an experiment."""
    return {
        "id": entry.id,
        "title": entry.title,
        "state": entry.state,
        "jobs": len(entry.jobs),
        "states": entry.counts,
        "executors": [executor_name(name) for name in entry.executors],
        "created_at": iso(entry.created_at),
        "started_at": iso(entry.started_at),
        "ended_at": iso(entry.ended_at),
        "duration_s": duration_s(entry),
        "tags": list(entry.labels.tags),
        "note": entry.labels.note,
        "path": entry.path,
    }


def executor_name(scheduler: str) -> str:
    """Return what people call the executor of a scheduler."""
    return _NAMES.get(scheduler, scheduler)


def iso(moment: float | None) -> str | None:
    """Return a time with its zone, for programs."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="seconds")


def when(moment: float | None) -> str:
    """Return a time of this zone, for people."""
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def duration_s(entry: Entry) -> float | None:
    if entry.started_at is None or (entry.ended and entry.ended_at is None):
        return None
    return round(max(0.0, (entry.ended_at or time.time()) - entry.started_at), 3)


def refreshed(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries with the present states of jobs that were running when last heard of."""
    live = [
        index
        for index, entry in enumerate(entries)
        if any(job.handles and not job.ended for job in entry.jobs)
    ]
    result = list(entries)

    def ask(index: int) -> None:
        result[index] = _asked(entries[index])

    if live:
        from nemo_run._parallel import in_parallel

        in_parallel(ask, live, workers=8)
    return result


def _asked(entry: Entry) -> Entry:
    from nemo_run.cli._experiments._opening import open_experiment
    from nemo_run.exceptions import NemoRunError

    try:
        watch = open_experiment(entry.path)._watch
        now = watch.states()
    except NemoRunError:
        return entry  # as it was last written down
    with contextlib.suppress(NemoRunError, OSError):  # it may be somebody else's
        watch.write_down_the_end()
    if len(now) != len(entry.jobs):
        return entry
    jobs = [_of_state(job, state) for job, state in zip(entry.jobs, now, strict=True)]
    return _catalogue.with_jobs(entry, jobs)


def _of_state(job: JobSummary, state: JobState) -> JobSummary:
    """Return what is known of a job now."""
    starts = [member.started_at for member in state.members if member.started_at is not None]
    ends = [member.ended_at for member in state.members if member.ended_at is not None]
    return job._replace(
        state=state.state.name,
        exit_code=state.exit_code,
        message=state.message,
        started_at=min(starts, default=None),
        ended_at=max(ends, default=None) if state.ended else None,
        lost=any(member.lost for member in state.members) and state.ended,
    )
