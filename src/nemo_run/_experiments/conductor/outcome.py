"""How an experiment ended: what failed and why, with the last lines of the log."""

from __future__ import annotations

from collections.abc import Sequence

from torchx.specs import AppState

from nemo_run._experiments.conductor import reasons
from nemo_run._experiments.store.states import JobState
from nemo_run._jobs.shown_text import for_terminal
from nemo_run._jobs.wording import exit_words
from nemo_run.exceptions import JobFailedError, NemoRunError
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import Runner

TAIL_LINES = 20


def failure(
    jobs: Sequence[Job | JobGroup], states: Sequence[JobState], runner: Runner
) -> JobFailedError | None:
    """Return the error for jobs that ended without success; one that failed comes first."""
    bad = without_success(jobs, states)
    if not bad:
        return None
    job, state = first_to_fail(bad)
    cause = state.cause
    tail = _tail(state, runner)
    more = f" ({len(bad)} jobs did not succeed)" if len(bad) > 1 else ""
    shown = "".join(f"\n  | {for_terminal(line.rstrip())}" for line in tail)
    return JobFailedError(
        f"{reason(job, state, shows_log=bool(tail))}{more}{shown}",
        state=state.state,
        exit_code=state.exit_code,
        tail=tail,
        job=job.id,
        cause=cause.kind if cause else "",
        rank=cause.rank if cause else None,
    )


def first_to_fail(
    bad: Sequence[tuple[Job | JobGroup, JobState]],
) -> tuple[Job | JobGroup, JobState]:
    """Return which of the jobs without success to tell about first: one that failed itself."""
    return min(bad, key=lambda pair: pair[1].state is AppState.CANCELLED)


def _tail(state: JobState, runner: Runner) -> Sequence[str]:
    """Return the lines that show why a job failed; else the last ones of its log."""
    failed = state.first_failed
    if failed is None or (failed.cause is not None and failed.cause.lines):
        return [f"{line}\n" for line in failed.cause.lines] if failed and failed.cause else ()
    try:
        return reasons.last_lines(failed, runner, TAIL_LINES)
    except NemoRunError:
        return ()


def without_success(
    jobs: Sequence[Job | JobGroup], states: Sequence[JobState]
) -> list[tuple[Job | JobGroup, JobState]]:
    """Return the jobs that ended without success.

    One that was to run after a failure only, and was not needed, is none of them.
    """
    known = {job.id: state.state for job, state in zip(jobs, states, strict=True)}

    def is_needless(job: Job | JobGroup) -> bool:
        after = {known.get(name) for name in job.dependencies}
        return job.run_if == "failed" and after == {AppState.SUCCEEDED}

    return [
        (job, state)
        for job, state in zip(jobs, states, strict=True)
        if state.ended and state.state is not AppState.SUCCEEDED and not is_needless(job)
    ]


def causes(
    jobs: Sequence[Job | JobGroup], states: Sequence[JobState]
) -> list[tuple[Job | JobGroup, JobState]]:
    """Return the jobs that ended without success, but not those that waited for one of them."""
    bad = without_success(jobs, states)
    names = {job.id for job, _ in bad}
    return [
        (job, state)
        for job, state in bad
        if state.state is not AppState.CANCELLED or names.isdisjoint(job.dependencies)
    ]


def reason(job: Job | JobGroup, state: JobState, *, shows_log: bool = False) -> str:
    """Return in a line which job ended how, and why.

    With ``shows_log`` the last lines of the log follow, and the line does not repeat the last.
    """
    ended = exit_words(state.exit_code)
    code = f" with {ended}" if ended else ""
    only_last_line = shows_log and state.cause is not None and state.cause.kind == "exit_code"
    said = state.message if only_last_line else state.reason
    why = f": {for_terminal(said)}" if said else ""
    rank = "" if state.cause is None or state.cause.rank is None else f" (rank {state.cause.rank})"
    return f"Job {job.id} {state.state.name}{code}{why}{rank if why else ''}"
