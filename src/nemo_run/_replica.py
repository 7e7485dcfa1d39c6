"""Start, inspect, stop and adopt replicas: the processes a local job consists of.

A replica owns a directory. Its output is in ``combined.log`` there, with ``stdout.log`` and
``stderr.log`` as links to it (or real files, with ``separate``), and its state in ``.replica``. A
supervisor of its own looks after it; ``_supervisor`` tells how, and why anybody may be killed.

Everything here works from any process on the machine, and none of it needs the process that started
the replica. Only the standard library is loaded.
"""

from __future__ import annotations

import functools
import numbers
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from nemo_run import _supervisor
from nemo_run._nursery import supervise
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    RecordError,
    SubmitError,
)

BACKEND = "local_persistent"

State = Literal["unsubmitted", "pending", "running", "succeeded", "failed", "cancelled"]

# How long past the grace a supervisor may take to end a replica before we end it too, and give up.
_PATIENCE_S = 5.0
_GIVE_UP_S = 30.0
# How long a supervisor may take to remove a file or two.
_TIDY_S = 5.0


@dataclass(frozen=True, kw_only=True)
class SlotRequest:
    """``count`` out of the named slots of a pool, such as GPUs or a number of jobs at a time.

    Whoever asked first is served first. Slots are per user and machine, and belong to one attempt:
    they are given back between attempts, and by the kernel if everybody who held them is killed.

    Attributes:
        env: a variable that gets the names of the slots taken, separated by commas.
    """

    pool: str
    count: int
    names: tuple[str, ...]
    env: str = ""

    def __post_init__(self) -> None:
        words = (self.pool, self.env, *self.names)
        if not self.pool or any(set(word) & set("/\t\0 \n") or word[:1] == "." for word in words):
            raise ConfigError(f"Slot pool {self.pool!r}: names may hold no slash and no blank.")
        if self.pool and {"mutex", "queue"} & set(self.names):
            raise ConfigError(f"Slot pool {self.pool!r}: 'mutex' and 'queue' cannot be slots.")
        if len(set(self.names)) != len(self.names):
            raise ConfigError(f"Slot pool {self.pool!r}: the names of slots must differ.")
        if not 1 <= self.count <= len(self.names):
            raise ConfigError(
                f"Slot pool {self.pool!r} has {len(self.names)} slots; "
                f"{self.count} were asked for, which would never be given."
            )

    @classmethod
    def jobs(cls, at_a_time: int, *, pool: str = "jobs") -> SlotRequest:
        """One of ``at_a_time`` places."""
        return cls(pool=pool, count=1, names=tuple(map(str, range(at_a_time))))

    @classmethod
    def gpus(cls, count: int, names: tuple[str, ...]) -> SlotRequest:
        """``count`` of the GPUs ``names``, seen by the task through ``CUDA_VISIBLE_DEVICES``."""
        return cls(pool="gpu", count=count, names=names, env="CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True, kw_only=True)
class ReplicaSpec:
    """What to run and how often.

    Attributes:
        env: the whole environment; ``NEMO_RUN_ATTEMPT`` (from 1) and a mark of ours are added.
        retries: how many more attempts follow a non-zero exit code.
        backoff_s: the pause before the first retry, doubled before each further one.
        backoff_cap_s: the longest pause.
        time_limit_s: for each attempt; reaching it is a failure that is not retried.
        grace_s: between TERM and KILL.
        separate: standard output and standard error in files of their own, and no ``combined.log``.
        slots: what to wait for before each attempt.
        slots_dir: where the slots are; by default a directory of this user on this machine.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    retries: int = 0
    backoff_s: float = 1.0
    backoff_cap_s: float = 60.0
    time_limit_s: float | None = None
    grace_s: float = 10.0
    separate: bool = False
    slots: tuple[SlotRequest, ...] | None = None
    slots_dir: str | None = None

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ConfigError("A replica needs a program to run; argv is empty.")
        if any("\0" in text for text in (*self.argv, *self.env, *self.env.values(), self.cwd)):
            raise ConfigError(f"A NUL character cannot be passed to {self.argv[0]!r}.")
        if any(not name or "=" in name for name in self.env):
            raise ConfigError("The name of an environment variable is empty or holds '='.")
        if not Path(self.cwd).is_absolute():
            raise ConfigError(f"cwd must be an absolute path, not {self.cwd!r}.")
        if not isinstance(self.retries, numbers.Integral):
            raise ConfigError(f"retries is a whole number, not {self.retries!r}.")
        if not isinstance(self.time_limit_s, (numbers.Real, type(None))):
            raise ConfigError(f"time_limit_s is a number of seconds, not {self.time_limit_s!r}.")
        for name in ("retries", "backoff_s", "backoff_cap_s", "grace_s"):
            value = getattr(self, name)
            if not value >= 0:
                raise ConfigError(f"{name} must not be negative, not {value!r}.")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise ConfigError(
                f"time_limit_s={self.time_limit_s!r} leaves no time to run. "
                "Give seconds, or None for no limit."
            )

    def pack(self) -> bytes:
        """Encode for the supervisor, as bytes the kernel will see."""
        number = {
            b"retries": self.retries,
            b"backoff_s": self.backoff_s,
            b"backoff_cap_s": self.backoff_cap_s,
            b"grace_s": self.grace_s,
            b"time_limit_s": "" if self.time_limit_s is None else self.time_limit_s,
            b"separate": int(self.separate),
        }
        slots = [
            "\t".join([slot.pool, str(slot.count), slot.env, *slot.names])
            for slot in self.slots or ()
        ]
        return _supervisor.pack(
            [
                *((b"argv", os.fsencode(arg)) for arg in self.argv),
                *((b"env", os.fsencode(f"{key}={value}")) for key, value in self.env.items()),
                *((key, str(value).encode()) for key, value in number.items()),
                *((b"slot", os.fsencode(slot)) for slot in slots),
                (b"cwd", os.fsencode(self.cwd)),
                (b"slots_dir", os.fsencode(self.slots_dir or "")),
            ]
        )


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
    unattended: bool = False

    @property
    def is_final(self) -> bool:
        return self.state in _supervisor.FINAL


def start(directory: Path, spec: ReplicaSpec) -> None:
    """Hand a replica to a supervisor; return when that has taken it over.

    Starting a replica again, at the same time or later, changes nothing: whoever was first counts,
    and an attempt that ran is not run again. After an interrupted start ``inspect`` tells whether
    it took place; if in doubt start again.

    Raises:
        SubmitError: it cannot be run, and nothing was started.
    """
    _check_program(spec)
    if spec.slots and spec.slots_dir is None:
        spec = replace(spec, slots_dir=_machine_slots())
    try:
        (directory / _supervisor.STATE_DIR).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _submit_error(directory, _supervisor.explain(error)) from error
    answer = supervise(directory, spec.pack())
    if answer not in {"ok", "busy", "ended"}:
        raise _submit_error(directory, answer.removeprefix("error "))


def inspect(directory: Path | str) -> ReplicaStatus:
    """Tell how a replica is. Reads a few files, changes nothing, and may be called often.

    Raises:
        RecordError: its files cannot be read, or are not ours.
    """
    try:
        return _inspect(directory)
    except (OSError, KeyError, ValueError) as error:
        path = Path(directory) / _supervisor.STATE_DIR
        raise RecordError(
            f"The state in {str(path)!r} cannot be read: {error}", path=path
        ) from error


def _inspect(directory: Path | str) -> ReplicaStatus:
    path = f"{os.fspath(directory)}/{_supervisor.STATE_DIR}/"
    data = _read(path + _supervisor.STATUS)
    while data is not None:
        status, report = _parse(data)
        if report.is_final:
            # Killed between writing down the end and removing the environment.
            untidy = os.path.exists(path + _supervisor.SPEC)  # noqa: PTH110 - called very often
            return replace(report, unattended=True) if untidy else report
        if _supervisor.distance(status.place) == "here" and status.supervisor.is_alive():
            return report
        data, seen = _read(path + _supervisor.STATUS), data
        if data == seen:
            found = _inspect_without_supervisor(directory, status, report)
            if found is not None and _read(path + _supervisor.STATUS) == data:
                return found
    return ReplicaStatus(state="unsubmitted")


def stop(directory: Path, *, grace_s: float | None = None) -> None:
    """Cancel a replica; return when nothing of it runs any more.

    TERM goes to the task's process group, and KILL after ``grace_s`` (by default as in the spec) to
    all that is left, workers that made groups of their own included. What has ended keeps its
    outcome. A replica that waits never starts. Calling again with a shorter grace is heeded.

    Raises:
        BackendUnavailableError: the replica is on another machine.
        BackendError: something could not be ended.
    """
    try:
        files = _supervisor.Files(os.fspath(directory))
    except FileNotFoundError:
        return
    try:
        _stop(directory, files, grace_s)
    except OSError as error:
        raise _cancel_error(directory, _supervisor.explain(error)) from error
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
        if not report.is_final or not _has_supervisor(directory):
            break
        time.sleep(0.001)  # its supervisor has only just written down the end, and tidies up
    if not report.unattended:
        return False
    answer = supervise(directory, b"")
    if answer not in {"ok", "busy", "ended", "nothing"}:
        raise _submit_error(directory, answer.removeprefix("error "), verb="continued")
    return answer == "ok"


def _has_supervisor(directory: Path) -> bool:
    """Whether the supervisor lives that last wrote something, and can be seen from here."""
    data = _read(f"{directory}/{_supervisor.STATE_DIR}/{_supervisor.STATUS}")
    if data is None:
        return False
    status, _ = _parse(data)
    return _supervisor.distance(status.place) == "here" and status.supervisor.is_alive()


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
        _supervisor.find_program(os.fsencode(spec.argv[0]), env, os.fsencode(cwd))
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
        root = _supervisor.machine_directory()
        return os.fsdecode(_supervisor.make_private_directory(root + b"/slots"))
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


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return _supervisor.has_contents(os.read(fd, _supervisor.STATUS_SIZE))
    finally:
        os.close(fd)


# A replica is asked far more often than it changes.
@functools.lru_cache(maxsize=4096)
def _parse(data: bytes) -> tuple[_supervisor.Status, ReplicaStatus]:
    status = _supervisor.Status.parse(data)
    return status, ReplicaStatus(
        state=cast(State, status.state),
        attempt=status.attempt,
        exit_code=status.exit_code,
        message=status.message,
        pid=status.pid,
        started_at=status.started_at,
        ended_at=status.ended_at,
    )


def _inspect_without_supervisor(
    directory: Path | str, status: _supervisor.Status, report: ReplicaStatus
) -> ReplicaStatus | None:
    """Tell what the files mean when nobody is there to say it; None if they changed meanwhile."""
    try:
        files = _supervisor.Files(os.fspath(directory))
    except FileNotFoundError:
        return None
    try:
        if _supervisor.is_attended(files, status):
            host = status.place.split(" ")[-1]
            if _supervisor.distance(status.place) == "away":
                report = replace(report, message=f"on {host}, which cannot be asked from here")
            return report
        last = files.last_attempt()
        alive = last is not None and _lives(files, last, status.token)
        again = files.last_attempt()
        if last is not None and again is not None and again.name != last.name:
            return None  # it ended while we looked: its keeper was gone, but not without a word
        step = _supervisor.decide(status, last, files.cancelled_at(), alive=alive)
    finally:
        files.close()
    report = replace(report, unattended=True, pid=None)
    if last is not None:
        report = replace(
            report, attempt=last.number, started_at=last.started_at, ended_at=last.ended_at
        )
    if isinstance(step, _supervisor.End):
        state = cast(State, step.state)
        return replace(report, state=state, exit_code=step.exit_code, message=step.message)
    if step is None and last is not None:
        return replace(report, state="running", pid=last.task.pid, message="")
    return replace(report, state="pending")


def _lives(files: _supervisor.Files, last: _supervisor.Attempt, token: str) -> bool:
    """Whether anything of an attempt is left: keeper, task, or others in the task's group."""
    if last.is_running():
        return True
    where = _supervisor.distance(last.place)
    if where == "hidden":  # process ids tell nothing here, but locks do
        lock_fd = files.try_lock(_supervisor.KEEPER_LOCK, shared=True)
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
        return False  # the number is somebody else's by now
    return _supervisor.processes_of(last.task, token)[1]


def _stop(directory: Path, files: _supervisor.Files, grace_s: float | None) -> None:
    report = inspect(directory)
    if report.is_final and not report.unattended:
        return
    status = files.status()
    if status is not None and _supervisor.distance(status.place) == "away":
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
    woken: set[int] = set()
    pause_s = 0.002
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
            lock_fd = files.try_lock(_supervisor.LOCK)
            if lock_fd is not None:
                files.unlock(lock_fd)
                return  # whoever starts it finds the request
        _press(files, woken, overdue_s)
        if overdue_s > _GIVE_UP_S:
            raise _cancel_error(
                directory,
                "its processes did not end after KILL; "
                "they may wait for a device or a network file system",
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)


def _press(files: _supervisor.Files, woken: set[int], overdue_s: float) -> None:
    """Tell the supervisor once, and help the more the longer it takes."""
    status = files.status()
    if status is None or status.state in _supervisor.FINAL:
        return
    if status.supervisor.pid not in woken:
        woken.add(status.supervisor.pid)
        status.supervisor.send(signal.SIGTERM)
    if overdue_s > 0:
        last = files.last_attempt()
        if last is not None:
            rows, _ = _supervisor.processes_of(last.task, status.token)
            for row in rows:
                _supervisor.Process(row.pid, row.birth).send(signal.SIGKILL)
    if overdue_s > _PATIENCE_S:
        status.supervisor.send(signal.SIGKILL)


def _cancel_error(directory: Path, reason: str) -> BackendError:
    return BackendError(
        f"The replica in {str(directory)!r} could not be stopped: {reason}.",
        backend=BACKEND,
        operation="cancel",
        detail=reason,
    )
