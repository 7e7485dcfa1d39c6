"""Start, stop and adopt replicas: the processes a local job consists of.

A replica owns a directory. Its output is in ``combined.log`` there, with ``stdout.log`` and
``stderr.log`` as links to it (or real files, with ``separate``), and its state in ``.replica``. A
supervisor of its own looks after it; ``supervisor`` tells how, and why any process may be killed.

Everything here works from any process on the machine, and none of it needs the process that started
the replica. Only the standard library is loaded.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nemo_run._backends.local import supervisor as local_supervisor
from nemo_run._backends.local.fork_server import supervise
from nemo_run._backends.local.spec import ReplicaSpec
from nemo_run._backends.local.status import has_supervisor, inspect
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    RecordError,
    SubmitError,
)

BACKEND = "local_persistent"


# How long past the grace a supervisor may take to end a replica before we end it too, and give up.
_PATIENCE_S = 5.0
_GIVE_UP_S = 30.0
# How long a supervisor may take to remove a file or two.
_TIDY_S = 5.0


def start(directory: Path, spec: ReplicaSpec) -> None:
    """Hand a replica to a supervisor; return when that has taken it over.

    Starting a replica again, at the same time or later, changes nothing: the first start counts,
    and an attempt that ran is not run again. After an interrupted start ``inspect`` tells whether
    it took place; if in doubt start again.

    Raises:
        SubmitError: it cannot be run, and nothing was started.
    """
    _check_program(spec)
    if spec.slots and spec.slots_dir is None:
        spec = replace(spec, slots_dir=_machine_slots())
    try:
        (directory / local_supervisor.STATE_DIR).mkdir(parents=True, exist_ok=True)
        answer = supervise(directory, spec.pack())
    except OSError as error:
        raise _submit_error(directory, local_supervisor.explain(error)) from error
    if answer not in {"ok", "busy", "ended"}:
        raise _submit_error(directory, answer.removeprefix("error "))


def stop(directory: Path, *, grace_s: float | None = None) -> None:
    """Cancel a replica; return when nothing of it runs any more.

    TERM goes to the task's process group, and KILL after ``grace_s`` (by default as in the spec) to
    all that is left and descends from the task, whatever session or environment it has. What has
    ended keeps its outcome. A replica that waits never starts. Calling again with a shorter grace
    is heeded.

    Raises:
        BackendUnavailableError: the replica is on another machine.
        BackendError: something could not be ended.
    """
    try:
        files = local_supervisor.Files(os.fspath(directory))
    except FileNotFoundError:
        return
    try:
        _stop(directory, files, grace_s)
    except (OSError, *local_supervisor.NONSENSE) as error:
        raise _cancel_error(directory, local_supervisor.explain(error)) from error
    finally:
        files.close()


def announce_stop(directory: Path) -> None:
    """Ask a replica not to start any more, without ending what runs; `stop` does that.

    Said to all that are to be stopped before the first is, or those that wait for slots would take
    the ones that get free.
    """
    with suppress(OSError, RecordError):  # `stop` asks again, and says what is wrong
        files = local_supervisor.Files(os.fspath(directory))
        try:
            if not inspect(directory).is_final:
                files.request_cancel(None)
        finally:
            files.close()


def adopt(directory: Path) -> bool:
    """Give a replica whose supervisor was killed a new one, which goes on exactly there.

    True if a new supervisor took over; False if there is one, or nothing is left to do.

    Raises:
        SubmitError: no supervisor could be started.
    """
    soon = time.monotonic() + _TIDY_S
    while (report := inspect(directory)).unattended and time.monotonic() < soon:
        if not report.is_final or not has_supervisor(directory):
            break
        time.sleep(0.001)  # its supervisor has only just written down the end, and tidies up
    if not report.unattended:
        return False
    try:
        answer = supervise(directory, b"")
    except OSError as error:
        raise _submit_error(directory, local_supervisor.explain(error), verb="continued") from error
    if answer not in {"ok", "busy", "ended", "nothing"}:
        raise _submit_error(directory, answer.removeprefix("error "), verb="continued")
    return answer == "ok"


def _check_program(spec: ReplicaSpec) -> None:
    cwd = Path(spec.cwd)
    if not cwd.is_dir():
        raise SubmitError(
            f"{spec.argv[0]!r} cannot be run: its working directory {spec.cwd!r} does not exist.",
            backend=BACKEND,
            operation="submit",
        )
    env = {b"PATH": os.fsencode(spec.env["PATH"])} if "PATH" in spec.env else {}
    try:
        local_supervisor.find_program(os.fsencode(spec.argv[0]), env, os.fsencode(cwd))
    except FileNotFoundError as error:
        where = f"in {spec.cwd!r}" if "/" in spec.argv[0] else f"on PATH {spec.env.get('PATH')!r}"
        raise SubmitError(
            f"{spec.argv[0]!r} cannot be run: there is no such executable file {where}. "
            "PATH is taken from the environment of the task, not from that of the launcher.",
            backend=BACKEND,
            operation="submit",
        ) from error


def _machine_slots() -> str:
    try:
        root = local_supervisor.machine_directory()
        return os.fsdecode(local_supervisor.make_private_directory(root + b"/slots"))
    except OSError as error:
        raise SubmitError(
            f"Slots cannot be used: {error.filename!r}: {error.strerror}.",
            backend=BACKEND,
            operation="submit",
        ) from error


def _submit_error(directory: Path, reason: str, *, verb: str = "started") -> SubmitError:
    return SubmitError(
        f"The replica in {str(directory)!r} could not be {verb}: {reason}.",
        backend=BACKEND,
        operation="submit",
        detail=reason,
    )


def _stop(directory: Path, files: local_supervisor.Files, grace_s: float | None) -> None:
    report = inspect(directory)
    if report.is_final and not report.unattended:
        return
    status = files.status()
    if status is not None and local_supervisor.distance(status.place) == "away":
        host = status.place.split(" ")[-1]
        raise BackendUnavailableError(
            f"The replica in {str(directory)!r} is on {host!r} and can only be stopped there.",
            backend=BACKEND,
            operation="cancel",
        )
    if not report.is_final:
        files.request_cancel(grace_s)
    if grace_s is None:
        grace_s = 10.0 if status is None else status.grace_s
    deadline = time.monotonic() + grace_s
    told: dict[str, float] = {}
    waiting = Waiting(0.002, 0.05)
    while True:
        report = inspect(directory)
        overdue_s = time.monotonic() - deadline
        if report.unattended:
            try:
                adopt(directory)  # a new supervisor finds the request and heeds it
            except SubmitError as error:
                if overdue_s > _PATIENCE_S:
                    raise _cancel_error(directory, error.detail) from error
        elif report.is_final:
            return
        elif report.state == "unsubmitted":
            lock_fd = files.try_lock(local_supervisor.LOCK)
            if lock_fd is not None:
                files.unlock(lock_fd)
                return  # a later start finds the request
        _press(files, told, overdue_s)
        if overdue_s > _GIVE_UP_S:
            raise _cancel_error(
                directory,
                "its processes did not end after KILL; "
                "they may wait for a device or a network file system",
            )
        waiting.pause()


def _press(files: local_supervisor.Files, told: dict[str, float], overdue_s: float) -> None:
    """Tell the supervisor once, and help the more the longer it takes.

    ``told`` has when each supervisor was told. One that does nothing is killed, but not before it
    had time: the next one is started after the time for all of it is over.
    """
    status = files.status()
    if status is None or status.state in local_supervisor.FINAL:
        return
    who = f"{status.supervisor.pid} {status.supervisor.birth}"
    if who not in told:
        told[who] = time.monotonic()
        status.supervisor.send(signal.SIGTERM)
        status.supervisor.send(signal.SIGCONT)  # a stopped one would not hear it
    if overdue_s > 0:
        last = files.last_attempt()
        if last is not None:
            above = (status.supervisor, last.keeper)
            rows, _ = local_supervisor.processes_of(last.task, status.token, above=above)
            for row in rows:
                local_supervisor.Process(row.pid, row.birth).send(signal.SIGKILL)
    if overdue_s > _PATIENCE_S and time.monotonic() - told[who] > _PATIENCE_S:
        status.supervisor.send(signal.SIGKILL)


def _cancel_error(directory: Path, reason: str) -> BackendError:
    return BackendError(
        f"The replica in {str(directory)!r} could not be stopped: {reason}.",
        backend=BACKEND,
        operation="cancel",
        detail=reason,
    )
