"""The log of one replica of a Lepton job, over all its attempts, while it runs and afterwards.

There are two sources. A stream has what a container writes as it writes it, and is gone with it;
it may be cut at any time. The log store keeps lines, with their times, and is some seconds late.
Both have the same lines in the same order, so the number of those that were read is the place
where to go on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime

from nemo_run._clients.lepton import Job, Lepton, LogLine, Replica
from nemo_run.core.execution._lepton_script import ExitMark
from nemo_run.exceptions import BackendUnavailableError

ENDED = frozenset({"Completed", "Failed", "Stopped", "Archived", "Deleted"})
"""States in which nothing is written any more."""

STORE_LAG_S = 5.0
"""How long to wait for the last lines of a job that has ended."""


class JobLog:
    """The log of replica ``index``."""

    def __init__(self, client: Lepton, job_id: str, index: int) -> None:
        self._client = client
        self._job_id = job_id
        self._mine = re.compile(rf"-{index}(?:-|$)")
        self._mark = ExitMark(job_id)
        self._read: dict[str, int] = {}
        self._complete = False

    def read(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[str]:
        """Yield the lines there are now."""
        job = self._client.job(self._job_id)
        yield from self._stored(job, since, until, settle=job.state in ENDED)

    def follow(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[str]:
        """Yield lines as they come, until the job has ended and all were read."""
        while True:
            # Asked first: what is read after a job has ended is all there is.
            job = self._client.patiently(lambda: self._client.job(self._job_id))
            ended = job.state in ENDED
            try:
                yield from self._stored(job, since, until, settle=ended)
                if ended or (until is not None and time.time() > until.timestamp()):
                    return
                yield from self._live()
            except BackendUnavailableError:
                pass  # the next question waits until there is an answer
            time.sleep(0.2)

    def end(self) -> tuple[int, int] | None:
        """Return when (in ns) and with which code the last attempt ended, where its log tells."""
        replicas = self._replicas()
        deadline = time.monotonic() + STORE_LAG_S
        while replicas:
            found = self._client.log_page(
                self._job_id,
                replicas[-1].id,
                start_ns=1,
                end_ns=time.time_ns(),
                text=self._mark.text,
            )
            for line in reversed(found):
                if (code := self._mark.code(line.text)) is not None:
                    return line.time_ns, code
            if time.monotonic() > deadline:
                return None
            time.sleep(0.5)
        return None

    def _replicas(self) -> list[Replica]:
        found = self._client.replicas(self._job_id)
        return [r for r in found if self._mine.match(r.id.removeprefix(self._job_id))]

    def _stored(
        self, job: Job, since: datetime | None, until: datetime | None, *, settle: bool
    ) -> Iterator[str]:
        deadline = time.monotonic() + STORE_LAG_S
        while True:
            replicas = self._replicas()
            for replica in replicas:
                lines = self._all_lines(job, replica)
                for line in lines[self._read.get(replica.id, 0) :]:
                    self._read[replica.id] = self._read.get(replica.id, 0) + 1
                    self._note(line.text)
                    if _between(line, since, until):
                        yield from self._shown(line.text + "\n")
            # One that was told to stop may not have come to its end; others say when they have.
            if not settle or self._complete or job.state not in ("Completed", "Failed"):
                return
            if time.monotonic() > deadline:
                return
            time.sleep(0.5)

    def _all_lines(self, job: Job, replica: Replica) -> list[LogLine]:
        start = int((job.created_at or 1) * 1e9) - 60 * 10**9
        return self._client.log(
            self._job_id, replica.id, start_ns=max(start, 1), end_ns=time.time_ns()
        )

    def _live(self) -> Iterator[str]:
        """Yield what the container that runs now writes, from where we are."""
        replicas = self._replicas()
        if not replicas:
            return
        replica = replicas[-1].id
        skip = self._read.get(replica, 0)
        rest = ""
        for piece in self._client.log_stream(self._job_id, replica):
            *lines, rest = (rest + piece).split("\n")
            for line in lines:
                if skip:
                    skip -= 1
                    continue
                self._read[replica] = self._read.get(replica, 0) + 1
                self._note(line)
                yield from self._shown(line + "\n")

    def _note(self, line: str) -> None:
        self._complete = self._mark.code(line) is not None

    def _shown(self, line: str) -> Iterator[str]:
        text = self._mark.strip(line)
        if text:
            yield text


def _between(line: LogLine, since: datetime | None, until: datetime | None) -> bool:
    moment = line.time_ns / 1e9
    return (since is None or moment >= since.timestamp()) and (
        until is None or moment < until.timestamp()
    )
