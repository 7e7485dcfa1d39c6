"""Experiments in a line, or as data for programs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from nemo_run._experiments.store import launcher, listing
from nemo_run._experiments.store.listing import Entry, JobSummary
from nemo_run._shell import as_word

if TYPE_CHECKING:
    from nemo_run._experiments.store.states import JobState

_NAMES = {"local_persistent": "local", "docker_persistent": "docker", "slurm_tunnel": "slurm"}


def as_data(entry: Entry) -> dict[str, Any]:
    """Return what programs get of an experiment."""
    return {
        "id": entry.id,
        "title": entry.title,
        "state": entry.state,
        **({"waits_for_resume": True} if entry.waits_for_resume else {}),
        "jobs": len(entry.jobs),
        "states": entry.counts,
        "executors": [executor_name(name) for name in entry.executors],
        "created_at": iso(entry.created_at),
        "started_at": iso(entry.started_at),
        "ended_at": iso(entry.ended_at),
        "duration_s": duration_s(entry),
        "message": entry.reason,
        "tags": list(entry.labels.tags),
        "note": entry.labels.note,
        "path": entry.path,
    }


def executor_name(scheduler: str) -> str:
    """Return what people call the executor of a scheduler."""
    return _NAMES.get(scheduler, scheduler)


def resume_hint(entry: Entry) -> str:
    """Return why nothing happens before a user resumes an experiment, and how; else nothing."""
    if not entry.waits_for_resume:
        return ""
    return f"{launcher.WAITS}. Go on with: nemorun experiment resume {as_word(entry.id)}"


def iso(moment: float | None) -> str | None:
    """Return a time with its zone, for programs."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="seconds")


def when(moment: float | None) -> str:
    """Return a time of this zone, for people."""
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def duration_s(entry: Entry) -> float | None:
    last = max((job.ended_at for job in entry.jobs if job.ended_at), default=None)
    is_over = entry.ended or entry.stands_still
    if entry.started_at is None or (is_over and last is None):
        return None
    until = last if is_over and last is not None else time.time()
    return round(max(0.0, until - entry.started_at), 3)


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
    from nemo_run.cli.experiments.finding import open_experiment
    from nemo_run.exceptions import NemoRunError

    try:
        watch = open_experiment(entry.path)._watch
        now = watch.states()
    except NemoRunError:
        return entry  # as it was last written down
    with contextlib.suppress(NemoRunError, OSError):  # another user's file
        watch.write_down_the_end()
    if len(now) != len(entry.jobs):
        return entry
    jobs = [_of_state(job, state) for job, state in zip(entry.jobs, now, strict=True)]
    return listing.with_jobs(entry, jobs)


def _of_state(job: JobSummary, state: JobState) -> JobSummary:
    """Return what is known of a job now."""
    starts = [member.started_at for member in state.members if member.started_at is not None]
    ends = [member.ended_at for member in state.members if member.ended_at is not None]
    return job._replace(
        state=state.state.name,
        exit_code=state.exit_code,
        message=state.reason,
        started_at=min(starts, default=None),
        ended_at=max(ends, default=None) if state.ended else None,
        lost=any(member.lost for member in state.members) and state.ended,
    )
