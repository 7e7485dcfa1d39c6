"""Run nemo_run experiments on Acme's queue: the whole integration.

The queue is a stand-in that needs nothing but this machine: a submitted job is a process group of
its own, and ``<job_dir>/acme/<native id>`` holds what is known of it:

    log         standard output and standard error, in order
    lock        held by the job while any process of it lives
    pid         the job's process group
    cancelled   a user asked for its end
    exit_code   written when the job's program has ended
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torchx.schedulers.api import Scheduler, Stream
from torchx.specs import AppDef, AppState, is_terminal

from nemo_run.core.execution.base import Capabilities, Executor
from nemo_run.exceptions import JobNotFoundError, SubmitError, UnsupportedError
from nemo_run.run.torchx_backend.schedulers.api import (
    CWD,
    TAG,
    JobRecord,
    JobRef,
    JobStatus,
    LogQuery,
    SchedulerMixin,
)

GRACE_S = 5.0

# Runs its arguments and notes how they ended; a rename shows a file whole or not at all.
_WRAPPER = """
note() { echo "$2" > "$ACME_JOB/$1.new" && mv "$ACME_JOB/$1.new" "$ACME_JOB/$1"; }
note pid $$
"$@"
note exit_code $?
"""


@dataclass(kw_only=True)
class AcmeExecutor(Executor):
    """Run on Acme's queue: in the code that the packager brought along, or else where you are.

    Attributes:
        queue: told to the job as ``ACME_QUEUE``.
    """

    SCHEDULER: ClassVar[str] = "acme"
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(
        detach=True, groups=True, local_paths=True, poll_s=(0.05, 1.0)
    )

    queue: str
    nodes: int = 1

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        self.experiment_id = exp_id
        self.experiment_dir = exp_dir
        self.job_dir = str(Path(exp_dir) / task_dir)

    def nnodes(self) -> int:
        return self.nodes

    def nproc_per_node(self) -> int:
        return 1

    def python(self) -> str:
        return sys.executable


@dataclass(frozen=True, kw_only=True)
class AcmeRequest:
    """What will be submitted. ``str()`` of it is what a dry run prints, so no environment."""

    name: str
    native_id: str
    queue: str
    argv: tuple[str, ...]
    cwd: str
    directory: str
    env: Mapping[str, str] = field(repr=False)


class AcmeScheduler(SchedulerMixin[AcmeExecutor, AcmeRequest], Scheduler[dict[str, str]]):
    """Five hooks; the rest of what torchx asks of a scheduler is in the mixin."""

    EXECUTOR: ClassVar[type[Executor]] = AcmeExecutor

    def _plan(self, app: AppDef, executor: AcmeExecutor) -> AcmeRequest:
        if executor.nodes > 1:
            raise UnsupportedError(
                f"Acme runs a job on one node, but {executor.nodes} were asked for. Leave it out."
            )
        role = app.roles[0]
        native_id = app.metadata[TAG]
        return AcmeRequest(
            name=app.name,
            native_id=native_id,
            queue=executor.queue,
            argv=(role.entrypoint, *role.args),
            cwd=_code(executor) or role.metadata.get(CWD) or str(Path.cwd()),
            directory=str(Path(executor.job_dir) / "acme" / native_id),
            env=role.env,
        )

    def _launch(self, request: AcmeRequest) -> JobRef:
        directory = Path(request.directory)
        directory.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, **request.env}
        env |= {"ACME_JOB": request.directory, "ACME_QUEUE": request.queue}
        with (directory / "lock").open("w") as lock, (directory / "log").open("wb") as log:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                process = subprocess.Popen(
                    ["sh", "-c", _WRAPPER, "acme", *request.argv],
                    cwd=request.cwd,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[lock.fileno()],
                    start_new_session=True,
                )
            except OSError as err:
                raise SubmitError(
                    f"Acme did not accept {request.name!r}: {err}.",
                    backend="acme",
                    operation="submit",
                    detail=str(err),
                ) from err
        # Its end is read from a file; the kernel may forget it when we end.
        process.returncode = 0
        return _ref(request.native_id, request.directory)

    def _poll(self, ref: JobRef) -> JobStatus:
        directory = _directory(ref)
        # Asked before the files are looked at: a job that has just ended has written them.
        alive = _is_alive(directory)
        started_at, _ = _note(directory, "pid")
        ended_at, code = _note(directory, "exit_code")
        bad_end = AppState.CANCELLED if (directory / "cancelled").exists() else AppState.FAILED
        if code is not None:
            state = AppState.SUCCEEDED if code == 0 else bad_end
        elif alive:
            state = AppState.RUNNING
        else:
            state = AppState.UNSUBMITTED if started_at is None else bad_end
        lost = state is AppState.FAILED and code is None
        return JobStatus(
            state=state,
            message="ended without an exit code" if lost else "",
            exit_code=code,
            started_at=started_at,
            ended_at=ended_at,
        )

    def _stop(self, ref: JobRef) -> None:
        _end(_directory(ref), signal.SIGTERM, signal.SIGKILL)

    def _lines(self, ref: JobRef, query: LogQuery) -> Iterator[str]:
        if query.stream is not Stream.COMBINED or query.since or query.until:
            raise UnsupportedError("Acme keeps one log for both streams, without times.")
        return self._follow(ref, _directory(ref) / "log", query.follow)

    def _follow(self, ref: JobRef, path: Path, follow: bool) -> Iterator[str]:
        rest = ""
        with path.open(errors="replace", newline="") as log:
            while True:
                # Asked before reading: what was written until the end is then in the file.
                over = not follow or is_terminal(self._poll(ref).state)
                whole, newline, rest = (rest + log.read()).rpartition("\n")
                if newline:
                    yield whole + newline
                if over:
                    break
                time.sleep(0.1)
        if rest:
            yield rest

    # Not needed, but good to have where we choose the id of a job: it is then recorded before it
    # is submitted, and found again if its launcher was killed in between.

    def _planned_id(self, request: AcmeRequest) -> str:
        return request.native_id

    def _log_dir(self, request: AcmeRequest) -> str:
        return request.directory

    def _planned_ref(self, record: JobRecord) -> JobRef | None:
        return _ref(record.app_id, record.log_dir) if Path(record.log_dir).exists() else None

    def _kill(self, ref: JobRef) -> None:
        _end(_directory(ref), signal.SIGKILL)


def create_scheduler(session_name: str, **kwargs: Any) -> AcmeScheduler:
    """Return the scheduler; named by the entry point in pyproject.toml."""
    return AcmeScheduler("acme", session_name)


def _code(executor: AcmeExecutor) -> str:
    """Return the directory with the code that a packager brought along, if one did."""
    code = Path(executor.job_dir) / "code"
    return str(code) if code.is_dir() and any(code.iterdir()) else ""


def _ref(native_id: str, directory: str) -> JobRef:
    return JobRef(native_id=native_id, where={"directory": directory})


def _directory(ref: JobRef) -> Path:
    directory = Path(ref.where["directory"])
    if not (directory / "lock").exists():
        raise JobNotFoundError(
            f"Acme does not know job {ref.native_id}: {str(directory)!r} is gone.", backend="acme"
        )
    return directory


def _is_alive(directory: Path) -> bool:
    """Tell whether any process of the job lives; process ids are reused, a lock is not."""
    with (directory / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _note(directory: Path, name: str) -> tuple[float | None, int | None]:
    """Return when the job noted a number, and the number; None for both if it has not."""
    path = directory / name
    return (path.stat().st_mtime, int(path.read_text())) if path.exists() else (None, None)


def _end(directory: Path, *signals: signal.Signals) -> None:
    """Send each signal to the job's processes, with time to end after each."""
    if not _is_alive(directory):
        return
    (directory / "cancelled").touch()
    for number in signals:
        deadline = time.monotonic() + GRACE_S
        sent = False
        while _is_alive(directory) and time.monotonic() < deadline:
            _, group = _note(directory, "pid")
            if group is not None and not sent:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, number)
                sent = True
            time.sleep(0.02)
