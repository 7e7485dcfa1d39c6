"""How a replica is, as its files and processes tell: in any process, changing nothing.

Only the standard library is loaded.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from nemo_run._backends.local import supervisor as local_supervisor
from nemo_run.exceptions import RecordError, RecordUnavailableError

State = Literal["unsubmitted", "pending", "running", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """What is known about a replica.

    Attributes:
        state: ``unsubmitted`` (no supervisor ever took it over), ``pending`` (it waits for slots,
            or to be tried again), ``running``, or one of the three ends.
        attempt: the latest attempt that was started; 0 before the first.
        exit_code: of that attempt, negative for a signal; None if it is not known.
        pid: of the user's program while it runs.
        started_at, ended_at: of that attempt, in seconds since the epoch.
        cpu_s, peak_kib: processor time of all attempts, and the most memory that one process had;
            known when it has ended.
        unattended: its supervisor was killed with something left to do, if only to write down the
            end. Call ``adopt`` when you see it.
    """

    state: State
    attempt: int = 0
    exit_code: int | None = None
    message: str = ""
    pid: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    cpu_s: float | None = None
    peak_kib: int | None = None
    unattended: bool = False

    @property
    def is_final(self) -> bool:
        return self.state in local_supervisor.FINAL


def inspect(directory: Path | str) -> ReplicaStatus:
    """Tell how a replica is. Reads a few files, changes nothing, and may be called often.

    Raises:
        RecordError: its files cannot be read, or are not ours.
    """
    try:
        return _inspect(directory)
    except (OSError, *local_supervisor.NONSENSE) as error:
        path = Path(directory) / local_supervisor.STATE_DIR
        # A read that fails says nothing about the replica; one that finds nonsense does.
        kind = RecordUnavailableError if isinstance(error, OSError) else RecordError
        raise kind(f"The state in {str(path)!r} cannot be read: {error}", path=path) from error


def _inspect(directory: Path | str) -> ReplicaStatus:
    path = f"{os.fspath(directory)}/{local_supervisor.STATE_DIR}/"
    data = _read(path + local_supervisor.STATUS)
    while data is not None:
        status, report = _parse(data)
        if report.is_final:
            # Killed between writing down the end and removing the environment.
            untidy = os.path.exists(path + local_supervisor.SPEC)  # noqa: PTH110 - called very often
            return replace(report, unattended=True) if untidy else report
        if local_supervisor.distance(status.place) == "here" and status.supervisor.is_alive():
            return report
        data, seen = _read(path + local_supervisor.STATUS), data
        if data == seen:
            found = _inspect_without_supervisor(directory, status, report)
            if found is not None and _read(path + local_supervisor.STATUS) == data:
                return found
    return ReplicaStatus(state="unsubmitted")


def _read(path: str) -> bytes | None:
    try:
        fd = local_supervisor.open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return local_supervisor.has_contents(os.read(fd, local_supervisor.STATUS_SIZE))
    finally:
        os.close(fd)


# A replica is asked far more often than it changes.
@functools.lru_cache(maxsize=4096)
def _parse(data: bytes) -> tuple[local_supervisor.Status, ReplicaStatus]:
    status = local_supervisor.Status.parse(data)
    return status, ReplicaStatus(
        state=cast(State, status.state),
        attempt=status.attempt,
        exit_code=status.exit_code,
        message=status.message,
        pid=status.pid,
        started_at=status.started_at,
        ended_at=status.ended_at,
        cpu_s=status.cpu_s,
        peak_kib=status.peak_kib,
    )


def _inspect_without_supervisor(
    directory: Path | str, status: local_supervisor.Status, report: ReplicaStatus
) -> ReplicaStatus | None:
    """Tell what the files mean without a supervisor; None if they changed meanwhile."""
    try:
        files = local_supervisor.Files(os.fspath(directory))
    except FileNotFoundError:
        return None
    try:
        if local_supervisor.is_attended(files, status):
            host = status.place.split(" ")[-1]
            if local_supervisor.distance(status.place) == "away":
                report = replace(report, message=f"on {host}, which cannot be asked from here")
            return report
        last = files.last_attempt()
        alive = last is not None and _lives(files, last, status.token)
        again = files.last_attempt()
        if last is not None and again is not None and again.name != last.name:
            return None  # it ended while we looked: its keeper was gone, but not without a word
        step = local_supervisor.decide(status, last, files.cancelled_at(), alive=alive)
    finally:
        files.close()
    report = replace(report, unattended=True, pid=None)
    if last is not None:
        report = replace(
            report, attempt=last.number, started_at=last.started_at, ended_at=last.ended_at
        )
    if isinstance(step, local_supervisor.End):
        state = cast(State, step.state)
        return replace(report, state=state, exit_code=step.exit_code, message=step.message)
    if step is None and last is not None:
        return replace(report, state="running", pid=last.task.pid, message="")
    return replace(report, state="pending")


def _lives(files: local_supervisor.Files, last: local_supervisor.Attempt, token: str) -> bool:
    """Whether anything of an attempt is left: keeper, task, or others in the task's group."""
    if last.is_running():
        return True
    where = local_supervisor.distance(last.place)
    if where == "hidden":  # process ids tell nothing here, but locks do
        lock_fd = files.try_lock(local_supervisor.KEEPER_LOCK, shared=True)
        if lock_fd is not None:
            files.unlock(lock_fd)
        return lock_fd is None
    if last.exit_code is not None or where == "gone":
        return False
    try:
        os.killpg(last.task.pid, 0)  # far cheaper than looking at all processes
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number is another program's by now
    return local_supervisor.processes_of(last.task, token)[1]


def has_supervisor(directory: Path) -> bool:
    """Whether the supervisor lives that last wrote something, and can be seen from here."""
    data = _read(f"{directory}/{local_supervisor.STATE_DIR}/{local_supervisor.STATUS}")
    if data is None:
        return False
    status, _ = _parse(data)
    return local_supervisor.distance(status.place) == "here" and status.supervisor.is_alive()
