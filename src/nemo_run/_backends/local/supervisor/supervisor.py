"""The supervisor: brings a replica to its end from wherever it is."""

# ruff: noqa: PTH110, SIM105

from __future__ import annotations

import os
import select
import time

from .children import Children, oom_kills
from .decide import End, Start, decide
from .disk import PASSING, explain, patiently, raise_trouble, read_all
from .files import KEEPER_LOCK, SPEC, Files
from .keeper import Keeper
from .logs import LogClock, announce, open_logs
from .processes import become_subreaper, distance, end_processes
from .records import Attempt, Spec, Status
from .slots import Slots

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
else:
    import _signal as signal

# Waits end by events; this bounds the harm of one that is missed.
LONGEST_WAIT_S = 10.0
KEEPER_PATIENCE_S = 5.0
LAUNCH_TRIES = 5
TROUBLE_S = 0.2


class Cancelled(Exception):
    """The end was asked for while waiting. Not an error."""


class Supervisor:
    """Brings a replica to its end from wherever it is. Make one only while holding its lock."""

    def __init__(self, files: Files, status: Status, lock_fd: int, slots: Slots) -> None:
        self.files = files
        self.status = status
        self.lock_fd = lock_fd
        self.slots = slots
        self.wake_fd = -1
        self.told_to_end = False
        # The attempt that is to be started, and how often that was tried.
        self.trying = self.tries = 0
        # Whether the latest status is not on disk yet.
        self.unsaid = False
        # Whether the latest attempt is below us, and whether all that it starts stays below us.
        self.launched = False
        self.subreaper = False
        self.children = Children()
        self.oom_kills = oom_kills()
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
        """Return when the replica has ended and its end is written down.

        Trouble of this machine is waited out. Each step follows from what is on disk, and from exit
        codes in `reaped` that no other process has, so it can be taken again; a supervisor that
        gave up would lose those.
        """
        while True:
            try:
                if self._take_a_step():
                    return
            except OSError as error:
                if error.errno not in PASSING:
                    raise
                time.sleep(TROUBLE_S)

    def _take_a_step(self) -> bool:
        """See the latest attempt to its end, then start the next; True if there is none to be."""
        last = self._watch()
        step = decide(self.status, last, self.files.cancelled_at(), alive=False)
        if last is not None and not (isinstance(step, End) and step.state == "succeeded"):
            # What a failed program leaves running would be in the way of the next attempt, or
            # of the next holder of the slots. What a successful one leaves is left on purpose.
            self._end(last, thoroughly=True)
        if last is not None:
            self.clock.look(always=True)
        # After the last process of the attempt: the next holder finds the device free.
        self.slots.release()
        assert step is not None, "nothing of the attempt is alive"
        if isinstance(step, End):
            self._finish(step, last)
            return True
        self.tries = self.tries + 1 if step.number == self.trying else 1
        self.trying = step.number
        try:
            failure = self._start(step, last)
        except Cancelled:
            return False
        except OSError as error:
            if error.errno in PASSING:
                self.tries -= 1
                self._wait_out(error, step.number)
                return False
            failure = explain(error)
        if not failure and self.tries > LAUNCH_TRIES:
            failure = "it was killed again and again before the program could be executed"
        if failure:
            failure = f"attempt {step.number} could not be started: {failure}"
            self._finish(End("failed", None, failure), None)
        return bool(failure)

    def _wait_out(self, error: OSError, number: int) -> None:
        """Pause in trouble of this machine, and say so unless the attempt has started after all."""
        last = patiently(self.files.last_attempt)
        if last is None or last.number != number:
            self._say("pending", f"waits to be started: {explain(error)}")
        time.sleep(TROUBLE_S)

    def _finish(self, end: End, last: Attempt | None) -> None:
        self.slots.leave_queue()
        if last is not None and self.launched:
            self.children.wait_for(last.task.pid)
        status = self.status
        status.cpu_s, status.peak_kib = self.children.cpu_s, self.children.peak_kib
        status.state, status.exit_code, status.message = end.state, end.exit_code, end.message
        # 137 is what a shell gives for a child that was killed.
        if end.state == "failed" and end.exit_code in (-9, 137) and oom_kills() > self.oom_kills:
            status.message += "; a process was killed for want of memory meanwhile"
        status.pid = None
        status.ended_at = time.time()
        if last is not None:
            status.attempt, status.started_at = last.number, last.started_at
            status.ended_at = last.ended_at or status.ended_at
        patiently(lambda: self.files.write_status(status))
        # After the end is on disk: a supervisor that is killed before leaves what the next needs,
        # one that is killed in between leaves a spec, by which `inspect` sees that work is left.
        patiently(self.files.tidy)

    def _say(self, state: str, message: str, attempt: Attempt | None = None) -> None:
        status = self.status
        status.state, status.message, status.pid = state, message, None
        if attempt is not None:
            status.attempt, status.exit_code = attempt.number, attempt.exit_code
            status.started_at, status.ended_at = attempt.started_at, attempt.ended_at
            status.pid = attempt.task.pid if state == "running" else None
        try:
            self.files.write_status(status)
            self.unsaid = False
        except OSError as error:
            # Only news: what matters is in the attempts' files. `_watch` says it again.
            if error.errno not in PASSING:
                raise
            self.unsaid = True

    def _wait(self, timeout_s: float, fds: Sequence[int] = ()) -> bool:
        """Sleep until something may have changed; False if nothing told us so."""
        self._heed()
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
        self.children.reap()
        self._heed()
        return bool(told)

    def _heed(self) -> None:
        """Write down the request for the end that came as a signal."""
        if self.told_to_end:
            self.files.request_cancel(None)
            # Only now: if the disk does not take it, the next wait tries again.
            self.told_to_end = False

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
        # Patiently: to give up would lose our place in the queue for slots.
        if patiently(self.files.cancelled_at) is None:
            self._wait(timeout_s, fds)
        if patiently(self.files.cancelled_at) is not None:
            raise Cancelled

    def _watch(self) -> Attempt | None:
        """Stay with the latest attempt until it has ended, ending it if need be; return it."""
        patience_ends: float | None = None
        while True:
            # The lock first: a keeper writes the exit code before it goes, so that what is read
            # once the lock is free is the last that it wrote.
            keeper_lock = self.files.try_lock(KEEPER_LOCK)
            try:
                last = self.files.last_attempt()
            finally:
                if keeper_lock is not None:
                    self.files.unlock(keeper_lock)
            if keeper_lock is not None:
                if last is None or last.exit_code is not None:
                    return last
                if not self._outlives_keeper(last):
                    return self.files.last_attempt()
            if last is not None and last.exit_code is None:
                self._say_that_it_runs(last)
            if last is not None and last.exit_code is None and self._is_to_end(last):
                self._end(last, thoroughly=False)
                now = time.monotonic()
                patience_ends = patience_ends or now + KEEPER_PATIENCE_S
                if now > patience_ends:
                    # Nothing is left, so the keeper has a code to write but does not: stopped?
                    last.keeper.send(signal.SIGKILL)
            self._wait_for_change(last, keeper_gone=keeper_lock is not None)

    def _say_that_it_runs(self, last: Attempt) -> None:
        """Do so unless it was said: a supervisor may be killed, or its disk full, before that."""
        said = (self.status.state, self.status.attempt) == ("running", last.number)
        if self.unsaid or not said:
            self._say("running", "", last)

    def _outlives_keeper(self, last: Attempt) -> bool:
        """Whether an attempt whose keeper is gone still runs; if not, record its end if we can."""
        running = last.is_running()  # before reaping, so that what ends in between is not missed
        self.children.reap()
        code = self.children.reaped.get(last.task.pid) if self.launched else None
        if code is not None:
            patiently(lambda: self.files.record_exit(last.number, code))
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
            # For a keeper that is about to start its task, or about to leave.
            self._wait_beside_task(0.01)
            return
        if self.files.cancelled_at() is not None:
            self._wait_beside_task(0.01)
            return
        timeout_s = TROUBLE_S if self.unsaid else LONGEST_WAIT_S
        if self.status.limit_s is not None:
            timeout_s = min(timeout_s, last.clock_s + self.status.limit_s - time.monotonic())
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
        """End everything that runs for us, and wait until it has gone.

        A look below us is far cheaper than one at all processes, but is no proof that nothing is
        left: ``thoroughly`` looks at all.
        """
        below_us = self.launched and self.subreaper
        if distance(last.place) == "gone" or (below_us and self.children.reap()):
            return
        pid = os.getpid()
        if thoroughly or not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
            below_us = False
        end_processes(
            last.task,
            self.status.token,
            self.files.grace_s(self.status),
            above=(self.status.supervisor, last.keeper),
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
            self.slots.take(spec.slots_dir, spec.slots, self._wait_unless_cancelled)
        failure = self._launch(spec, step.number)
        started = patiently(self.files.last_attempt)
        if started is None or started.number != step.number:
            raise_trouble(failure)
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
            # Before the fork: on a disk that is full by then the task could not say it started.
            self.files.reserve_attempt(number)
            logs = open_logs(self.files.directory, separate=spec.separate)
            opened += logs
            if number > 1:
                announce(self.files.directory, spec, number)
            self.clock.look(always=True)
            reader, writer = os.pipe()
            opened.append(writer)
            try:
                self._fork_keeper(spec, number, logs, writer)
            except OSError:
                os.close(reader)
                raise
        finally:
            for fd in opened:
                os.close(fd)
        try:
            # It closes when the program is executed, or when no process is left that could.
            return read_all(reader).decode("utf-8", "replace")
        finally:
            os.close(reader)

    def _fork_keeper(self, spec: Spec, number: int, logs: Sequence[int], writer: int) -> None:
        # No handler of ours may run in the child.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
        try:
            self.oom_kills = oom_kills()
            self.children.keeper_pid = os.fork()
            if self.children.keeper_pid == 0:
                # The keeper may outlive us, and must not keep the next supervisor out.
                os.close(self.lock_fd)
                Keeper(self.files, self.status, spec, number, self.slots).run(logs, writer)
            self.launched = True
            # Before the first wait: the task may have the id of a process that was reaped earlier.
            self.children.reaped.clear()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
