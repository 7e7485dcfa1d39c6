"""Storing, reading, comparing and copying a configuration of 1,100 configs."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks._bench import Bench, Turn, in_turns, median_by_key
from benchmarks._candidates import Candidate
from benchmarks._report import Fact, Limit, Row

STEPS = ("serialise", "deserialise", "compare", "clone")


def run(bench: Bench) -> list[Row | Fact]:
    ours, released = bench.ours, bench.released
    found = in_turns(
        bench.times(5),
        {
            "ours": Turn(functools.partial(_times, bench, ours, 15)),
            "released": Turn(functools.partial(_times, bench, released, 3)),
        },
    )
    mine, theirs = median_by_key(found["ours"]), median_by_key(found["released"])
    rows: list[Row | Fact] = [
        Row(step, mine[step], "s", released.name, theirs[step], Limit("<=", 1 / 10))
        for step in STEPS
    ]
    return [*rows, *_exchanged(bench)]


def _times(bench: Bench, candidate: Candidate, repeats: int) -> dict[str, Any]:
    return bench.ask(candidate, "config", "time", repeats)


def _exchanged(bench: Bench) -> list[Row | Fact]:
    """See whether each of the two reads what the other wrote as the configuration it was."""
    ours, released = bench.ours, bench.released
    facts: list[Row | Fact] = []
    for writer, reader in ((ours, released), (released, ours)):
        file = bench.directory() / "stored"
        bench.ask(writer, "config", "write", file)
        same = bench.ask(reader, "config", "read", file)["same"]
        what = f"written by {writer.name}, by {reader.name} read back identically"
        facts.append(Fact(what, "yes" if same else "no", same))
    return facts
