"""Logs of several jobs at once, line by line."""

from __future__ import annotations

import collections
import functools
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nemo_run._experiments.conductor.direct import SUFFIX, is_direct
from nemo_run._experiments.store import launcher
from nemo_run._jobs.shown_text import for_terminal, in_message
from nemo_run._shell import as_word
from nemo_run.cli.terminal.screen import CYAN, Screen
from nemo_run.cli.terminal.standard_output import ReaderGoneError
from nemo_run.exceptions import NemoRunError
from nemo_run.run.experiment import Experiment
from nemo_run.run.torchx_backend.runner import get_runner

_LOOK_S = 0.2


@dataclass(frozen=True)
class Selection:
    """Which lines are wanted."""

    follow: bool = False
    pattern: re.Pattern[str] | None = None
    since: datetime | None = None
    tail: int | None = None
    raw: bool = False


class LogPrinter:
    """Prints logs of an experiment's jobs to stdout, side by side when following."""

    def __init__(
        self, experiment: Experiment, selection: Selection, *, named: bool, as_json: bool
    ) -> None:
        self._experiment = experiment
        self._selection = selection
        self._named = named
        self._as_json = as_json
        self._screen = Screen()
        self._careful = sys.stdout.isatty() and not selection.raw
        self._printing = threading.Lock()
        self._looking = threading.Lock()
        self._errors: list[str] = []
        self._orphans: set[str] = set()
        self._unread = False
        self._runner = get_runner()

    def print(self, jobs: Sequence[int]) -> int:
        """Print the logs of the jobs at these positions; return 1 if one could not be had."""
        self._each([functools.partial(self._print_job, index) for index in jobs])
        if self._unread:
            raise ReaderGoneError
        for error in self._errors:
            print(f"Error: {in_message(error)}", file=sys.stderr)
        return 1 if self._errors else 0

    def _each(self, actions: Sequence[Callable[[], None]]) -> None:
        """Do things one after the other or, following, at once: each may take as long as a job."""
        if len(actions) == 1 or not self._selection.follow:
            for action in actions:
                action()
            return
        threads = [threading.Thread(target=action, daemon=True) for action in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not self._unread:
                thread.join(0.2)  # in steps, so that Ctrl-C is heard

    def _print_job(self, index: int) -> None:
        job = self._experiment.jobs[index]
        try:
            handles = self._handles(index)
            if not handles and job.id not in self._orphans:
                print(
                    f"{in_message(job.id)} has not been started, so it has no log.", file=sys.stderr
                )
            numbers = [str(number) for number in range(len(handles))] if handles[1:] else [""]
            self._each(
                [
                    functools.partial(self._emit, job.id, "/".join(filter(None, place)), lines)
                    for number, handle in zip(numbers, handles, strict=False)
                    for *place, lines in ((number, *log) for log in self._logs(job, handle))
                ]
            )
        except (NemoRunError, OSError) as err:
            self._errors.append(f"no log of {job.id}: {err}")

    def _handles(self, index: int) -> list[str]:
        """Return the handles of a job; following, wait until it has one or has ended without."""
        while True:
            with self._looking:
                statuses = list((self._experiment.status(return_dict=True) or {}).values())
            job = self._experiment.jobs[index]
            handles = list(getattr(job, "handles", None) or [job.handle])
            found = [handle for handle in handles if handle]
            ended = statuses[index]["status"].name in ("SUCCEEDED", "FAILED", "CANCELLED")
            if found or ended or not self._selection.follow:
                return found
            gone = launcher.is_gone(self._experiment._exp_dir)  # False before it was there
            if gone and self._experiment._watch.is_abandoned():
                self._orphans.add(job.id)
                self._errors.append(
                    f"{job.id} {launcher.WAITS}. Go on with: "
                    f"nemorun experiment resume {as_word(self._experiment._id)}"
                )
                return []
            time.sleep(_LOOK_S)

    def _logs(self, job: Any, handle: str) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the log of each replica, with its name where there are several."""
        if is_direct(handle):
            path = Path(job.executor.job_dir) / f"log_{job.id}{SUFFIX}.out"
            yield "", path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
            return
        scheduler, app_id = self._runner.scheduler_of(handle)
        app = self._runner.describe(handle)
        replicas = (
            [(role.name, k) for role in app.roles for k in range(role.num_replicas)] if app else []
        )
        for role, k in replicas:
            lines = scheduler.log_iter(
                app_id, role, k, since=self._selection.since, should_tail=self._selection.follow
            )
            yield ("" if len(replicas) == 1 else f"{role}/{k}"), lines

    def _chosen(self, lines: Iterable[str]) -> Iterable[str]:
        pattern = self._selection.pattern
        if pattern is not None:
            lines = (line for line in lines if pattern.search(line))
        return (
            lines
            if self._selection.tail is None
            else collections.deque(lines, self._selection.tail)
        )

    def _emit(self, job: str, place: str, lines: Iterable[str]) -> None:
        name = "/".join(filter(None, (job if self._named else "", place)))
        name = in_message(name) if self._careful else name
        prefix = self._screen.style(f"{name} ", CYAN) if name else ""
        try:
            for line in self._chosen(lines):
                text = line.rstrip("\n")
                if self._as_json:
                    entry = {"job": job, "replica": place, "line": text}
                    text = json.dumps(entry, ensure_ascii=False)
                else:
                    text = prefix + (for_terminal(text) if self._careful else text)
                with self._printing:
                    print(text, flush=self._selection.follow)
        except ReaderGoneError:
            self._unread = True  # the reader has gone
        except NemoRunError as err:
            self._errors.append(f"no log of {job}: {err}")
