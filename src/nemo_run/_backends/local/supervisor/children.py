"""Children of a supervisor that have ended: how, and what they used, as the kernel counts it."""

# ruff: noqa: PTH123

from __future__ import annotations

import os
import time

PATIENCE_S = 0.5


class Children:
    """Collects what has ended below this process.

    Attributes:
        reaped: exit codes of the latest attempt's processes, negative for a signal.
        cpu_s: processor time of the processes of all attempts, with the children they waited for.
        peak_kib: the most memory that one process had.
    """

    def __init__(self) -> None:
        self.reaped: dict[int, int] = {}
        self.keeper_pid = -1
        self.cpu_s: float | None = None
        self.peak_kib: int | None = None

    def reap(self) -> bool:
        """Collect children that have ended; True if none is left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self.reaped[pid] = os.waitstatus_to_exitcode(status)
            if pid != self.keeper_pid:
                self.cpu_s = (self.cpu_s or 0.0) + used.ru_utime + used.ru_stime
                self.peak_kib = max(self.peak_kib or 0, used.ru_maxrss)

    def wait_for(self, task: int) -> None:
        """Wait for a task to become our child: its keeper wrote down the end, and leaves now."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.reap() and task not in self.reaped:
            if time.monotonic() > deadline:
                return  # only its processor time stays unknown
            time.sleep(0.001)


def oom_kills() -> int:
    """Return how many processes the kernel has killed for want of memory since it was started."""
    try:
        with open("/proc/vmstat", "rb") as file:
            words = file.read().split()
        return int(words[words.index(b"oom_kill") + 1])
    except (OSError, ValueError, IndexError):
        return 0
