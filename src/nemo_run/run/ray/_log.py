"""Print the log of a Ray job to standard output."""

from __future__ import annotations

from collections import deque

from nemo_run._backends.slurm.job import SubmittedJob
from nemo_run._jobs.log_lines import LogQuery, split_lines
from nemo_run._transport.waiting import Waiting
from nemo_run.run.ray._lines import show


def show_log(
    job: SubmittedJob, role: str, *, lines: int, follow: bool = False, timeout_s: float
) -> None:
    """Print the last ``lines`` of a role's log, and with ``follow`` what comes until its end.

    A log that is not there yet is waited for, up to ``timeout_s``.
    """
    logs = job.logs(role, 0)
    waiting = Waiting(0.3, 2, timeout_s=timeout_s)
    last: deque[str] = deque(maxlen=lines)
    while not last:
        seen = b"".join(logs.read(LogQuery(role=role), lambda: True))
        last.extend(split_lines(seen.decode("utf-8", "replace")))
        if last or waiting.is_over or job.has_ended():
            break
        waiting.pause()
    show("".join(last))
    if not follow:
        return
    seen_bytes = len(seen)
    query = LogQuery(role=role, follow=True)
    for block in job.logs(role, 0).read(query, job.has_ended):
        new, seen_bytes = block[seen_bytes:], max(0, seen_bytes - len(block))
        show(new.decode("utf-8", "replace"))
