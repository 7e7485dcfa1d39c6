"""Following the log of a job that wrote a million lines (100 MB), into a file."""

from __future__ import annotations

import functools
import statistics

from benchmarks._bench import Bench, Turn, in_turns, median_by_key
from benchmarks._report import Fact, Limit, Row

LINES = 1_000_000


def run(bench: Bench) -> list[Row | Fact]:
    ours, released = bench.ours, bench.released
    count = LINES // 10 if bench.quick else LINES
    found = in_turns(
        bench.times(3),
        {
            "ours": Turn(functools.partial(bench.ask, ours, "logs", count, 5)),
            "released": Turn(functools.partial(bench.ask, released, "logs", count, 1), every=3),
        },
    )
    seconds = median_by_key(
        [{key: report[key] for key in ("follow", "cat")} for report in found["ours"]]
    )
    theirs = statistics.median(
        [value for report in found["released"] for value in report["follow"]]
    )
    stored, written = found["ours"][-1]["stored"], found["ours"][-1]["written"]
    whole = all(report["whole"] for report in found["ours"])
    return [
        Row("time", seconds["follow"], "s", "cat", seconds["cat"], Limit("<=", 2)),
        Row("time", seconds["follow"], "s", released.name, theirs),
        Row("on disk", stored / 1e6, "MB", "written", written / 1e6, Limit("<=", 1.05)),
        Row("on disk", stored / 1e6, "MB", released.name, found["released"][-1]["stored"] / 1e6),
        Fact("every line, in order", "yes" if whole else "no", whole),
    ]
