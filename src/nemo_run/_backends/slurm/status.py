"""What Slurm's words mean, and what is said of a job as a whole."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from torchx.specs import AppState, is_terminal

from nemo_run._backends.slurm.answers import Exit, Row, array_elements
from nemo_run._backends.slurm.reports import Report
from nemo_run._jobs.records import JobPart
from nemo_run._jobs.status import JobStatus
from nemo_run._order import combined

log = logging.getLogger(__name__)

SLURM_STATES: dict[str, AppState] = {
    # On the way.
    "PENDING": AppState.PENDING,
    "CONFIGURING": AppState.PENDING,  # nodes are being booted
    "POWER_UP_NODE": AppState.PENDING,
    "REQUEUED": AppState.PENDING,  # to be started again
    "REQUEUE_FED": AppState.PENDING,
    "REQUEUE_HOLD": AppState.PENDING,  # until a user releases it
    "SPECIAL_EXIT": AppState.PENDING,  # held after it ended in a way its owner named
    "RESV_DEL_HOLD": AppState.PENDING,  # its reservation was deleted
    "EXPEDITING": AppState.PENDING,
    # With nodes of its own.
    "RUNNING": AppState.RUNNING,
    "COMPLETING": AppState.RUNNING,  # processes are still being ended: not over yet
    "STAGE_OUT": AppState.RUNNING,
    "SIGNALING": AppState.RUNNING,
    "RESIZING": AppState.RUNNING,
    "UPDATE_DB": AppState.RUNNING,
    # It has its nodes, but does nothing on them; it goes on by itself.
    "SUSPENDED": AppState.PENDING,
    "STOPPED": AppState.PENDING,
    # Over.
    "COMPLETED": AppState.SUCCEEDED,
    "CANCELLED": AppState.CANCELLED,
    "FAILED": AppState.FAILED,
    "TIMEOUT": AppState.FAILED,
    "DEADLINE": AppState.FAILED,
    "OUT_OF_MEMORY": AppState.FAILED,
    "NODE_FAIL": AppState.FAILED,
    "BOOT_FAIL": AppState.FAILED,
    "LAUNCH_FAILED": AppState.FAILED,
    "RECONFIG_FAIL": AppState.FAILED,
    "PREEMPTED": AppState.FAILED,  # and not to be started again, or it would be pending
    "REVOKED": AppState.FAILED,  # another cluster of the federation has it
}

EXPLANATIONS = {
    "TIMEOUT": "reached its time limit",
    "DEADLINE": "could not end before its deadline",
    "OUT_OF_MEMORY": "used more memory than it asked for",
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "a node could not be started",
    "LAUNCH_FAILED": "could not be started on its node",
    "RECONFIG_FAIL": "a node could not be reconfigured",
    "PREEMPTED": "had to make room for a job of higher priority",
    "REVOKED": "was given to another cluster",
    "SUSPENDED": "suspended",
    "STOPPED": "stopped by a signal",
    "COMPLETING": "its processes are being ended",
    "CONFIGURING": "nodes are being started for it",
    "REQUEUE_HOLD": "held until it is released",
    "SPECIAL_EXIT": "held until it is released",
    "RESV_DEL_HOLD": "held: its reservation was deleted",
}

_strange: set[str] = set()


def app_state(word: str) -> AppState:
    """Return what Slurm's word means; one that we have never heard is logged once."""
    state = SLURM_STATES.get(word)
    if state is None:
        if word not in _strange:
            _strange.add(word)
            log.warning("Slurm reported the unknown state %r", word)
        return AppState.UNKNOWN
    return state


def job_status(report: Report, *, now: float | None = None) -> JobStatus:
    """Return the status of a job: of all its elements or components together."""
    # Accounting may have missed the end of a job; what its script wrote is proof.
    left = {item.element: item for item in report.exits}
    rows = [row for row in report.rows if row.has_ended or not left.keys() & {"", row.element}]
    told = {row.element for row in rows}
    if rows and len(rows) == len(report.rows):
        told.add("")
    more = [item for element, item in left.items() if element not in told]
    if not rows:
        return _from_exits(more, cancelled=report.cancelled)
    rows += [_as_row(item, rows[0].job_id, report.cancelled) for item in more]
    status = _from_rows(rows, time.time() if now is None else now)
    # Accounting does not count them.
    restarts = [status.restarts, *(item.restarts for item in report.exits)]
    return replace(status, restarts=max(restarts))


def _as_row(item: Exit, job_id: str, cancelled: bool) -> Row:
    words = {AppState.SUCCEEDED: "COMPLETED", AppState.CANCELLED: "CANCELLED"}
    return Row(
        id=f"{job_id}{item.element}",
        state=words.get(_exit_state(item, cancelled), "FAILED"),
        exit_code=item.code,
        restarts=item.restarts,
        started_at=item.started_at,
        ended_at=item.ended_at,
    )


def _from_rows(rows: Sequence[Row], now: float) -> JobStatus:
    state = combined([app_state(row.state) for row in rows])
    over = is_terminal(state)
    # The queue gives an expected start for a job that waits, and an expected end for one that runs.
    starts = [row.started_at for row in rows if row.started_at and row.started_at <= now]
    ends = [row.ended_at for row in rows if row.ended_at]
    return JobStatus(
        state=state,
        message=_message(rows, state, now),
        exit_code=_exit_code(rows) if over else None,
        restarts=max(row.restarts for row in rows),
        started_at=min(starts, default=None) if state is not AppState.PENDING else None,
        ended_at=max(ends, default=None) if over else None,
        parts=_parts(rows),
    )


def _parts(rows: Sequence[Row]) -> tuple[JobPart, ...]:
    """Return elements and components by their numbers.

    The queue names those that wait by one row for all, and may abbreviate that; of those which
    it does not name nothing can be said.
    """
    found = {}
    for row in rows:
        state = app_state(row.state)
        code = row.exit_code if is_terminal(state) else None
        for element in array_elements(row.element) if "[" in row.element else [row.element]:
            if element:
                number = int(element[1:])
                found[number] = JobPart(number, state.name, code, row.nodes)
    return tuple(found[number] for number in sorted(found))


def _exit_code(rows: Sequence[Row]) -> int | None:
    bad = [row for row in rows if app_state(row.state) is not AppState.SUCCEEDED]
    codes = [row.exit_code for row in bad or rows if row.exit_code is not None]
    # A job that Slurm ended has no code of its own, only the 0 of one that never gave one.
    if bad and not any(codes):
        return None
    return next((code for code in codes if code), 0 if codes else None)


def _message(rows: Sequence[Row], state: AppState, now: float) -> str:
    if len(rows) > 1:
        return _message_of_many(rows, state)
    (row,) = rows
    if state is AppState.PENDING and row.state == "PENDING":
        when = ""
        if row.started_at and row.started_at > now + 1:
            when = f", expected to start at {datetime.fromtimestamp(row.started_at):%Y-%m-%d %H:%M}"
        return f"waits: {row.reason}{when}" if row.reason else ""
    return _explained(row)


def _explained(row: Row) -> str:
    if row.state in EXPLANATIONS:
        where = f" on {row.nodes}" if row.state in ("NODE_FAIL", "BOOT_FAIL") and row.nodes else ""
        return f"{row.state}: {EXPLANATIONS[row.state]}{where}"
    if row.state == "CANCELLED" and row.reason == "DependencyNeverSatisfied":
        return "CANCELLED: a job it depends on did not succeed"
    return ""


def _message_of_many(rows: Sequence[Row], state: AppState) -> str:
    bad = [row for row in rows if app_state(row.state) in (AppState.FAILED, AppState.CANCELLED)]
    if not bad:
        done = sum(app_state(row.state) is AppState.SUCCEEDED for row in rows)
        return "" if state is AppState.SUCCEEDED else f"{done} of {len(rows)} have ended"
    shown = [
        f"{row.id} {row.state}" + (f" with exit code {row.exit_code}" if row.exit_code else "")
        for row in bad[:5]
    ]
    more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    return f"{len(bad)} of {len(rows)} did not succeed: {', '.join(shown)}{more}"


def _from_exits(exits: Sequence[Exit], *, cancelled: bool) -> JobStatus:
    states = [_exit_state(item, cancelled) for item in exits]
    state = combined(states)
    codes = [item.code for item in exits]
    asked = any(item.asked for item in exits)
    stopped = "Slurm ended it: cancelled, preempted or out of time"
    return JobStatus(
        state=state,
        message=stopped if state is AppState.FAILED and asked else "",
        exit_code=next((code for code in codes if code), 0),
        restarts=max(item.restarts for item in exits),
        started_at=min(item.started_at for item in exits),
        ended_at=max(item.ended_at for item in exits),
        parts=tuple(
            JobPart(int(item.element[1:]), part.name, item.code)
            for item, part in zip(exits, states, strict=True)
            if item.element
        ),
    )


def _exit_state(item: Exit, cancelled: bool) -> AppState:
    if item.asked:
        return AppState.CANCELLED if cancelled else AppState.FAILED
    return AppState.FAILED if item.code else AppState.SUCCEEDED
