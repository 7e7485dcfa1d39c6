"""A Slurm cluster: submit, ask, cancel and read logs, with as few remote commands as possible.

Calls of many threads at about the same time share one remote command.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nemo_run._backends.slurm import remote
from nemo_run._backends.slurm.answers import (
    Exit,
    array_elements,
    by_job,
    parse_exit,
    parse_sacct,
    parse_squeue,
)
from nemo_run._backends.slurm.log_files import LogPart, LogRequest, log_parts, read_logs
from nemo_run._backends.slurm.remote import (
    BACKEND,
    Answer,
    Shell,
    unavailable,
)
from nemo_run._backends.slurm.reports import Report, Watched
from nemo_run._backends.slurm.submission import Submission, Submitter
from nemo_run._transport.coalesce import Together
from nemo_run.exceptions import BackendError, JobLostError, JobNotFoundError

AHEAD_S = 0.5
"""How long an answer that came along with others may be used, once."""
LOST_AFTER_S = 60.0
"""Seconds until a job unknown to squeue, sacct and its state directory counts as lost."""
GATHER_S = 0.03
"""How long to wait for more jobs to submit with the first; each after it may be as late again."""
GATHER_ENOUGH = 16
"""How many jobs are submitted without waiting for more, so that the first start meanwhile."""

CHUNK = 200

T = TypeVar("T")

# Said by a sacct without a database, or by a shell that does not find sacct.
_NO_ACCOUNTING = re.compile(r"accounting 127 |accounting storage is disabled", re.IGNORECASE)


@dataclass(frozen=True)
class _History:
    """What is told of jobs that the controller forgot; whole if accounting, if any, answered."""

    reports: Mapping[str, Report]
    is_whole: bool


class Slurm:
    """The cluster behind ``shell``; one object for all threads of a process."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        submitter = Submitter(shell)
        self.find = submitter.find
        self._submitting = Together(submitter.submit_all, gather_s=GATHER_S, enough=GATHER_ENOUGH)
        self._asking = Together(self._ask_all)
        self._reading = Together(self._read_all)
        self._forgetting = Together(self._forget_all)
        self._lock = threading.Lock()
        # Jobs that a thread waits for, and what came along when another was asked about. Numbers
        # are given again, by a cluster made anew or by another that is reached by the same name, so
        # what is kept about a job is kept for its state directory.
        self._watched: dict[str, Watched] = {}
        self._ahead: dict[tuple[str, str], tuple[float, Report | Exception]] = {}
        self._unknown: dict[tuple[str, str], float] = {}

    def submit(self, submission: Submission) -> str:
        """Submit a job that was not submitted before, and return its number.

        Raises:
            SubmitError: Slurm did not accept it.
            BackendUnavailableError: it may or may not have been submitted; see `find`.
        """
        job_id = self._submitting.ask(submission)
        self.watch(job_id, submission.state_dir, submission.array)
        return job_id

    def watch(self, job_id: str, state_dir: str, array: str = "") -> Watched:
        """Ask for this job, too, whenever another is asked about."""
        watched = Watched(state_dir, array_elements(array))
        with self._lock:
            self._watched[job_id] = watched
        return watched

    def unwatch(self, job_id: str) -> None:
        with self._lock:
            watched = self._watched.pop(job_id, None)
            if watched is not None:
                self._ahead.pop((job_id, watched.state_dir), None)

    def job(self, job_id: str, state_dir: str, array: str = "") -> Report:
        """Return what is known of a job, with the elements of ``array`` if it is one.

        Raises:
            JobNotFoundError: Slurm does not know it. A `JobLostError` after `LOST_AFTER_S`.
            BackendUnavailableError: Slurm cannot say now.
        """
        watched = self.watch(job_id, state_dir, array)
        known = self._came_along(job_id, state_dir)
        if isinstance(known, Exception):
            raise known
        return known or self._asking.ask((job_id, watched))

    def look(self, jobs: Mapping[str, tuple[str, str]]) -> dict[str, Report]:
        """Ask about several jobs, given with their state directories and arrays, at once.

        Reports, and errors of the question, are kept for the `job` that follows; a job is missing
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
            self._ahead |= {(id, asked[id].state_dir): (now, answers[id]) for id in answers}
        return {id: answer for id, answer in answers.items() if isinstance(answer, Report)}

    def _came_along(self, job_id: str, state_dir: str) -> Report | Exception | None:
        """Return what was said a moment ago, when this or another job was asked about."""
        with self._lock:
            at, answer = self._ahead.pop((job_id, state_dir), (-math.inf, None))
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
            self._ahead.pop((job_id, state_dir), None)
        gone = "Invalid job id" in answer.err or "already completing" in answer.err
        if answer.code and not gone:
            raise unavailable(f"cancel job {job_id}", answer.err)

    def read_logs(self, request: LogRequest) -> list[LogPart]:
        """Return what is new in some log files, in the order of their names."""
        return self._reading.ask(request)

    def forget_environment(self, state_dir: str) -> None:
        """Remove the variables of a job that does not come back."""
        self._forgetting.ask(state_dir)

    def _run(self, command: str) -> Answer:
        return self._shell(command, b"", remote.TIMEOUT_S)

    # Many at once.

    def _ask_all(self, batch: Sequence[tuple[str, Watched]]) -> list[Report | Exception]:
        # What was asked while another question was under way may have been answered with it.
        known = {job_id: self._came_along(job_id, one.state_dir) for job_id, one in batch}
        unknown = {job_id: watched for job_id, watched in batch if known[job_id] is None}
        answers = self._ask_slurm(unknown) if unknown else {}
        return [known[job_id] or answers[job_id] for job_id, _ in batch]

    def _ask_slurm(self, asked: Mapping[str, Watched]) -> dict[str, Report | Exception]:
        with self._lock:
            # Another process may have seen the end of one meanwhile, and watches it no more.
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
                (job_id, wanted[job_id].state_dir): (now, report)
                for job_id, report in reports.items()
                if job_id not in asked and report.rows
            }
            for job_id in reports:
                self._unknown.pop((job_id, wanted[job_id].state_dir), None)
            # The callers that wait for them ask again.
            for job_id in missing.keys() - reports.keys():
                self._watched.pop(job_id, None)
        untold = "accounting does not answer" if silent and not down else answer.err
        return {
            job_id: reports.get(job_id) or self._no_answer(job_id, one, down or silent, untold)
            for job_id, one in asked.items()
        }

    def _no_answer(self, job_id: str, watched: Watched, unsure: bool, said: str) -> Exception:
        if unsure:
            return unavailable(f"say how job {job_id} is", said)
        now = time.monotonic()
        with self._lock:
            since = self._unknown.setdefault((job_id, watched.state_dir), now)
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
        for line in remote.ours(answer.out):
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
            parts += log_parts(self._run(read_logs(some)).out, len(some))
        return parts


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut what would make a command longer than a system takes."""
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))
