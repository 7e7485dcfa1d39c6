"""How an experiment ended: the first failure, with the last lines of its log."""

from __future__ import annotations

from collections.abc import Sequence

from torchx.specs import AppState

from nemo_run.exceptions import JobFailedError, NemoRunError
from nemo_run.run._direct import is_direct
from nemo_run.run._directory import JobState
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import Runner
from nemo_run.run.torchx_backend.schedulers.api import LogQuery

TAIL_LINES = 20


def failure(
    jobs: Sequence[Job | JobGroup], states: Sequence[JobState], runner: Runner
) -> JobFailedError | None:
    """Return the error for jobs that ended without success; one that failed comes first."""
    bad = [
        (job, state)
        for job, state in zip(jobs, states, strict=True)
        if state.ended and state.state is not AppState.SUCCEEDED
    ]
    if not bad:
        return None
    job, state = min(bad, key=lambda pair: pair[1].state is AppState.CANCELLED)
    tail = last_lines(state, runner, TAIL_LINES)
    code = "" if state.exit_code is None else f" with exit code {state.exit_code}"
    why = f": {state.message}" if state.message else ""
    more = f" ({len(bad)} jobs did not succeed)" if len(bad) > 1 else ""
    shown = "".join(f"\n  | {line.rstrip()}" for line in tail)
    return JobFailedError(
        f"Job {job.id} {state.state.name}{code}{why}{more}{shown}",
        state=state.state,
        exit_code=state.exit_code,
        tail=tail,
    )


def last_lines(state: JobState, runner: Runner, lines: int) -> list[str]:
    """Return the last lines of the log of a job, of the task that failed if one did."""
    started = [m for m in state.members if m.handle and not is_direct(m.handle)]
    if not started:
        return []
    member = min(started, key=lambda member: member.state is not AppState.FAILED)
    try:
        scheduler, app_id = runner.scheduler_of(member.handle)
        described = scheduler.describe(app_id)
        if described is None or not described.roles:
            return []
        return list(scheduler.tail(app_id, LogQuery(role=described.roles[0].name), lines))
    except NemoRunError:
        return []
