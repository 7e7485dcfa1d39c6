"""Give this process exit code 1 in place of 0, after everything else in it has ended.

Python asks no function for the exit code: what an ``atexit`` function raises is only printed, and
one that calls ``os._exit`` keeps those registered before it (logging, coverage), the finalisers and
the buffers of open files from their end. So the object that Python deletes last is ours. It sits in
the namespace of ``sys``, which the interpreter clears when the ``atexit`` functions have run, the
streams are flushed and the modules are gone. Its finaliser ends the process.

1. ``atexit`` functions, finalisers and buffers are Python's: each runs once, in the usual order.
2. An exit code other than 0 stays, and so does an end by Ctrl-C.
3. ``os._exit``, signals and ``exec`` end the process as ever.
4. A forked child has an exit code of its own.

The exit code is a variable of the interpreter's C code. From Python 3.12 on ``sys.monitoring``
tells which exception left the main program. Before, the process forks when all else is done: the
copy takes the few steps that are left and ends with the exit code, so that the process learns it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

_PLACE = "nemo_run_exit_code"

# Not known to the oldest Python, for which types are checked.
_monitoring: Any = getattr(sys, "monitoring", None)


def end_with_1(line: str) -> None:
    """Print a line and end with 1 when this process ends, if it would have ended with 0.

    Replaces the line of an earlier call; an empty one takes it back.
    """
    if line:
        listen()
    _last().line = f"{line}\n".encode("utf-8", "replace") if line else b""


def listen() -> None:
    """Begin to notice how the main program ends.

    `end_with_1` does so, too; a thread that may live longer than the main program does it first.
    """
    last = _last()
    main = _main_code()
    if isinstance(last, _Told) and main is not None and not last.listens:
        last.listens = True
        _hear(main)


class _Last:
    """What Python deletes last. The finaliser uses no module, since they are empty by then."""

    def __init__(self) -> None:
        self.line = b""
        self.failed = False
        self._pid, self._getpid = os.getpid(), os.getpid
        self._is_finalizing = sys.is_finalizing
        self._write = os.write
        self._leave: Callable[[int], Any] = os._exit

    def is_of_this_process(self) -> bool:
        return self._getpid() == self._pid

    def __del__(self) -> None:
        if not (self.line and self._is_finalizing() and self.is_of_this_process()):
            return
        if self._fails_anyway():
            return
        try:
            self._write(2, self.line)
        finally:  # also of a process without stderr
            self._leave(1)

    def _fails_anyway(self) -> bool:
        """Tell whether the exit code is not 0 without this, as far as it is known."""
        return self.failed


class _Told(_Last):
    """Is told which exception left the main program."""

    def __init__(self) -> None:
        super().__init__()
        self.listens = False
        self._leave = _exit_of_c() or os._exit


class _Copied(_Last):
    """Lets a copy of the process end, to see how."""

    PATIENCE_S = 30.0
    PAUSE_S = 0.002

    def __init__(self) -> None:
        super().__init__()
        self._fork, self._kill = os.fork, os.kill
        self._waitpid, self._at_once = os.waitpid, os.WNOHANG
        self._code_in = os.waitstatus_to_exitcode
        self._now, self._sleep = time.monotonic, time.sleep
        self._signal, self._default = signal.signal, signal.SIG_DFL
        self._interrupted, self._killed = signal.SIGINT, signal.SIGKILL

    def _fails_anyway(self) -> bool:
        try:
            copy = self._fork()
        except OSError:  # neither memory nor process for it
            return False
        if copy == 0:
            return True
        code = self._end_of(copy)
        if code == -self._interrupted:
            self._signal(self._interrupted, self._default)
            self._kill(self._pid, self._interrupted)
        if code > 0:
            # Not by returning: what C code has registered for the end has run in the copy.
            self._leave(code)
        return False

    def _end_of(self, copy: int) -> int:
        """Return the exit code of the copy, or -N for signal N; 0 where it cannot be had."""
        deadline = self._now() + self.PATIENCE_S
        try:
            while self._now() < deadline:
                ended, status = self._waitpid(copy, self._at_once)
                if ended:
                    return self._code_in(status)
                self._sleep(self.PAUSE_S)
            # It waits for a thread that was not copied.
            self._kill(copy, self._killed)
            self._waitpid(copy, 0)
        except OSError:  # another part of the program has waited for it
            pass
        return 0


def _last() -> _Last:
    # Kept nowhere else: another reference would keep it alive when the namespace is cleared.
    found = vars(sys).get(_PLACE)
    if not isinstance(found, _Last) or not found.is_of_this_process():
        found = _Copied() if _monitoring is None else _Told()
        vars(sys)[_PLACE] = found
    return found


def _main_code() -> CodeType | None:
    """Return the code at the bottom of the main thread's stack: that of the main program."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return None if frame is None else frame.f_code


def _hear(main: CodeType) -> None:
    """Take note of each exception that leaves the main program."""

    def left(code: CodeType, offset: int, error: BaseException) -> None:
        # Asked for every frame that an exception leaves; the object is looked up, not kept.
        if code is main:
            _last().failed = not isinstance(error, SystemExit) or _is_failure(error.code)

    event = _monitoring.events.PY_UNWIND
    # The first three and the last are meant for debuggers, coverage, profilers and optimisers.
    for tool in (3, 4, 2, 1, 0, 5):
        if _monitoring.get_tool(tool) is None:
            _monitoring.use_tool_id(tool, "nemo_run")
            _monitoring.register_callback(tool, event, left)
            _monitoring.set_events(tool, event)
            return


def _is_failure(code: Any) -> bool:
    # The system keeps the lowest byte; what is no number is printed, and means 1.
    return code is not None and not (isinstance(code, int) and code & 0xFF == 0)


def _exit_of_c() -> Callable[[int], Any] | None:
    """Return C's ``exit``, which writes what C code has buffered and calls its exit functions."""
    try:
        import ctypes

        # Not CDLL, which would let daemon threads in.
        return ctypes.PyDLL(None).exit
    except (ImportError, OSError, AttributeError):
        return None
