"""Print log lines to standard output."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator

from nemo_run._jobs.log_lines import for_terminal
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendUnavailableError

log = logging.getLogger(__name__)

Lines = Callable[[bool], Iterator[bytes]]
"""Yields the lines that were not read yet; if told to follow, until the end of the log."""


def show(text: str) -> None:
    sys.stdout.write(for_terminal(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def show_lines(
    read: Lines,
    *,
    lines: int,
    follow: bool,
    timeout_s: float,
    ended: Callable[[], bool],
) -> None:
    """Print the last ``lines`` of a log, and with ``follow`` what comes until its end.

    A log that is not there yet is waited for, up to ``timeout_s``.
    """
    waiting = Waiting(0.2, 2, timeout_s=timeout_s)
    last: deque[bytes] = deque(maxlen=lines)
    while True:
        # Asked first: what is there after the end is all there will be.
        over = ended()
        try:
            last.extend(read(False))
        except BackendUnavailableError as err:
            if not follow:
                raise
            log.debug("the log cannot be had yet: %s", err)
        if last or over or waiting.is_over:
            break
        waiting.pause()
    show(b"".join(last).decode("utf-8", "replace"))
    if follow and not over:
        for line in read(True):
            show(line.decode("utf-8", "replace"))
