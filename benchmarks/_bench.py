"""How things are measured: in processes of their own, in turns, several times."""

from __future__ import annotations

import functools
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import _candidates
from benchmarks._candidates import Candidate
from benchmarks._errors import CommandError

T = TypeVar("T")

GIVE_UP_S = 900


@dataclass
class Bench:
    """What a benchmark needs: the candidates, a place to work in and how often to repeat.

    Candidates are installed when one is first asked for.
    """

    scratch: Path
    quick: bool = False
    _homes: dict[str, Path] = field(default_factory=dict)

    @functools.cached_property
    def ours(self) -> Candidate:
        return _candidates.this_tree()

    @functools.cached_property
    def released(self) -> Candidate:
        return _candidates.released()

    @functools.cached_property
    def torchx(self) -> Candidate:
        return _candidates.torchx()

    def times(self, usually: int) -> int:
        """Return how often to repeat something that is usually repeated that often."""
        return max(1, usually // 5) if self.quick else usually

    def home(self, candidate: Candidate) -> Path:
        """Return where a candidate keeps its files; the same for all its runs, as with users."""
        return self.scratch / candidate.name.replace(" ", "-")

    def directory(self) -> Path:
        """Return a new, empty directory."""
        return Path(tempfile.mkdtemp(dir=self.scratch))

    def call(
        self,
        candidate: Candidate,
        argv: Sequence[str],
        home: Path | None = None,
        programs: Path | None = None,
    ) -> tuple[float, str]:
        """Run a command in a candidate's environment; return its seconds and what it printed.

        What is in the directory ``programs`` is found before all else.

        Raises:
            CommandError: it failed.
        """
        home = home or self.home(candidate)
        env = candidate.environment(home)
        if programs is not None:
            env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"
        with tempfile.TemporaryFile("w+", dir=self.scratch) as output:
            begin = time.perf_counter()
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=home,
                timeout=GIVE_UP_S,
                check=False,
            )
            took_s = time.perf_counter() - begin
            output.seek(0)
            text = output.read()
        if done.returncode:
            raise CommandError(argv, done.returncode, text)
        return took_s, text

    def ask(
        self,
        candidate: Candidate,
        worker: str,
        *arguments: object,
        home: Path | None = None,
        programs: Path | None = None,
    ) -> dict[str, Any]:
        """Run a module of `benchmarks.workers` with a candidate and return what it reports.

        Raises:
            CommandError: it failed.
        """
        work = self.directory()
        answer = work / "answer.json"
        module = f"benchmarks.workers.{worker}"
        argv = [candidate.python, "-m", module, str(answer), *map(str, arguments)]
        self.call(candidate, argv, home, programs)
        values: dict[str, Any] = json.loads(answer.read_text())
        shutil.rmtree(work)
        return values


@dataclass(frozen=True)
class Turn:
    """One of several things to measure in turns: each round, or only every so many rounds."""

    measure: Callable[[], Any]
    every: int = 1


def in_turns(rounds: int, turns: Mapping[str, Turn]) -> dict[str, list[Any]]:
    """Measure everything in every round, so that a busy minute of the machine meets all alike."""
    found: dict[str, list[Any]] = {name: [] for name in turns}
    names = list(turns)
    for number in range(rounds):
        # Whoever goes first finds the caches cold; let that be somebody else each time.
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            if number % turns[name].every == 0:
                found[name].append(turns[name].measure())
    return found


def medians(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in found.items()}


def median_by_key(reports: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Return, for each key of the reports of several processes, the median of all its values."""
    return {
        key: statistics.median([value for report in reports for value in report[key]])
        for key in reports[0]
    }
