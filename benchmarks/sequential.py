"""Five tasks that sleep 0.3 s, one after the other, from entering the experiment to its end."""

from __future__ import annotations

import functools

from benchmarks._bench import Bench, Turn, in_turns, medians
from benchmarks._candidates import Candidate
from benchmarks._report import Fact, Limit, Row

TASKS, SLEEP_S = 5, 0.3


def run(bench: Bench) -> list[Row | Fact]:
    ours, released = bench.ours, bench.released
    seconds = medians(
        in_turns(
            bench.times(5),
            {
                "ours": Turn(functools.partial(_row, bench, ours)),
                "released": Turn(functools.partial(_row, bench, released), every=2),
            },
        )
    )
    return [
        Row("time", seconds["ours"], "s", "sleeping alone", TASKS * SLEEP_S, Limit("<=", 1.3)),
        Row("time", seconds["ours"], "s", released.name, seconds["released"]),
    ]


def _row(bench: Bench, candidate: Candidate) -> float:
    report = bench.ask(candidate, "experiment", f"sleep {SLEEP_S}", TASKS, "sequential")
    return float(report["seconds"])
