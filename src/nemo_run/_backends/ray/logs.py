"""The log of a job on a Ray cluster, while it runs and afterwards."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nemo_run._backends.ray.client import BACKEND, Job, RayJobs
from nemo_run._backends.ray.marks import Marks
from nemo_run._transport.http import Stream
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendError, BackendUnavailableError, JobNotFoundError

PATIENCE_S = 180.0
"""How long a log is followed while the cluster cannot be reached."""
PAUSES_S = (0.2, 5.0)
TAIL_LINES = 3


@dataclass
class JobLog:
    """The log of one job. Its bytes are counted: after an outage reading goes on where it was."""

    client: RayJobs
    job_id: str
    nonce: str

    def __post_init__(self) -> None:
        self._marks = Marks(self.nonce)
        self._bytes_read = 0
        self._heard_at = time.monotonic()

    def read(self) -> Iterator[bytes]:
        """Yield what there is now."""
        job = self._job()
        yield from self._now(job)
        yield from self._end(job)

    def follow(self) -> Iterator[bytes]:
        """Yield lines as they come, until the job has ended and all were read.

        Raises:
            BackendUnavailableError: the cluster could not be asked for some minutes.
        """
        waiting = Waiting(*PAUSES_S)
        while True:
            try:
                # Asked first: what is read after a job has ended is all there is.
                job = self._job()
                if job.has_ended:
                    if not self._marks.finished:
                        yield from self._now(job)
                    yield from self._end(job)
                    return
                if job.node and not self._marks.finished:
                    yield from self._live(job)
                    waiting.restart()
            except BackendUnavailableError:
                if time.monotonic() - self._heard_at > PATIENCE_S:
                    raise
            waiting.pause()

    def _job(self) -> Job:
        job = self.client.find(self.job_id)
        self._heard_at = time.monotonic()  # a log may be followed for days
        if job is None:
            raise JobNotFoundError(
                f"{self.client.server} has no job {self.job_id} any more, and no log of it.",
                backend=BACKEND,
            )
        return job

    def _now(self, job: Job) -> Iterator[bytes]:
        if not job.node:
            return
        with contextlib.closing(self.client.log(job)) as blocks:
            yield from self._news(blocks)

    def _end(self, job: Job) -> Iterator[bytes]:
        # Of a task that Ray could not start there is what Ray says of that.
        before = self._marks.before() if job.status == "FAILED" else b""
        rest = before or self._marks.rest()
        if rest:
            yield rest

    def _live(self, job: Job) -> Iterator[bytes]:
        """Yield what comes, until the job has ended or its log breaks off."""
        with contextlib.closing(self.client.log(job, follow=True)) as stream:
            came = Arrivals(stream)

            def has_ended() -> bool:
                return self._job().has_ended

            yield from self._news(came.until(has_ended))

    def _news(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what was not read before of a log that comes from its beginning."""
        skip = self._bytes_read
        for block in blocks:
            self._heard_at = time.monotonic()
            news = block[skip:]
            skip = max(0, skip - len(block))
            self._bytes_read += len(news)
            text = self._marks.feed(news)
            if text:
                yield text
            if self._marks.finished:
                return


class Arrivals:
    """Reads a stream in a thread, so that its silence can be looked into."""

    def __init__(self, stream: Stream) -> None:
        self._queue: queue.Queue[bytes | BackendError | None] = queue.Queue(maxsize=64)
        self._stream = stream
        self._wanted = True
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        last: BackendError | None = None
        try:
            for block in self._stream:
                self._put(block)
        except BackendError as err:
            last = err
        except (OSError, ValueError, AttributeError):
            pass  # closed while it was read
        self._put(last)

    def _put(self, item: bytes | BackendError | None) -> None:
        while self._wanted:
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=0.5)
                return

    def until(self, has_ended: Callable[[], bool]) -> Iterator[bytes]:
        """Yield blocks; ``has_ended`` is asked whenever none came for a while."""
        pause_s, most_s = PAUSES_S
        try:
            while True:
                try:
                    item = self._queue.get(timeout=pause_s)
                except queue.Empty:
                    pause_s = min(pause_s * 1.5, most_s)
                    if has_ended():
                        return
                    continue
                if item is None:
                    return
                if isinstance(item, BackendError):
                    raise item
                pause_s = PAUSES_S[0]
                yield item
        finally:
            self._wanted = False


def tries_of(client: RayJobs, job: Job, nonce: str) -> int:
    """Return how many tries a job that has ended had, by the end of its log; 0 for unknown."""
    marks = Marks(nonce)
    try:
        with contextlib.closing(client.log(job, lines=TAIL_LINES)) as blocks:
            for block in blocks:
                marks.feed(block)
    except BackendError:
        return 0
    return marks.tries
