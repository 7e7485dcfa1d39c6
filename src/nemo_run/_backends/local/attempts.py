"""What became of each attempt of a replica."""

from __future__ import annotations

import os
from pathlib import Path

from nemo_run._backends.local import supervisor as local_supervisor
from nemo_run._backends.local.status import ReplicaStatus
from nemo_run._jobs.records import JobAttempt
from nemo_run.exceptions import RecordError, RecordUnavailableError

_LOGS = {1: ("combined.log",), 2: ("stdout.log", "stderr.log")}


def attempts_of(directory: Path, status: ReplicaStatus) -> list[JobAttempt]:
    """Return the attempts of a replica that were started, the first one first.

    Raises:
        RecordError: its files cannot be read, or not now.
    """
    if not status.attempt:
        return []
    try:
        files = local_supervisor.Files(os.fspath(directory))
    except FileNotFoundError:
        return []
    try:
        return [_described(directory, attempt, status) for attempt in files.attempts()]
    except (OSError, *local_supervisor.NONSENSE) as error:
        path = directory / local_supervisor.STATE_DIR
        kind = RecordUnavailableError if isinstance(error, OSError) else RecordError
        raise kind(f"The attempts in {str(path)!r} cannot be read: {error}", path=path) from error
    finally:
        files.close()


def _described(
    directory: Path, attempt: local_supervisor.Attempt, status: ReplicaStatus
) -> JobAttempt:
    names = _LOGS.get(len(attempt.log_from), ())
    return JobAttempt(
        number=attempt.number,
        replica=f"{directory.parent.name}/{directory.name}",
        exit_code=attempt.exit_code,
        started_at=attempt.started_at,
        # One that left no exit code ended when that was found out.
        ended_at=status.ended_at if attempt.exit_code is None else attempt.ended_at,
        logs=tuple(
            (str(directory / name), begin)
            for name, begin in zip(names, attempt.log_from, strict=True)
        ),
    )
