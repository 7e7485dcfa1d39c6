"""The table of an experiment's jobs: the same in Python and on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nemo_run._experiments.display.attempts import told_attempts
from nemo_run._experiments.display.counts import counted_parts, plural
from nemo_run._experiments.display.durations import elapsed, in_bytes
from nemo_run._experiments.display.tables import WORTH_CUTTING, display_width, one_line
from nemo_run._jobs.wording import signal_of

_HEADER = ("", "JOB", "STATE", "EXECUTOR", "ID", "EXIT", "TOOK", "CPU", "MEMORY", "MESSAGE")
_DISPENSABLE = ("CPU", "MEMORY", "EXECUTOR", "ID", "TOOK", "EXIT")
_ONLY_WHERE_KNOWN = ("ID", "CPU", "MEMORY")
_LONGEST_ID = 20


class Table(NamedTuple):
    """Cells under a header; a narrow terminal does without the ``dispensable`` columns first."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    dispensable: Sequence[str]


def table_of(jobs: Mapping[int, tuple[str, Mapping[str, Any]]]) -> Table:
    """Return the table of jobs, given by their positions; columns without a word are left out."""
    rows = [_row(index, *job) for index, job in jobs.items()]
    kept = [
        column
        for column, name in enumerate(_HEADER)
        if name not in _ONLY_WHERE_KNOWN or any(row[column] for row in rows)
    ]
    return Table(
        [_HEADER[column] for column in kept],
        [[row[column] for column in kept] for row in rows],
        [name for name in _DISPENSABLE if _HEADER.index(name) in kept],
    )


def _row(index: int, job: str, status: Mapping[str, Any]) -> tuple[str, ...]:
    id = status["job_id"]
    return (
        str(index),
        job,
        state_word(status["status"].name, status.get("waits_for", ())),
        executor_word(status["executor"]),
        # What a queue calls the job; an id of ours is long, and is nothing to type.
        id if len(id) <= _LONGEST_ID else "",
        exit_cell(status["exit_code"]),
        elapsed(status["duration_s"]),
        elapsed(status.get("cpu_s")),
        in_bytes(status.get("peak_memory_bytes")),
        status["message"],
    )


def executor_word(info: str) -> str:
    """Return what people call an executor: ``slurm on ada@host`` for a ``SlurmExecutor``."""
    name, blank, rest = info.partition(" ")
    return name.removesuffix("Executor").lower() + blank + rest


def state_word(state: str, waits_for: Sequence[str]) -> str:
    """Return what people see of a job's state: what it waits for, until it is submitted."""
    if state != "UNSUBMITTED":
        return state
    if not waits_for:
        return "waits"
    named = f"waits for {', '.join(waits_for)}"
    short = display_width(named) <= WORTH_CUTTING
    return named if short else f"waits for {plural(len(waits_for), 'job')}"


def exit_cell(exit_code: int | None) -> str:
    """Return an exit code, or the name of the signal, in few letters."""
    if exit_code is None:
        return ""
    return (signal_of(exit_code) or str(exit_code)) if exit_code < 0 else str(exit_code)


def details(
    statuses: Mapping[str, Mapping[str, Any]], table: Sequence[Sequence[str]]
) -> Iterator[str]:
    """Yield lines for what has no room in a table: parts, attempts, and reasons that were cut."""
    for job, status in statuses.items():
        if "parts" in status:
            yield f"{job}: {counted_parts(status['parts'])}"
        for line in told_attempts(status.get("attempts", ())):
            yield f"{job}: {line}"
    for (job, status), cells in zip(statuses.items(), table[1:], strict=True):
        message = one_line(status["message"])
        if status["status"].name == "FAILED" and message and cells[-1].rstrip() != message:
            yield f"{job}: {message}"
