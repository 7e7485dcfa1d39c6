"""The log of one replica of a Lepton job, over all its attempts, while it runs and afterwards.

There are two sources. A stream has what a container writes as it writes it, and is gone with it;
it may be cut at any time. The log store keeps lines, with their times, and is some seconds late.
Both have the same lines in the same order, so the number of those that were read is the place
where to go on.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from nemo_run._backends.lepton.client import PATIENCE_S, Job, Lepton, LogLine, Replica
from nemo_run._backends.lepton.script import MARK_LABEL, ExitMark
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendUnavailableError

ENDED = frozenset({"Completed", "Failed", "Stopped", "Archived", "Deleted"})
"""States in which nothing is written any more."""

STORE_LAG_S = 5.0
"""How long to wait for the last lines of a job that has ended."""
FOLLOW_LAG_S = 30.0
"""The same for a reader that follows the job; one that was killed leaves no mark of its end."""


@dataclass
class _Place:
    """How far a replica's log was read: all in all, and in the store, up to a time."""

    read: int = 0
    stored: int = 0
    stored_ns: int = 0


class JobLog:
    """The log of replica ``index``."""

    def __init__(self, client: Lepton, job_id: str, index: int) -> None:
        self._client = client
        self._job_id = job_id
        self._mine = re.compile(rf"-{index}(?:-|$)")
        self._mark = ExitMark(job_id)
        self._places: dict[str, _Place] = {}
        self._ended_attempt = -1

    def read(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[str]:
        """Yield the lines there are now."""
        job = self._client.job(self._job_id)
        yield from self._stored(job, since, until)

    def follow(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[str]:
        """Yield lines as they come, until the job has ended and all were read.

        Raises:
            BackendUnavailableError: the workspace could not be asked for some minutes.
        """
        last_heard = time.monotonic()
        waiting = Waiting(0.2, 5)
        while True:
            before = self._lines_read()
            try:
                # Asked first: what is read after a job has ended is all there is.
                job = self._client.job(self._job_id)
                yield from self._stored(job, since, until, lag_s=FOLLOW_LAG_S)
                last_heard = time.monotonic()
                if job.state in ENDED or (until and time.time() > until.timestamp()):
                    return
            except BackendUnavailableError:
                if time.monotonic() - last_heard > PATIENCE_S:
                    raise
            # Without a stream: the store has the same lines, later.
            with contextlib.suppress(BackendUnavailableError):
                yield from self._live()
            if self._lines_read() > before:
                waiting.restart()
            waiting.pause()

    def _lines_read(self) -> int:
        return sum(place.read for place in self._places.values())

    def _replicas(self) -> list[Replica]:
        found = self._client.replicas(self._job_id)
        return [r for r in found if self._mine.match(r.id.removeprefix(self._job_id))]

    def _stored(
        self,
        job: Job,
        since: datetime | None,
        until: datetime | None,
        *,
        lag_s: float = STORE_LAG_S,
    ) -> Iterator[str]:
        """Yield what the store has and was not read; of a job that has ended, all there will be."""
        self._mark = _mark_of(job)
        waiting = Waiting(0.5, 0.5, timeout_s=lag_s)
        while True:
            for replica in self._replicas():
                for line in self._news(job, replica):
                    self._note(line.text)
                    if _between(line, since, until):
                        yield from self._shown(line.text + "\n")
            # A job that was stopped may not have come to say how it ended.
            if job.state not in ("Completed", "Failed") or self._ended_attempt >= job.restarts:
                return
            if waiting.is_over:
                return
            waiting.pause()

    def _news(self, job: Job, replica: Replica) -> list[LogLine]:
        place = self._places.setdefault(replica.id, _Place())
        start_ns = place.stored_ns + 1 if place.stored_ns else first_ns(job)
        # Clocks differ: what was stored last may be from a time that is yet to come here.
        end_ns = max(time.time_ns(), start_ns + 1)
        found = self._client.log(self._job_id, replica.id, start_ns=start_ns, end_ns=end_ns)
        if not found:
            return []
        news = found[max(place.read - place.stored, 0) :]
        place.stored += len(found)
        place.stored_ns = found[-1].time_ns
        place.read = max(place.read, place.stored)
        return news

    def _live(self) -> Iterator[str]:
        """Yield what the container that runs now writes, from where we are."""
        replicas = self._replicas()
        if not replicas:
            return
        replica = replicas[-1].id
        place = self._places.setdefault(replica, _Place())
        skip = place.read
        rest = ""
        for piece in self._client.log_stream(self._job_id, replica):
            *lines, rest = (rest + piece).split("\n")
            for line in lines:
                if skip:
                    skip -= 1
                    continue
                place.read += 1
                self._note(line)
                yield from self._shown(line + "\n")

    def _note(self, line: str) -> None:
        end = self._mark.end(line)
        # A line after the mark of an attempt is from the next one.
        self._ended_attempt = -1 if end is None else end[0]

    def _shown(self, line: str) -> Iterator[str]:
        text = self._mark.strip(line)
        if text:
            yield text


def first_ns(job: Job) -> int:
    """Return a time before which the job cannot have written anything."""
    # Clocks differ, so the log may be older than the job. From the beginning of time on, where
    # nothing is known, is more than a log store may want to be asked for.
    return 1 if job.created_at is None else int(job.created_at * 1e9) - 3600 * 10**9


def exit_code(client: Lepton, job: Job) -> int | None:
    """Return the code of the replica that failed first at the last attempt, where logs tell.

    The others are ended for it, and say so with codes of their own.
    """
    mark = _mark_of(job)
    waiting = Waiting(0.5, 0.5, timeout_s=STORE_LAG_S)
    while True:
        # Whether the server takes these words as they are is not documented.
        for text in (mark.words, ""):
            lines = client.log_page(
                job.id, start_ns=first_ns(job), end_ns=time.time_ns(), text=text
            )
            ends = [end for line in lines if (end := mark.end(line.text)) is not None]
            last = max((attempt for attempt, _ in ends), default=-1)
            failures = [code for attempt, code in ends if attempt == last and code]
            late = waiting.is_over
            if failures and (last >= job.restarts or late):
                return failures[0]
        if late:
            return None
        waiting.pause()


def _mark_of(job: Job) -> ExitMark:
    return ExitMark(job.id, job.labels.get(MARK_LABEL, ""))


def _between(line: LogLine, since: datetime | None, until: datetime | None) -> bool:
    moment = line.time_ns / 1e9
    return (since is None or moment >= since.timestamp()) and (
        until is None or moment < until.timestamp()
    )
