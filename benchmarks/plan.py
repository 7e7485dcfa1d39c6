"""Adding a configuration of 1,100 configs to an experiment and dry-running it."""

from __future__ import annotations

import functools

from benchmarks._bench import Bench, Turn, in_turns, median_by_key
from benchmarks._report import Fact, Limit, Row


def run(bench: Bench) -> list[Row | Fact]:
    ours, released = bench.ours, bench.released
    found = in_turns(
        bench.times(5),
        {
            "ours": Turn(functools.partial(bench.ask, ours, "plan", 5)),
            "released": Turn(functools.partial(bench.ask, released, "plan", 1), every=2),
        },
    )
    mine, theirs = median_by_key(found["ours"]), median_by_key(found["released"])
    name = released.name
    return [
        Row("add", mine["add"], "s", name, theirs["add"]),
        Row("dryrun", mine["dryrun"], "s", name, theirs["dryrun"]),
        Row("both", mine["both"], "s", name, theirs["both"], Limit("<=", 1 / 20)),
    ]
