"""Which job may start when: dependencies, and what becomes of dependents. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Literal, Protocol

from torchx.specs import AppState, is_terminal

from nemo_run.exceptions import ConfigError

RunIf = Literal["succeeded", "ended", "failed"]
"""When a job with dependencies runs: all of them succeeded, all ended, or at least one failed."""

RUN_IF: tuple[RunIf, ...] = ("succeeded", "ended", "failed")

Verdict = Literal["wait", "start", "skip"]


def waves(dependencies: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the jobs in the order they may start, those that may start together sorted by id.

    Raises:
        ConfigError: a dependency is unknown, or jobs wait for each other.
    """
    for job, needed in dependencies.items():
        unknown = sorted(set(needed) - dependencies.keys())
        if unknown:
            raise ConfigError(
                f"Job {job!r} depends on {', '.join(map(repr, unknown))}, which is not in the "
                f"experiment. It has: {', '.join(map(repr, dependencies))}."
            )
    sorter = TopologicalSorter(dependencies)
    try:
        sorter.prepare()
    except CycleError as err:
        cycle = " -> ".join(err.args[1])
        raise ConfigError(f"These jobs wait for each other: {cycle}. Take one out.") from None
    found = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found.append(ready)
        sorter.done(*ready)
    return found


class Dependent(Protocol):
    """What is looked at here of a job."""

    id: str
    dependencies: list[str]


def put_in_a_row(jobs: Sequence[Dependent], *, as_before: bool) -> None:
    """Make each job depend on the one before; with ``as_before`` they may be in a row already.

    Raises:
        ConfigError: jobs have other dependencies.
    """
    row = [[], *([job.id] for job in jobs[:-1])]
    if as_before and [job.dependencies for job in jobs] == row:
        return
    if any(job.dependencies for job in jobs):
        raise ConfigError(
            "sequential=True puts the jobs in a row, but some have dependencies of their own. "
            "Use one or the other."
        )
    for job, needed in zip(jobs, row, strict=True):
        job.dependencies = needed


def verdict(needed: Mapping[str, AppState], run_if: RunIf = "succeeded") -> Verdict:
    """Return what to do with a job, given the states of the jobs it depends on."""
    ended = [state for state in needed.values() if is_terminal(state)]
    failed = [state for state in ended if state is not AppState.SUCCEEDED]
    if run_if == "succeeded" and failed:
        return "skip"
    if len(ended) < len(needed):
        return "wait"
    if run_if == "failed" and not failed:
        return "skip"
    return "start"


def reason(needed: Mapping[str, AppState], run_if: RunIf = "succeeded") -> str:
    """Return why a job that `verdict` skips is not started."""
    if run_if == "failed":
        return "not started: no job it depends on failed"
    bad = [
        f"{job} {state.name}"
        for job, state in needed.items()
        if is_terminal(state) and state is not AppState.SUCCEEDED
    ]
    return f"not started: {', '.join(bad)}"


def combined(states: Sequence[AppState]) -> AppState:
    """Return the state of a group: it runs while a member does, and one bad end spoils it."""
    if not states:
        return AppState.UNSUBMITTED
    if all(is_terminal(state) for state in states):
        for bad in (AppState.FAILED, AppState.CANCELLED):
            if bad in states:
                return bad
        return AppState.SUCCEEDED
    for live in (AppState.RUNNING, AppState.PENDING, AppState.SUBMITTED, AppState.UNKNOWN):
        if live in states:
            return live
    return AppState.RUNNING if any(map(is_terminal, states)) else AppState.UNSUBMITTED
