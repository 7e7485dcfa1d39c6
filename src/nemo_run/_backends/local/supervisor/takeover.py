"""Become the supervisor of a replica that is new, or was left alone."""

from __future__ import annotations

import errno
import os
import time

from .disk import patiently, read_all, say, trouble
from .files import LOCK, Files
from .logs import open_logs
from .processes import Process, birth_of, distance, here
from .records import FINAL, Spec, Status
from .slots import Slots
from .title import show

LOCK_PATIENCE_S = 30.0


def attend() -> None:
    """Take over the replica that standard input tells of, and stay with it until its end.

    First comes its directory and, after a NUL, what to run. The answer goes to standard output.
    """
    directory, _, payload = read_all(0).partition(b"\0")
    found = None
    slots = Slots()
    try:
        found, answer = take_over(directory, payload)
        if found is not None and payload:
            _queue_up(slots, Spec(payload))
    except OSError as error:
        answer = trouble(error)
    except ValueError as error:
        answer = f"error {error}"
    say(1, answer)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    if found is None:
        return
    files, status, lock_fd = found
    try:
        # Only now: the launcher has its answer and does not wait for this any more.
        from .supervisor import Supervisor

        show(directory)
        supervisor = Supervisor(files, status, lock_fd, slots)
        patiently(supervisor.own_this_process)
        supervisor.run()
    except BaseException:
        # The launcher listens no more; the interpreter's last words go to a file.
        log = os.open("supervisor.log", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=files.fd)
        os.dup2(log, 2)
        raise


def take_over(directory: bytes, payload: bytes) -> tuple[tuple[Files, Status, int] | None, str]:
    """Accept a new replica, or go on with one that is left alone.

    The first value is what a supervisor is made of, the second tells how it went: ``ok``, ``busy``
    (another supervisor has it), ``ended``, or ``nothing`` (there is nothing to go on with and no
    payload to start with).
    """
    files = Files(directory)
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while (lock_fd := files.try_lock(LOCK)) is None:
        status = files.status()
        if status is not None and (status.state in FINAL or is_attended(files, status)):
            return None, "busy"
        # Another process has just taken the lock, and may still fail: wait until it is known.
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock and does nothing")
        time.sleep(0.005)
    status = files.status()
    if status is None:
        if not payload:
            return None, "nothing"
        status = _accept(files, Spec(payload))
    elif status.state in FINAL:
        files.tidy()
        return None, "ended"
    elif distance(status.place) == "away":
        return None, "busy"
    else:
        status.place = here()
        status.supervisor = Process(os.getpid(), birth_of(os.getpid()))
        files.write_status(status)
    return (files, status, lock_fd), "ok"


def _queue_up(slots: Slots, spec: Spec) -> None:
    """Draw a ticket before the launcher has its answer: what it starts next comes after us."""
    try:
        if spec.slots:
            slots.queue_up(spec.slots_dir, spec.slots)
    except OSError:
        return  # asked again, and explained, when the slots are to be taken


def _accept(files: Files, spec: Spec) -> Status:
    umask = os.umask(0o022)
    os.umask(umask)
    status = Status(
        token=os.urandom(8).hex(),
        attempts=spec.retries + 1,
        limit_s=spec.time_limit_s,
        grace_s=spec.grace_s,
    )
    try:
        for fd in open_logs(files.directory, separate=spec.separate):
            os.close(fd)
        files.accept(spec.with_umask(umask), status)
    except OSError:
        files.tidy()
        raise
    return status


def is_attended(files: Files, status: Status) -> bool:
    """Whether the supervisor that wrote the status lives, or cannot be seen from here."""
    where = distance(status.place)
    if where == "here":
        return status.supervisor.is_alive()
    if where == "hidden":  # process ids tell nothing here, but locks do
        lock_fd = files.try_lock(LOCK, shared=True)
        if lock_fd is None:
            return True
        files.unlock(lock_fd)
    return where == "away"
