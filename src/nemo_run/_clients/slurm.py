"""A Slurm cluster: submit, ask, cancel and read logs, with as few remote commands as possible.

Calls of many threads at about the same time share one remote command.
"""

from __future__ import annotations

import base64
import math
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from nemo_run import _shell
from nemo_run._clients import _slurm_remote as remote
from nemo_run._clients._slurm_answers import (
    Exit,
    array_elements,
    by_job,
    parse_exit,
    parse_sacct,
    parse_squeue,
)
from nemo_run._clients._slurm_files import File, packed
from nemo_run._clients._slurm_remote import LogRequest
from nemo_run._clients._slurm_reports import Report, Watched
from nemo_run._clients._together import Together
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    JobLostError,
    JobNotFoundError,
    NemoRunError,
    SubmitError,
)

BACKEND = "slurm_tunnel"
TIMEOUT_S = 120.0
SUBMIT_TIMEOUT_S = 600.0
"""Longer, since code is unpacked; a connection that is lost is noticed long before."""
AHEAD_S = 0.5
"""How long an answer that came along with others may be used, once."""
LOST_AFTER_S = 60.0
"""After how long a job is given up of which nobody knows anything, though all have answered."""
GATHER_S = 0.03
"""How long to wait for more jobs to submit with the first; each after it may be as late again."""
GATHER_ENOUGH = 16
"""How many jobs are submitted without waiting for more, so that the first start meanwhile."""

CHUNK = 200

T = TypeVar("T")

_TRANSIENT = re.compile(remote.TRANSIENT, re.IGNORECASE)
# Said by a sacct that has nobody to ask, or by a shell that does not find it.
_NO_ACCOUNTING = re.compile(r"accounting 127 |accounting storage is disabled", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """What a remote command said."""

    code: int
    out: str
    err: str


class Shell(Protocol):
    """Runs one command of a POSIX shell where Slurm's commands are.

    Raises:
        BackendUnavailableError: it could not be reached, or the connection broke; then the
            command may have run.
    """

    def __call__(self, command: str, stdin: bytes, timeout_s: float) -> Answer: ...

    def send(self, local: Path, remote: str) -> None:
        """Copy a file of any size there, whole or not at all."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job to be submitted.

    Attributes:
        state_dir: on the cluster, unlike that of any other submission.
        files: what has to be there first; absolute paths.
        array: which elements it has; empty for a job that is no array.
        archive: where the job's code is kept on the cluster; empty for none.
        local_archive: the same on this machine, sent where the cluster does not have it.
    """

    state_dir: str
    argv: Sequence[str]
    files: Sequence[File]
    array: str = ""
    archive: str = ""
    local_archive: Path = Path()


@dataclass(frozen=True)
class _History:
    """What is told of jobs that the controller forgot; whole if accounting, if any, answered."""

    reports: Mapping[str, Report]
    is_whole: bool


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """A piece of a log file."""

    path: str
    start: int
    size: int
    data: bytes = field(repr=False)


class Slurm:
    """The cluster behind ``shell``; one object for all threads of a process."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._submitting = Together(self._submit_all, gather_s=GATHER_S, enough=GATHER_ENOUGH)
        self._asking = Together(self._ask_all)
        self._reading = Together(self._read_all)
        self._forgetting = Together(self._forget_all)
        self._lock = threading.Lock()
        # Jobs that somebody waits for, and what came along when another was asked about.
        self._watched: dict[str, Watched] = {}
        self._ahead: dict[str, tuple[float, Report | Exception]] = {}
        self._unknown: dict[str, float] = {}

    def submit(self, submission: Submission) -> str:
        """Submit a job that was not submitted before, and return its number.

        Raises:
            SubmitError: Slurm did not accept it.
            BackendUnavailableError: it may or may not have been submitted; see `find`.
        """
        job_id = self._submitting.ask(submission)
        self.watch(job_id, submission.state_dir, submission.array)
        return job_id

    def find(self, state_dir: str, *, patience_s: int = 60) -> str | None:
        """Return the number of the job with that state directory; None if there is none.

        Raises:
            BackendUnavailableError: Slurm cannot say now.
        """
        answer = self._run(remote.ask(state_dir, patience_s))
        lines = _ours(answer.out)
        verdict = lines[0] if lines else ""
        if verdict == "never":
            return None
        if verdict.startswith("done"):
            return _job_id(lines)
        raise _unavailable("find a job again", _said(lines, answer))

    def watch(self, job_id: str, state_dir: str, array: str = "") -> Watched:
        """Ask for this job, too, whenever another is asked about."""
        watched = Watched(state_dir, array_elements(array))
        with self._lock:
            self._watched[job_id] = watched
        return watched

    def unwatch(self, job_id: str) -> None:
        with self._lock:
            self._watched.pop(job_id, None)
            self._ahead.pop(job_id, None)

    def job(self, job_id: str, state_dir: str, array: str = "") -> Report:
        """Return what is known of a job, with the elements of ``array`` if it is one.

        Raises:
            JobNotFoundError: nobody knows it. A `JobLostError` where that has been so for a while.
            BackendUnavailableError: Slurm cannot say now.
        """
        watched = self.watch(job_id, state_dir, array)
        known = self._came_along(job_id)
        if isinstance(known, Exception):
            raise known
        return known or self._asking.ask((job_id, watched))

    def look(self, jobs: Mapping[str, tuple[str, str]]) -> dict[str, Report]:
        """Ask about several jobs, given with their state directories and arrays, at once.

        What comes back, or is in the way, is at hand for the `job` that follows; a job is missing
        where that would raise.
        """
        asked = {job_id: self.watch(job_id, *rest) for job_id, rest in jobs.items()}
        answers: Mapping[str, Report | Exception]
        try:
            answers = self._ask_slurm(asked)
        except BackendError as err:
            answers = dict.fromkeys(asked, err)
        now = time.monotonic()
        with self._lock:
            self._ahead |= {job_id: (now, answer) for job_id, answer in answers.items()}
        return {id: answer for id, answer in answers.items() if isinstance(answer, Report)}

    def _came_along(self, job_id: str) -> Report | Exception | None:
        """Return what was said a moment ago, when this or another job was asked about."""
        with self._lock:
            at, answer = self._ahead.pop(job_id, (-math.inf, None))
        return answer if time.monotonic() - at < AHEAD_S else None

    def cancel(
        self, job_id: str, state_dir: str, *, kill: bool = False, array: bool = False
    ) -> None:
        """Ask Slurm to end a job; fine where it has ended.

        Raises:
            BackendUnavailableError: Slurm could not be asked.
        """
        answer = self._run(remote.cancel(job_id, state_dir, kill=kill, array=array))
        with self._lock:
            self._ahead.pop(job_id, None)
        gone = "Invalid job id" in answer.err or "already completing" in answer.err
        if answer.code and not gone:
            raise _unavailable(f"cancel job {job_id}", answer.err)

    def read_logs(self, request: LogRequest) -> list[LogPart]:
        """Return what is new in some log files, in the order of their names."""
        return self._reading.ask(request)

    def forget_environment(self, state_dir: str) -> None:
        """Remove the variables of a job that does not come back."""
        self._forgetting.ask(state_dir)

    def _run(self, command: str) -> Answer:
        return self._shell(command, b"", TIMEOUT_S)

    # Many at once.

    def _submit_all(self, batch: Sequence[Submission]) -> list[str | Exception]:
        stream = packed([file for item in batch for file in _all_files(item)])
        command = remote.submit([(item.state_dir, item.archive) for item in batch])
        answer = self._shell(command, stream, SUBMIT_TIMEOUT_S)
        if answer.code == remote.BAD_STREAM and len(batch) > 1:
            # One of them does not fit; the others may.
            return [self._submit_all([item])[0] for item in batch]
        if answer.code == remote.BAD_STREAM:
            return [_refused(f"its files could not be written: {answer.err.strip()}")]
        blocks = _blocks(answer.out)
        if len(blocks) != len(batch):
            return [_unavailable("submit", answer.err)] * len(batch)
        outcomes = dict(zip([item.state_dir for item in batch], blocks, strict=True))
        lacking = [item for item in batch if outcomes[item.state_dir][:1] == ["nocode"]]
        results = {
            item.state_dir: self._outcome(item, outcomes[item.state_dir])
            for item in batch
            if item not in lacking
        }
        if lacking:
            results |= self._submit_with_code(lacking)
        return [results[item.state_dir] for item in batch]

    def _submit_with_code(self, batch: Sequence[Submission]) -> dict[str, str | Exception]:
        """Send the archives that the cluster does not have, each once, and submit again."""
        for item in {item.archive: item for item in batch}.values():
            try:
                self._shell.send(item.local_archive, item.archive)
            except BackendUnavailableError:
                raise
            except BackendError as err:
                error = _refused(f"its code could not be sent: {err}")
                return {item.state_dir: error for item in batch}
        return dict(zip([i.state_dir for i in batch], self._submit_all(batch), strict=True))

    def _outcome(self, item: Submission, lines: Sequence[str]) -> str | Exception:
        verdict = lines[0] if lines else ""
        said = _said(lines, None)
        try:
            if verdict == "done 0":
                return _job_id(lines)
            if verdict == "twice":
                return self.find(item.state_dir) or _unavailable("submit", "submitted by another")
        except NemoRunError as err:
            return err
        if not verdict.startswith("done") or _TRANSIENT.search(said):
            return _unavailable("submit", said)
        return _refused(said)

    def _ask_all(self, batch: Sequence[tuple[str, Watched]]) -> list[Report | Exception]:
        # What was asked while another question was under way may have been answered with it.
        known = {job_id: self._came_along(job_id) for job_id, _ in batch}
        unknown = {job_id: watched for job_id, watched in batch if known[job_id] is None}
        answers = self._ask_slurm(unknown) if unknown else {}
        return [known[job_id] or answers[job_id] for job_id, _ in batch]

    def _ask_slurm(self, asked: Mapping[str, Watched]) -> dict[str, Report | Exception]:
        with self._lock:
            # Somebody else may have seen the end of one meanwhile, and watches it no more.
            wanted = {**self._watched, **asked}
        answer = self._run(remote.queue(list(wanted)))
        queued = by_job(parse_squeue(answer.out))
        found = {job_id: Report(rows=rows) for job_id, rows in queued.items() if job_id in wanted}
        down = answer.code != 0 and "Invalid job id" not in answer.err
        reports = {
            job_id: report
            for job_id, report in found.items()
            if wanted[job_id].is_told_by(report) or not all(row.has_ended for row in report.rows)
        }
        missing = {job_id: wanted[job_id] for job_id in wanted if job_id not in reports}
        silent = False
        for ids in _chunks(list(missing)):
            history = self._history({job_id: missing[job_id].state_dir for job_id in ids})
            silent = silent or not history.is_whole
            for job_id, past in history.reports.items():
                watched = missing[job_id]
                if down:
                    report = past.proven(by_element=bool(watched.elements))
                else:
                    report = past.after(found.get(job_id, Report()).rows)
                    report = watched.completed(job_id, report)
                if watched.is_told_by(report):
                    reports[job_id] = report
        now = time.monotonic()
        with self._lock:
            self._ahead |= {
                job_id: (now, report)
                for job_id, report in reports.items()
                if job_id not in asked and report.rows
            }
            # Whoever wants to know of them asks again.
            for job_id in missing.keys() - reports.keys():
                self._watched.pop(job_id, None)
        untold = "accounting does not answer" if silent and not down else answer.err
        return {
            job_id: reports.get(job_id) or self._no_answer(job_id, down or silent, untold)
            for job_id in asked
        }

    def _no_answer(self, job_id: str, unsure: bool, said: str) -> Exception:
        if unsure:
            return _unavailable(f"say how job {job_id} is", said)
        now = time.monotonic()
        with self._lock:
            since = self._unknown.setdefault(job_id, now)
        # Accounting may be late with what it has to tell.
        kind = JobLostError if now - since > LOST_AFTER_S else JobNotFoundError
        return kind(
            f"Slurm does not know job {job_id} any more, and it left nothing behind.",
            backend=BACKEND,
            operation="status",
        )

    def _history(self, wanted: Mapping[str, str]) -> _History:
        """Ask accounting, and the files that scripts leave, about jobs the controller forgot."""
        answer = self._run(remote.history(list(wanted), list(wanted.values())))
        rows = by_job(parse_sacct(answer.out))
        ids = list(wanted)
        exits: dict[str, list[Exit]] = {}
        cancelled = set()
        whole = False
        for line in _ours(answer.out):
            kind, number, name, text = (*line.split(" ", 3), "", "", "")[:4]
            if kind == "accounting":
                whole = number == "0" or _NO_ACCOUNTING.search(line) is not None
                continue
            found = parse_exit(name, text)
            if found is not None:
                exits.setdefault(ids[int(number)], []).append(found)
            elif name == "cancelled":
                cancelled.add(ids[int(number)])
        reports = {
            job_id: Report(
                rows=rows.get(job_id, ()),
                exits=exits.get(job_id, ()),
                cancelled=job_id in cancelled,
            )
            for job_id in ids
            if job_id in rows or job_id in exits or job_id in cancelled
        }
        return _History(reports, is_whole=whole)

    def _forget_all(self, batch: Sequence[str]) -> list[bool | Exception]:
        for some in _chunks(batch):
            self._run(remote.forget_environment(some))
        return [True] * len(batch)

    def _read_all(self, batch: Sequence[LogRequest]) -> list[list[LogPart] | Exception]:
        parts: list[list[LogPart] | Exception] = []
        for some in _chunks(batch):
            parts += _log_parts(self._run(remote.read_logs(some)).out, len(some))
        return parts


def _log_parts(out: str, count: int) -> list[list[LogPart]]:
    parts: list[list[LogPart]] = [[] for _ in range(count)]
    for block in out.split(f"{remote.MARK} file ")[1:]:
        head, _, encoded = block.partition("\n")
        number, start, size, path = head.split(" ", 3)
        data = base64.b64decode(encoded)
        part = LogPart(path=path, start=int(start), size=int(size), data=data)
        parts[int(number)].append(part)
    return parts


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut what would make a command longer than a system takes."""
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


def _all_files(item: Submission) -> list[File]:
    own = [
        File(
            path=f"{item.state_dir}/submit.sh", data=f"exec {_shell.render(item.argv)}\n".encode()
        ),
        # The last of a stream that may be cut.
        File(path=f"{item.state_dir}/ready"),
    ]
    return [*item.files, *own]


def _ours(out: str) -> list[str]:
    """Return the lines that our own programs printed."""
    mark = f"{remote.MARK} "
    return [line.removeprefix(mark) for line in out.split("\n") if line.startswith(mark)]


def _blocks(out: str) -> list[list[str]]:
    blocks: list[list[str]] = []
    for line in _ours(out):
        if line == "begin":
            blocks.append([])
        elif blocks:
            blocks[-1].append(line)
    return blocks


def _job_id(lines: Sequence[str]) -> str:
    said = [line.removeprefix("out ") for line in lines if line.startswith("out ")]
    # With several clusters it is "number;cluster".
    numbers = [line.strip().partition(";")[0] for line in said]
    found = next((number for number in reversed(numbers) if number.isdigit()), None)
    if found is None:
        raise _refused(f"sbatch did not say what number it gave: {said!r}")
    return found


def _said(lines: Sequence[str], answer: Answer | None) -> str:
    said = [line.removeprefix("err ") for line in lines if line.startswith("err ")]
    return "\n".join(said) or (answer.err.strip() if answer is not None else "")


def _refused(said: str) -> SubmitError:
    return SubmitError(
        f"Slurm did not accept the job: {said}", backend=BACKEND, operation="submit", detail=said
    )


def _unavailable(operation: str, said: str) -> BackendUnavailableError:
    return BackendUnavailableError(
        f"Slurm could not be asked to {operation}: {said.strip() or 'no answer'}",
        backend=BACKEND,
        operation=operation,
        detail=said,
    )
