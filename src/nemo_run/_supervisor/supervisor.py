"""The supervisor: brings a replica to its end from wherever it is."""

# ruff: noqa: PTH110, SIM105

from __future__ import annotations

import errno
import os
import select
import time

from .decide import End, Start, decide
from .disk import explain, read_all
from .files import CANCEL, KEEPER_LOCK, SPEC, Files
from .keeper import Keeper
from .logs import LogClock, announce, open_logs
from .processes import distance, end_processes
from .records import Attempt, Spec, Status
from .slots import Slots

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
else:
    import _signal as signal

# Waits end by events; this bounds the harm of one that is missed.
LONGEST_WAIT_S = 10.0
KEEPER_PATIENCE_S = 5.0
LAUNCH_TRIES = 5


class Cancelled(Exception):
    """The end was asked for while waiting. Not an error."""


class Supervisor:
    """Brings a replica to its end from wherever it is. Make one only while holding its lock."""

    def __init__(self, files: Files, status: Status, lock_fd: int) -> None:
        self.files = files
        self.status = status
        self.lock_fd = lock_fd
        self.slots = Slots()
        self.wake_fd = -1
        self.told_to_end = False
        # Whether the latest attempt is below us, and whether all that it starts stays below us.
        self.launched = False
        self.subreaper = False
        self.reaped: dict[int, int] = {}
        self.clock = LogClock(files)

    def own_this_process(self) -> None:
        """Take signals, reap children, and inherit those of keepers that are killed."""
        self.wake_fd, writer = os.pipe()
        for fd in (self.wake_fd, writer):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._hear)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.subreaper = become_subreaper()

    def _hear(self, *_: object) -> None:
        self.told_to_end = True

    def run(self) -> None:
        """Return when the replica has ended and its end is written down."""
        number = tries = 0
        while True:
            last = self._watch()
            step = decide(self.status, last, self.files.cancelled_at(), alive=False)
            if last is not None and not (isinstance(step, End) and step.state == "succeeded"):
                # What a failed program leaves running would be in the way of the next attempt, or
                # of whoever gets the slots. What a successful one leaves is left on purpose.
                self._end(last, thoroughly=True)
            if last is not None:
                self.clock.look(always=True)
            self.slots.release()
            assert step is not None, "nothing of the attempt is alive"
            if isinstance(step, End):
                self._finish(step, last)
                return
            tries = tries + 1 if step.number == number else 1
            number = step.number
            try:
                failure = self._start(step, last)
            except Cancelled:
                continue
            except OSError as error:
                failure = explain(error)
            if not failure and tries > LAUNCH_TRIES:
                failure = "it was killed again and again before the program could be executed"
            if failure:
                failure = f"attempt {step.number} could not be started: {failure}"
                self._finish(End("failed", None, failure), None)
                return

    def _finish(self, end: End, last: Attempt | None) -> None:
        status = self.status
        status.state, status.exit_code, status.message = end.state, end.exit_code, end.message
        status.pid = None
        status.ended_at = time.time()
        if last is not None:
            status.attempt, status.started_at = last.number, last.started_at
            status.ended_at = last.ended_at or status.ended_at
        self.files.write_status(status)
        self.files.tidy()

    def _say(self, state: str, message: str, attempt: Attempt | None = None) -> None:
        status = self.status
        status.state, status.message, status.pid = state, message, None
        if attempt is not None:
            status.attempt, status.exit_code = attempt.number, attempt.exit_code
            status.started_at, status.ended_at = attempt.started_at, attempt.ended_at
            status.pid = attempt.task.pid if state == "running" else None
        try:
            self.files.write_status(status)
        except OSError as error:
            # Only news: what matters is in the attempts' files.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _wait(self, timeout_s: float, fds: Sequence[int] = ()) -> bool:
        """Sleep until something may have changed; False if nothing told us so."""
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        poll.register(self.wake_fd, select.POLLIN)
        # Rounded up: to wake a little too early is to wake twice.
        told = poll.poll(max(1, -int(-min(timeout_s, LONGEST_WAIT_S) * 1000 // 1)))
        # Only here: a signal heard while we look at things makes us look again.
        try:
            os.read(self.wake_fd, 4096)
        except BlockingIOError:
            pass
        self._reap()
        if self.told_to_end:
            self.told_to_end = False
            self.files.request_cancel(None)
        return bool(told)

    def _wait_beside_task(self, timeout_s: float, fds: Sequence[int] = ()) -> None:
        """The same while an attempt runs, with a look at its log now and then."""
        deadline = time.monotonic() + min(timeout_s, LONGEST_WAIT_S)
        while True:
            self.clock.look()
            rest_s = min(deadline - time.monotonic(), self.clock.rest_s())
            if self._wait(rest_s, fds) or time.monotonic() >= deadline:
                return

    def _wait_unless_cancelled(self, fds: Sequence[int], timeout_s: float = LONGEST_WAIT_S) -> None:
        # Asked on both sides of the wait, since the signal may have come before it.
        if self.files.cancelled_at() is None:
            self._wait(timeout_s, fds)
        if self.files.cancelled_at() is not None:
            raise Cancelled

    def _reap(self) -> bool:
        """Collect children that have ended; True if none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self.reaped[pid] = os.waitstatus_to_exitcode(status)

    def _watch(self) -> Attempt | None:
        """Stay with the latest attempt until it has ended, ending it if need be; return it."""
        patience_ends: float | None = None
        while True:
            keeper_lock = self.files.try_lock(KEEPER_LOCK)
            last = self.files.last_attempt()
            if keeper_lock is not None:
                self.files.unlock(keeper_lock)
                if last is None or last.exit_code is not None:
                    return last
                if not self._outlives_keeper(last):
                    return self.files.last_attempt()
            if last is not None and last.exit_code is None and self._is_to_end(last):
                self._end(last, thoroughly=False)
                now = time.monotonic()
                patience_ends = patience_ends or now + KEEPER_PATIENCE_S
                if now > patience_ends:
                    # Nothing is left, so the keeper has a code to write but does not: stopped?
                    last.keeper.send(signal.SIGKILL)
            self._wait_for_change(last, keeper_gone=keeper_lock is not None)

    def _outlives_keeper(self, last: Attempt) -> bool:
        """Whether an attempt whose keeper is gone still runs; if not, record its end if we can."""
        running = last.is_running()  # before reaping, so that what ends in between is not missed
        self._reap()
        code = self.reaped.get(last.task.pid) if self.launched else None
        if code is not None:
            self.files.record_exit(last.number, code)
            return False
        if running and last.slots and not self.slots.fds:
            spec = self._spec()
            if spec is not None:
                self.slots.hold_again(spec.slots_dir, last.slots)
        return running

    def _is_to_end(self, last: Attempt) -> bool:
        if self.files.cancelled_at() is not None:
            return True
        limit_s = self.status.limit_s
        if limit_s is None or time.monotonic() - last.clock_s < limit_s:
            return False
        return last.expired or self.files.record_expiry(last.number)

    def _wait_for_change(self, last: Attempt | None, *, keeper_gone: bool) -> None:
        if last is None or last.exit_code is not None or last.expired:
            self._wait_beside_task(
                0.01
            )  # for a keeper that is about to start its task, or about to leave
            return
        if self.files.cancelled_at() is not None:
            self._wait_beside_task(0.01)
            return
        timeout_s = LONGEST_WAIT_S
        if self.status.limit_s is not None:
            timeout_s = last.clock_s + self.status.limit_s - time.monotonic()
        if self.launched:
            self._wait_beside_task(timeout_s)  # its end comes as a signal
            return
        fd = (last.task if keeper_gone else last.keeper).open()
        if fd is None:
            self._wait_beside_task(min(timeout_s, 0.2))
            return
        try:
            self._wait_beside_task(timeout_s, [fd])
        finally:
            os.close(fd)

    def _end(self, last: Attempt, *, thoroughly: bool) -> None:
        """End everything that runs for us, and wait until it has gone."""
        below_us = self.launched and self.subreaper
        if distance(last.place) == "gone" or (below_us and self._reap()):
            return
        pid = os.getpid()
        if thoroughly or not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
            below_us = False
        grace = self.files.read(CANCEL)
        end_processes(
            last.task,
            self.status.token,
            float(grace) if grace else self.status.grace_s,
            trust_group=self.launched,
            below_us=below_us,
            wait=self._wait_beside_task,
        )

    def _spec(self) -> Spec | None:
        data = self.files.read(SPEC)
        return None if data is None else Spec(data)

    def _start(self, step: Start, last: Attempt | None) -> str:
        """Start an attempt; return why it could not be, or nothing."""
        spec = self._spec()
        if spec is None:
            return "the description of what to run is gone"
        if last is not None and last.ended_at is not None:
            pause_s = spec.pause_before(step.number)
            # The clock may have been set; the pause is never longer than it was meant to be.
            pause_s = min(pause_s, max(0.0, last.ended_at + pause_s - time.time()))
            self._say("pending", f"{step.reason}; the next one starts in {pause_s:.3g} s", last)
            resume = time.monotonic() + pause_s
            while (rest_s := resume - time.monotonic()) > 0:
                self._wait_unless_cancelled((), rest_s)
        if spec.slots:
            wanted = ", ".join(f"{slot.count} of {slot.pool.decode()}" for slot in spec.slots)
            self._say("pending", f"waits for slots: {wanted}")
            self.slots = Slots()
            self.slots.take(spec.slots_dir, spec.slots, self._wait_unless_cancelled)
        failure = self._launch(spec, step.number)
        started = self.files.last_attempt()
        if started is None or started.number != step.number:
            return failure
        self._say("running", "", started)
        return ""

    def _launch(self, spec: Spec, number: int) -> str:
        """Fork a keeper for an attempt; return when its program is executed, or why it was not."""
        while (keeper_lock := self.files.try_lock(KEEPER_LOCK)) is None:
            self._wait_unless_cancelled((), 0.01)
        opened = [keeper_lock]
        try:
            # Asked with the lock in hand: from here on a canceller sees us, or we see the request.
            if self.files.cancelled_at() is not None:
                raise Cancelled
            self.files.reserve_attempt(number)
            logs = open_logs(self.files.directory, separate=spec.separate)
            opened += logs
            if number > 1:
                announce(self.files.directory, spec, number)
            self.clock.look(always=True)
            reader, writer = os.pipe()
            opened.append(writer)
            self.launched = True
            self.reaped.clear()
            # No handler of ours may run in the child.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
            if os.fork() == 0:
                os.close(self.lock_fd)
                Keeper(self.files, self.status, spec, number, self.slots).run(logs, writer)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        finally:
            for fd in opened:
                os.close(fd)
        try:
            # It closes when the program is executed, or when nobody is left who could.
            return read_all(reader).decode("utf-8", "replace")
        finally:
            os.close(reader)


def become_subreaper() -> bool:
    """Get the children of our children when those die; False where there is no such thing."""
    prctl = find_prctl()
    return prctl is not None and prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER


_prctl: Callable[..., int] | None = None


def find_prctl() -> Callable[..., int] | None:
    """The system call of that name, where there is one."""
    global _prctl
    if _prctl is None:
        import ctypes

        try:
            _prctl = ctypes.CDLL(None).prctl
        except (OSError, AttributeError):
            return None
    return _prctl
