"""Failures that the program has not looked at, for which it ends with exit code 1.

A look is what shows the program how a job ended: `Experiment.status`, `Experiment.wait`,
`Experiment.raise_if_failed`, `Experiment.jobs`, `Job.state`; also through another object for the
same experiment, say one from `Experiment.from_title`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping
from types import FrameType

from nemo_run._experiments.ending import exit_code

_LONGEST_REASON = 300
# Not all of unittest: its mock is on the stack of programs, too.
_RUNNERS = ("_pytest.", "unittest.case", "unittest.main", "unittest.suite", "doctest")


class Failures:
    """The failed jobs of this process, by experiment and job."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Know of no failure, as in a new process."""
        self._changing = threading.Lock()
        self._seen: set[tuple[str, str]] = set()
        self._unseen: dict[tuple[str, str], str] = {}

    def note(self, experiment: str, reasons: Mapping[str, str]) -> None:
        """Take note of jobs that did not succeed, and why; those seen already do not count."""
        if not answers_for_its_jobs():
            return
        with self._changing:
            for job, reason in reasons.items():
                if (experiment, job) not in self._seen:
                    self._unseen[experiment, job] = reason
            exit_code.end_with_1(self._line())

    def saw(self, experiment: str, jobs: Iterable[str]) -> None:
        """Take note that the program knows how these jobs failed."""
        keys = [(experiment, job) for job in jobs]
        if not keys:
            return
        with self._changing:
            self._seen.update(keys)
            if any([self._unseen.pop(key, None) for key in keys]):
                exit_code.end_with_1(self._line())

    def _line(self) -> str:
        if not self._unseen:
            return ""
        (experiment, _), reason = next(iter(self._unseen.items()))
        what = " ".join(reason.split())[:_LONGEST_REASON]
        others = f" and {len(self._unseen) - 1} more" if len(self._unseen) > 1 else ""
        return (
            f"nemo_run: exit code 1: {what} (experiment {experiment}){others}, and the program "
            "ended without looking at it. Use status() or raise_if_failed(), or pass check=False."
        )


_failures = Failures()
note, saw = _failures.note, _failures.saw


def listen() -> None:
    """Prepare for a failure that is noted after the main program has ended."""
    if threading.current_thread() is not threading.main_thread() and answers_for_its_jobs():
        exit_code.listen()


# A forked child answers for what it launches itself.
os.register_at_fork(after_in_child=_failures.begin)


def answers_for_its_jobs() -> bool:
    """Tell whether this process is a program that ends when its own work is done.

    Notebooks, prompts, test runners and programs written in C that embed Python are not: a person
    has seen the failure, or the exit code says something else.
    """
    return not (_is_interactive() or _is_embedded() or _is_test_runner())


def _is_interactive() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None or hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _is_embedded() -> bool:
    # The command line of the interpreter is empty where another program has started it, and such a
    # program may end one of several interpreters, and go on.
    import _thread

    is_main = getattr(_thread, "_is_main_interpreter", lambda: True)
    return not sys.orig_argv or not is_main()


def _is_test_runner() -> bool:
    """Tell whether the main thread is running a test.

    The stack tells, not the environment: a script that a test starts inherits the latter.
    """
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_RUNNERS):
            return True
        frame = frame.f_back
    return False
