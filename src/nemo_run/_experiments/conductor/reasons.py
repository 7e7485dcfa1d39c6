"""Why jobs ended without success: from their backend, their log, and who asked for their end."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence

from torchx.specs import AppState

from nemo_run._experiments.conductor.direct import is_direct
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.states import JobState, MemberState
from nemo_run._jobs.cause import Cause
from nemo_run._jobs.log_lines import LogQuery
from nemo_run.run.torchx_backend.runner import Runner

log = logging.getLogger(__name__)


def work_out(index: int, state: JobState, directory: ExperimentDirectory, runner: Runner) -> None:
    """Note why a job ended without success, unless that is known.

    The log is read once, by the process that sees the end: its backend may be away later.
    """
    if not state.ended:
        return
    for member in state.members:
        if member.cause is None and member.state is not AppState.SUCCEEDED:
            member.cause = _cause(member, directory.canceller(index), runner)


def last_lines(member: MemberState, runner: Runner, lines: int) -> Sequence[str]:
    """Return the last lines of the log of a task; of the replica that failed first, if one did.

    Raises:
        NemoRunError: they cannot be had now.
    """
    if not member.handle or is_direct(member.handle):
        return []
    scheduler, app_id = runner.scheduler_of(member.handle)
    described = scheduler.describe(app_id)
    if described is None or not described.roles:
        return []
    return list(scheduler.tail(app_id, LogQuery(role=described.roles[0].name), lines))


def this_user() -> str:
    """Return who runs this process, and where."""
    import getpass

    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        name = "a user without a name"
    return f"{name} on {socket.gethostname()}"


def _cause(member: MemberState, canceller: str | None, runner: Runner) -> Cause:
    # Loaded when a job has failed: most have not.
    from nemo_run._jobs.causes import READ_LINES, Evidence, explain

    lines: Sequence[str] = ()
    if member.state is AppState.FAILED:
        lines = _log_of(member, runner, READ_LINES)
    message = member.message
    if member.state is AppState.CANCELLED and canceller:
        by = "cancelled" if message in ("", "cancelled") else f"{message},"
        message = f"{by} by {canceller}"
    return explain(
        Evidence(state=member.state.name, exit_code=member.exit_code, message=message, lines=lines)
    )


def _log_of(member: MemberState, runner: Runner, count: int) -> Sequence[str]:
    if is_direct(member.handle):
        return ("Traceback (most recent call last):", member.message)
    try:
        return last_lines(member, runner, count)
    except Exception as err:  # noqa: BLE001 - without its log the job has ended all the same
        log.debug("%s: no log: %s", member.handle, err)
        return ()
