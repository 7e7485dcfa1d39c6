"""Launching and looking with 10,000 past experiments in the home directory, and with none."""

from __future__ import annotations

import functools

from benchmarks._bench import Bench, Turn, in_turns, median_by_key
from benchmarks._report import Fact, Limit, Row

PAST = 10_000
STEPS = ("launch", "status", "from_id")


def run(bench: Bench) -> list[Row | Fact]:
    ours = bench.ours
    count = PAST // 10 if bench.quick else PAST
    empty, full = bench.directory(), bench.directory()
    bench.ask(ours, "past", count, home=full)
    found = in_turns(
        bench.times(7),
        {
            "none": Turn(functools.partial(bench.ask, ours, "history", 7, home=empty)),
            "many": Turn(functools.partial(bench.ask, ours, "history", 7, home=full)),
        },
    )
    none, many = median_by_key(found["none"]), median_by_key(found["many"])
    return [
        Row(f"{step} after {count:,}", many[step], "s", "after none", none[step], Limit("<=", 1.2))
        for step in STEPS
    ]
