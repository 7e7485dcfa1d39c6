"""The keeper of one attempt, and the task it starts."""

from __future__ import annotations

import errno
import os
import time

from .decide import End, decide
from .disk import find_program, patiently, say, trouble
from .files import Files
from .processes import MARK, Process, become_subreaper, birth_of, end_processes
from .records import Spec, Status
from .slots import Slots

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from typing import NoReturn
else:
    import _signal as signal

ATTEMPT = b"NEMO_RUN_ATTEMPT"


class Keeper:
    """Stays with one attempt: a fork of the supervisor that shares no fate with it."""

    def __init__(self, files: Files, status: Status, spec: Spec, number: int, slots: Slots) -> None:
        self.files = files
        self.status = status
        self.spec = spec
        self.number = number
        self.slots = slots

    def run(self, logs: Sequence[int], writer: int) -> NoReturn:
        """Start the task, wait for its end, write it down; say to ``writer`` if it cannot start."""
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            _set_signals(signal.SIG_IGN)
            _set_signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            # What the task leaves stays below us even if the supervisor is killed meanwhile.
            become_subreaper()
            keeper = Process(os.getpid(), birth_of(os.getpid()))
            pid = os.fork()
            if pid == 0:
                self._become_task(logs, writer, keeper)
            for fd in (writer, *logs):
                os.close(fd)
            code = _exit_code_of(pid)
            # Before anything that takes time: only we know the code, and we may be killed.
            patiently(lambda: self.files.record_exit(self.number, code))
            if os.getppid() != self.status.supervisor.pid:
                patiently(lambda: self._end_what_is_left(keeper))
        except FileNotFoundError:
            pass  # it never started, and has said why
        except OSError as error:
            say(writer, trouble(error))
        finally:
            os._exit(0)

    def _end_what_is_left(self, keeper: Process) -> None:
        """End what only we know of: our supervisor was killed, and the next is none of its parents.

        With a supervisor above us it is the supervisor that does this, after we left.
        """
        last = self.files.last_attempt()
        if last is None or last.number != self.number:
            return
        step = decide(self.status, last, self.files.cancelled_at(), alive=False)
        if isinstance(step, End) and step.state == "succeeded":
            return
        end_processes(
            last.task,
            self.status.token,
            self.files.grace_s(self.status),
            above=(keeper,),
            trust_group=True,
            below_us=False,
            wait=_wait_and_reap,
        )

    def _become_task(self, logs: Sequence[int], writer: int, keeper: Process) -> NoReturn:
        spec = self.spec
        env = {**spec.env, **self.slots.env}
        env[MARK] = self.status.token.encode()
        env[ATTEMPT] = b"%d" % self.number
        try:
            os.setsid()
            _set_signals(signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(logs[0], 1)
            os.dup2(logs[1], 2)
            if spec.umask is not None:
                os.umask(spec.umask)
            os.chdir(spec.cwd)
            program = find_program(spec.argv[0], env)
            # The last look: a request that comes later finds an attempt that started, and ends it.
            if self.files.cancelled_at() is None:
                names = b" ".join(self.slots.names).decode("utf-8", "replace")
                streams = (1, 2) if spec.separate else (1,)
                log_from = [os.fstat(stream).st_size for stream in streams]
                # Before execve: an attempt of which this is not on disk has run no line of the
                # program, and may be started again.
                self.files.record_start(self.number, keeper, names, log_from)
                _execute(program, spec.argv, env)
        except OSError as error:
            say(writer, trouble(error))
        finally:
            os._exit(125)


def _execute(program: bytes, argv: list[bytes], env: dict[bytes, bytes]) -> NoReturn:
    """Become the program. From here on what goes wrong is the attempt's, as in a shell."""
    try:
        os.execve(program, argv, env)
    except OSError as error:
        say(2, f"nemo_run: cannot run {os.fsdecode(program)!r}: {error.strerror}\n")
        os._exit(127 if error.errno == errno.ENOENT else 126)


def _exit_code_of(pid: int) -> int:
    if not hasattr(os, "waitid"):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    while True:
        # Not reaped here: if we are killed before the code is written the supervisor still gets it.
        result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if result is None:
            raise ChildProcessError
        if result.si_pid == pid:
            return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
        os.waitpid(result.si_pid, 0)  # one that the task left


def _wait_and_reap(seconds: float) -> None:
    time.sleep(seconds)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


def _set_signals(handler: signal.Handlers) -> None:
    for signum in range(1, signal.NSIG):
        if signum not in (signal.SIGKILL, signal.SIGSTOP):
            _set_signal(signum, handler)


def _set_signal(signum: int, handler: signal.Handlers) -> None:
    try:
        signal.signal(signum, handler)
    except (OSError, ValueError):
        return  # reserved by the C library
