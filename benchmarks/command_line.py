"""What commands take: their help, and the list of many experiments."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from benchmarks._bench import Bench, Turn, in_turns, medians
from benchmarks._candidates import ROOT, Candidate
from benchmarks._report import Fact, Limit, Row

FEW, MANY = 1_000, 10_000
SCRIPT = ROOT / "benchmarks" / "workers" / "entrypoint.py"
TITLE = "hello"


def run(bench: Bench) -> list[Row | Fact]:
    ours, released = bench.ours, bench.released
    few, many = (_filled(bench, count // 10 if bench.quick else count) for count in (FEW, MANY))
    commands: dict[str, tuple[Sequence[str], Sequence[str]]] = {
        "--help": (["--help"], ["--help"]),
        f"list of {FEW:,}": (["experiment", "list"], ["experiment", "list", TITLE]),
        "help of a script": ([str(SCRIPT), "--help"], [str(SCRIPT), "--help"]),
    }
    turns = {"bare": Turn(lambda: bench.call(ours, [ours.python, "-c", "pass"])[0])}
    for name, (here, there) in commands.items():
        turns[name] = Turn(functools.partial(_seconds, bench, ours, here, few))
        turns[f"{name}, released"] = Turn(
            functools.partial(_seconds, bench, released, there, few), every=4
        )
    turns["many"] = Turn(functools.partial(_seconds, bench, ours, ["experiment", "list"], many))
    seconds = medians(in_turns(bench.times(15), turns))
    rows: list[Row | Fact] = []
    for name in commands:
        took, theirs = seconds[name], seconds[f"{name}, released"]
        rows.append(Row(name, took, "s", released.name, theirs, Limit("<=", 0.1)))
        rows.append(Row(name, took, "s", "bare python", seconds["bare"], Limit("<=", 12)))
    rows.append(Row(f"list of {MANY:,}", seconds["many"], "s", limit=Limit("<", 1.0)))
    return rows


def _filled(bench: Bench, count: int) -> Path:
    home = bench.directory()
    bench.ask(bench.ours, "past", count, home=home)
    return home


def _seconds(bench: Bench, candidate: Candidate, words: Sequence[str], home: Path) -> float:
    program = candidate.python if words[0].endswith(".py") else candidate.command("nemorun")
    return bench.call(candidate, [program, *words], home)[0]
