"""A submitted Slurm job, found again by its reference."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from torchx.specs import AppState, is_terminal

from nemo_run import _shell
from nemo_run._backends.slurm.client import Slurm
from nemo_run._backends.slurm.log_files import LogRequest
from nemo_run._backends.slurm.log_paths import LogPath
from nemo_run._backends.slurm.logs import LAST_BYTES, Logs, natural
from nemo_run._backends.slurm.remote import BACKEND, Answer
from nemo_run._backends.slurm.reports import Report
from nemo_run._backends.slurm.status import job_status
from nemo_run._backends.slurm.submission import Submission
from nemo_run._jobs.log_lines import LogQuery
from nemo_run._jobs.records import JobRef
from nemo_run._jobs.status import JobStatus
from nemo_run._parallel import in_parallel
from nemo_run._transport.waiting import Waiting
from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel, Tunnel
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
    JobNotFoundError,
    PackagingError,
    SubmitError,
)

log = logging.getLogger(__name__)

# How long a submission is tried: while it is in doubt, and before the cluster was ever reached.
_SUBMIT_PATIENCE_S = 120.0
_UNREACHED_PATIENCE_S = 15.0
# Of an archive; each goes on where the one before broke off.
_SENDING_TRIES = 5

_LONGEST_ARGUMENT = 60_000
"""In bytes. Linux takes twice as much; quoting makes a command longer."""
_READ_COMMAND = 'eval "$(cat)"'

_FAILED_TASK = re.compile(
    r"^srun: error: (?P<node>\S+): tasks? (?P<rank>\d+)(?P<more>[\d,-]*): (?P<how>.+)$",
    re.MULTILINE,
)
_FAILED_STEP = re.compile(
    r"^nemo_run: task (\d+) has ended with exit code (?!0$)\d+$", re.MULTILINE
)
_RESTART = re.compile(r"^nemo_run: restart \d+$", re.MULTILINE)
_OURS = re.compile(r"^nemo_run: error: (.+)$", re.MULTILINE)
# What srun or Slurm says of a job that could not even start.
_OTHER_TROUBLE = re.compile(r"^(?:srun|slurmstepd|pyxis)\S*: .*error.*$", re.MULTILINE | re.I)
_EXIT_CODE = re.compile(r"exit code (\d+)")
_AFTERMATH = re.compile(r"Terminated|Killed$|STEP .* CANCELLED|Job step aborted")


def client_for(tunnel: SSHTunnel | LocalTunnel) -> Slurm:
    """Return the cluster behind a tunnel, one object for all jobs that are reached the same way."""
    key = json.dumps(
        [getattr(tunnel, name, "") for name in ("host", "user", "port", "identity", "pre_command")]
    )
    # A class of the user's may connect in a way of its own, which jobs that are looked for by their
    # records, and so by tunnels of ours, take from then on as well.
    own_way = type(tunnel) not in (SSHTunnel, LocalTunnel)
    with _lock:
        known = _clients.get(key)
        if known is None or (own_way and known[0] is not type(tunnel)):
            known = _clients[key] = (type(tunnel), Slurm(_TunnelShell(tunnel)))
        return known[1]


_clients: dict[str, tuple[type[Tunnel], Slurm]] = {}
_lock = threading.Lock()


def _forget_after_fork() -> None:
    # Questions may be under way in threads that do not exist in the child.
    global _lock
    _clients.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


@dataclass(frozen=True)
class _TunnelShell:
    tunnel: SSHTunnel | LocalTunnel

    def __call__(self, command: str, stdin: bytes, timeout_s: float) -> Answer:
        if not stdin and len(command.encode()) > _LONGEST_ARGUMENT:
            command, stdin = _READ_COMMAND, command.encode()
        # Whatever the login shell is, ours is POSIX.
        line = _shell.render(["sh", "-c", command])
        done = self.tunnel.run(line, hide=True, warn=True, input=stdin, timeout=timeout_s)
        return Answer(done.exited, done.stdout, done.stderr)

    def send(self, local: Path, remote: str) -> None:
        from nemo_run.core.packaging._delivery import deliver
        from nemo_run.core.packaging._store import StagedCode

        directory, _, name = remote.rpartition("/")
        staged = StagedCode(local, name.partition(".")[0], local.stat().st_size)
        label = f"code to {self.tunnel.host}"
        for left in reversed(range(_SENDING_TRIES)):
            try:
                deliver(staged, _FarEnd(self.tunnel), directory, label=label)
            except ConnectionLostError as err:
                if not left:
                    raise
                log.info("%s; going on where it broke off", err)
            except PackagingError as err:
                raise BackendError(str(err), backend=BACKEND, operation="transfer") from err
            else:
                return


@dataclass(frozen=True)
class _FarEnd:
    """The other end of a tunnel. Whatever the login shell is, ours is POSIX."""

    tunnel: SSHTunnel | LocalTunnel

    def run(self, command: str) -> str:
        return self.tunnel.run(["sh", "-c", command]).stdout

    def send(self, command: str, stream: BinaryIO) -> None:
        self.tunnel.send(["sh", "-c", command], stream)


def submit_once(client: Slurm, submission: Submission) -> str:
    """Submit once, however often the connection breaks on the way.

    Raises:
        SubmitError: Slurm did not accept it, or was not there from the beginning.
        ConnectionLostError: it may have been submitted, and Slurm cannot be asked.
    """
    started = time.monotonic()
    waiting, in_doubt = Waiting(0.1, 5.0, growth=2), False
    while True:
        try:
            if in_doubt:
                found = client.find(submission.state_dir)
                if found is not None:
                    return found
                in_doubt = False
            return client.submit(submission)
        except BackendUnavailableError as err:
            in_doubt = in_doubt or err.backend != "ssh" or isinstance(err, ConnectionLostError)
            patience_s = _SUBMIT_PATIENCE_S if in_doubt else _UNREACHED_PATIENCE_S
            if time.monotonic() - started > patience_s:
                raise _given_up(err, in_doubt) from err
            log.warning("%s; trying again", err)
        waiting.pause()


def _given_up(err: BackendUnavailableError, in_doubt: bool) -> BackendError:
    if not in_doubt:
        return SubmitError(f"{err} Nothing was submitted.", backend=err.backend, operation="submit")
    return ConnectionLostError(
        f"It is not known whether the job was submitted: {err}",
        backend=err.backend,
        operation="submit",
        detail=err.detail,
    )


class SubmittedJob:
    """How to ask for one job, from what its reference says."""

    def __init__(self, ref: JobRef) -> None:
        where = ref.where
        self.id = where.get("job_id", ref.native_id)
        self.state_dir = where.get("state_dir", "")
        self.client = client_for(_tunnel(json.loads(where["tunnel"])))
        self._logs: dict[str, str] = json.loads(where.get("logs", "{}"))
        self._errors: dict[str, str] = json.loads(where.get("errors", "{}"))
        self._batch_log = where.get("batch_log", "")
        self._folder = where.get("folder", "")
        self.array = where.get("array", "")
        self._tasks = int(where.get("tasks", "1"))
        self._rank_logs = bool(where.get("rank_logs"))
        self._job_dir = Path(where.get("job_dir", "."))

    def report(self) -> Report:
        """Return what Slurm knows of it; see `Slurm.job` for what may be raised."""
        return self.client.job(self.id, self.state_dir, self.array)

    def has_ended(self) -> bool:
        """Tell whether the job is over, or unknown; an outage is not the end of a job."""
        try:
            return is_terminal(job_status(self.report()).state)
        except BackendUnavailableError as err:
            log.debug("%s", err)
            return False
        except JobNotFoundError:
            return True

    def logs(self, role: str, replica: int) -> Logs:
        """Return the logs of a task; of one rank of it, where each has its own."""
        position = list(self._logs).index(role)
        rank = replica if self._rank_logs else None
        paths = [self._logs[role], *([self._errors[role]] if role in self._errors else [])]
        # The notes of when a file was how long are named after it.
        clocks = [f"{self.state_dir}/clock-{position}-{PurePosixPath(p).name}" for p in paths]
        return Logs(
            self.client,
            self._globs(self._folder, paths, rank),
            clock=self._globs(self.state_dir, clocks, rank) if self.state_dir else "",
            kept=self._kept(position, rank),
        )

    def _globs(self, folder: str, paths: Sequence[str], rank: int | None = None) -> str:
        """Return the pattern for a shell that finds the files of several paths."""
        array = bool(self.array)
        return " ".join(
            LogPath.below(folder, path).glob(self.id, array=array, rank=rank) for path in paths
        )

    def _kept(self, position: int, rank: int | None) -> Path | None:
        if self._is_shared:
            return None
        name = f"logs-{self.id}" + (f"-{position}" if len(self._logs) > 1 else "")
        return self._job_dir / (name if rank is None else f"{name}-rank{rank}")

    @property
    def _is_shared(self) -> bool:
        """Whether the logs are in the job's directory on this machine anyway."""
        return PurePosixPath(self.state_dir).parent.parent == PurePosixPath(self._job_dir)

    def with_cause(self, status: JobStatus) -> JobStatus:
        """Return the status of a job that failed, with what the batch script said about it."""
        if status.state is not AppState.FAILED or status.message:
            return status
        text = self._batch_text()
        first = _first_failure(text) if self._tasks > 1 else None
        # Of many tasks srun gives the highest code, which is that of those it ended itself.
        code = _EXIT_CODE.search(first["how"]) if first is not None else None
        exit_code = int(code[1]) if code is not None else status.exit_code
        return replace(status, message=self._cause(text), exit_code=exit_code)

    def failed_first(self, query: LogQuery) -> LogQuery:
        """Return a query for the log of the task, and of the rank, that failed first."""
        text = self._batch_text()
        step = _FAILED_STEP.search(text)
        names = list(self._logs)
        if step is not None and int(step[1]) < len(names):
            query = replace(query, role=names[int(step[1])])
        task = _first_failure(text)
        if task is not None and self._rank_logs:
            query = replace(query, replica=int(task["rank"]))
        return query

    def _cause(self, text: str) -> str:
        ours = _OURS.search(text)
        if ours is not None:
            return ours[1]
        task = _first_failure(text)
        if task is not None:
            if self._tasks == 1:
                return ""
            return f"task {task['rank']} on {task['node']} was the first to fail: {task['how']}"
        trouble = _OTHER_TROUBLE.search(text)
        return trouble[0] if trouble else ""

    def _batch_text(self) -> str:
        """Return the end of what the batch script said in its last attempt."""
        request = LogRequest(pattern=self._globs(self._folder, [self._batch_log]), last=LAST_BYTES)
        try:
            parts = self.client.read_logs(request)
        except BackendError as err:
            log.debug("%s: %s", self.id, err)
            return ""
        ordered = sorted(parts, key=lambda part: natural(part.path))
        texts = [part.data.decode("utf-8", "replace") for part in ordered]
        return "".join(_RESTART.split(text)[-1] for text in texts)

    def settle(self, state: AppState) -> None:
        """Keep the logs of a job that has ended, and remove its variables from the cluster.

        A script that came to its end has removed them itself, unless others needed them.

        Trouble is only logged: the job has ended all the same. The next reader tries again;
        see `is_settled`.
        """
        try:
            if self.array or state is not AppState.SUCCEEDED:
                self.client.forget_environment(self.state_dir)
            for logs in self._all_logs():
                if not logs.are_kept:
                    logs.keep()
        except (BackendError, OSError) as err:
            log.warning("%s: its logs stay on the cluster: %s", self.id, err)

    @property
    def is_settled(self) -> bool:
        """Whether a job that has ended needs nothing more, as far as this machine can tell."""
        return all(logs.are_kept for logs in self._all_logs())

    def _all_logs(self) -> Iterator[Logs]:
        for role in self._logs:
            for rank in range(self._tasks if self._rank_logs else 1):
                yield self.logs(role, rank)


def look(jobs: Sequence[SubmittedJob]) -> list[Report | None]:
    """Ask about several jobs with one question to each cluster; None where there is trouble."""
    by_client: dict[Slurm, list[SubmittedJob]] = {}
    for job in jobs:
        by_client.setdefault(job.client, []).append(job)
    told: dict[Slurm, dict[str, Report]] = {}

    def ask(client: Slurm) -> None:
        wanted = {job.id: (job.state_dir, job.array) for job in by_client[client]}
        told[client] = client.look(wanted)

    in_parallel(ask, list(by_client))
    return [told[job.client].get(job.id) for job in jobs]


def _first_failure(text: str) -> re.Match[str] | None:
    """Return which task failed first, leaving out those that were ended for it."""
    found = _FAILED_TASK.finditer(text)
    return next((match for match in found if not _AFTERMATH.search(match["how"])), None)


def _tunnel(values: dict[str, Any]) -> SSHTunnel | LocalTunnel:
    if values.get("host") == "localhost" and not values.get("user") and "port" not in values:
        return LocalTunnel(job_dir=values["job_dir"])
    return SSHTunnel(**values)
