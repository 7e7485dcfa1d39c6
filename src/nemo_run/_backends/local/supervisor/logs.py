"""The logs of a replica, what we write there, and when they had which length."""

# ruff: noqa: PTH118, PTH211

from __future__ import annotations

import os
import time

from .files import Files
from .records import Spec

CLOCKS = (
    (b"combined.log", "clock"),
    (b"stdout.log", "clock.stdout"),
    (b"stderr.log", "clock.stderr"),
)
CLOCK_S = 1.0
TICK_S = 0.01
"""How far the time of a file may be behind the clock: the system looks at that now and then."""
ROUND_UP_S = 0.00049


def open_logs(directory: bytes, *, separate: bool) -> list[int]:
    """Open the files for standard output and standard error; make the links beside them."""
    if separate:
        stdout = _open_log(os.path.join(directory, b"stdout.log"))
        try:
            return [stdout, _open_log(os.path.join(directory, b"stderr.log"))]
        except OSError:
            os.close(stdout)
            raise
    log = _open_log(os.path.join(directory, b"combined.log"))
    for name in (b"stdout.log", b"stderr.log"):
        try:
            os.symlink(b"combined.log", os.path.join(directory, name))
        except OSError:
            continue  # it is there, or there are no links here: combined.log has everything
    try:
        return [log, os.dup(log)]
    except OSError:
        os.close(log)
        raise


def _open_log(path: bytes, mode: int = os.O_WRONLY) -> int:
    return os.open(path, mode | os.O_APPEND | os.O_CREAT, 0o644)


def announce(directory: bytes, spec: Spec, number: int) -> None:
    """Separate the output of an attempt from that of the one before."""
    line = f"----- nemo_run: attempt {number} of {spec.retries + 1} -----\n".encode()
    for name in (b"stdout.log", b"stderr.log") if spec.separate else (b"combined.log",):
        log = _open_log(os.path.join(directory, name), os.O_RDWR)
        try:
            size = os.fstat(log).st_size
            ends_a_line = size == 0 or os.pread(log, 1, size - 1) == b"\n"
            os.write(log, line if ends_a_line else b"\n" + line)
        except OSError:
            continue  # a full disk: the program will say so itself
        finally:
            os.close(log)


class LogClock:
    """Notes how long the logs were when, so that their lines can be chosen by time.

    Each log has a file of its own for that. A line ``<seconds since the epoch> <bytes>`` says that
    so many bytes were written by then. The times never decrease. Without room for it, or without a
    supervisor, it pauses.
    """

    def __init__(self, files: Files) -> None:
        self.hands = [_Hand(files, log, clock) for log, clock in CLOCKS]
        self.due = 0.0  # monotonic

    def rest_s(self) -> float:
        """How long it is until the next look."""
        return self.due - time.monotonic()

    def look(self, *, always: bool = False) -> None:
        """Note a change of a log if it is time to look; ``always`` for a line in any case."""
        if self.rest_s() > 0 and not always:
            return
        self.hands = [hand for hand in self.hands if hand.look(always)]
        self.due = time.monotonic() + CLOCK_S if self.hands else float("inf")


class _Hand:
    """Notes how long one log was when."""

    def __init__(self, files: Files, log: bytes, clock: str) -> None:
        self.files = files
        self.log = os.path.join(files.directory, log)
        self.clock = clock
        self.noted_bytes: int | None = None  # not known before the last line was read
        self.looked_at = 0.0

    def look(self, always: bool) -> bool:
        """Note a change, if there was one; False if there is no such log, or only a link."""
        try:
            stat = os.lstat(self.log)
            if stat.st_mode & 0o170000 == 0o120000:
                return False
            self._note(stat, always)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a full disk: choosing by time is less exact, and that is all
        return True

    def _note(self, stat: os.stat_result, always: bool) -> None:
        if self.noted_bytes is None:
            self.looked_at, self.noted_bytes = self._last_line()
        now = time.time()
        changed = stat.st_size != self.noted_bytes
        if changed or always:
            # The last byte was written when the log was modified: since the look before, and by
            # now, whatever the clock of a file server says. That clock is a tick behind at most.
            modified = min(stat.st_mtime + TICK_S, now)
            when = max(self.looked_at, modified if changed else now)
            # Lines of 32 bytes never cross a block, so no reader sees half of one.
            self._append(b"%14.3f %16d\n" % (when + ROUND_UP_S, stat.st_size))
            self.noted_bytes = stat.st_size
        self.looked_at = max(self.looked_at, now)

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        fd = os.open(self.clock, flags, 0o644, dir_fd=self.files.fd)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)

    def _last_line(self) -> tuple[float, int]:
        lines = (self.files.read(self.clock) or b"").splitlines()
        try:
            when, size = lines[-1].split()
            return float(when), int(size)
        except (IndexError, ValueError):  # it is new, or the machine went down while it was written
            return 0.0, -1
