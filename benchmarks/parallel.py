"""200 tasks that do nothing, at once, from entering the experiment to its end."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks._bench import Bench, Turn, in_turns
from benchmarks._candidates import Candidate
from benchmarks._errors import CommandError
from benchmarks._report import Fact, Limit, Row

TASKS = 200
# Each takes a Python of its own: 200 at once would make the machine useless for minutes.
WITH_SUBMITIT = 40


def run(bench: Bench) -> list[Row | Fact]:
    ours, released = bench.ours, bench.released
    count = TASKS // 4 if bench.quick else TASKS
    found = in_turns(
        bench.times(5),
        {
            "ours": Turn(functools.partial(_many, bench, ours, count)),
            "released": Turn(functools.partial(_many_if_it_can, bench, released, count)),
            "submitit": Turn(
                functools.partial(bench.ask, released, "submitit_many", WITH_SUBMITIT), every=5
            ),
        },
    )
    theirs = [report for report in found["released"] if report is not None]
    seconds, memory_mb = (_median(found["ours"], key) for key in ("seconds", "memory_mb"))
    succeeded = min(report["succeeded"] for report in found["ours"])
    each = _median(found["submitit"], "seconds") / WITH_SUBMITIT
    failed = len(found["released"]) - len(theirs)
    if failed:
        print(
            f"{released.name} could not run {count} tasks in {failed} of {len(found['released'])}"
        )
    rows: list[Row | Fact] = [
        Row("time for each task", seconds / count, "s", f"submitit, {WITH_SUBMITIT}", each),
        Row("peak memory of the launcher", memory_mb, "MB", limit=Limit("<", 90)),
        Fact("tasks that succeeded", f"{succeeded} of {count}", succeeded == count),
    ]
    if not theirs:
        return [Row("time", seconds, "s"), *rows]
    name, peak = released.name, "peak memory of the launcher"
    return [
        Row("time", seconds, "s", name, _median(theirs, "seconds"), Limit("<=", 1 / 4)),
        *rows,
        Row(peak, memory_mb, "MB", name, _median(theirs, "memory_mb")),
    ]


def _many(bench: Bench, candidate: Candidate, count: int) -> dict[str, Any]:
    return bench.ask(candidate, "experiment", "true", count, "parallel")


def _many_if_it_can(bench: Bench, candidate: Candidate, count: int) -> dict[str, Any] | None:
    # It gives up with "App cache size (100) exceeded" if more than 100 jobs have not ended.
    try:
        return _many(bench, candidate, count)
    except CommandError as err:
        if "App cache size" not in str(err):
            raise
        return None


def _median(reports: Sequence[dict[str, Any]], key: str) -> float:
    return float(statistics.median(report[key] for report in reports))
