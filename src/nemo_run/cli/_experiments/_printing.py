"""Logs of several jobs at once, line by line."""

from __future__ import annotations

import collections
import json
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nemo_run.cli._screen import CYAN, Screen
from nemo_run.exceptions import NemoRunError
from nemo_run.run._direct import SUFFIX, is_direct
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


class LogPrinter:
    """Prints logs of an experiment's jobs to stdout, each job by a thread of its own."""

    def __init__(
        self, experiment: Experiment, selection: Selection, *, named: bool, as_json: bool
    ) -> None:
        self._experiment = experiment
        self._selection = selection
        self._named = named
        self._as_json = as_json
        self._screen = Screen()
        self._printing = threading.Lock()
        self._looking = threading.Lock()
        self._errors: list[str] = []
        self._runner = get_runner()

    def print(self, jobs: Sequence[int]) -> int:
        """Print the logs of the jobs at these positions; return 1 if one could not be had."""
        if len(jobs) == 1 or not self._selection.follow:
            for index in jobs:
                self._print_job(index)
        else:
            threads = [
                threading.Thread(target=self._print_job, args=(index,), daemon=True)
                for index in jobs
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # in steps, so that Ctrl-C is heard
                    thread.join(0.2)
        for error in self._errors:
            print(f"Error: {error}", file=sys.stderr)
        return 1 if self._errors else 0

    def _print_job(self, index: int) -> None:
        job = self._experiment.jobs[index]
        try:
            handles = self._handles(index)
            if not handles:
                print(f"{job.id} has not been started, so it has no log.", file=sys.stderr)
            for number, handle in enumerate(handles):
                for label, lines in self._logs(job, handle):
                    place = f"{number}/{label}" if len(handles) > 1 else label
                    self._emit(job.id, place, self._chosen(lines))
        except NemoRunError as err:
            self._errors.append(f"no log of {job.id}: {err}")
        except BrokenPipeError:
            raise
        except OSError as err:
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
        name = "/".join(part for part in (job if self._named else "", place) if part)
        prefix = self._screen.style(f"{name} ", CYAN) if name else ""
        for line in lines:
            text = line.rstrip("\n")
            if self._as_json:
                text = json.dumps({"job": job, "replica": place, "line": text}, ensure_ascii=False)
            else:
                text = prefix + text
            with self._printing:
                print(text, flush=self._selection.follow)
