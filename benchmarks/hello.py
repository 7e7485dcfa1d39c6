"""One small task from the shell prompt to the next: the whole process."""

from __future__ import annotations

import functools

from benchmarks._bench import Bench, Turn, in_turns, medians
from benchmarks._candidates import Candidate
from benchmarks._errors import BenchmarkError
from benchmarks._report import Fact, Limit, Row


def run(bench: Bench) -> list[Row | Fact]:
    ours, released, torchx = bench.ours, bench.released, bench.torchx
    echo = ["run", "--scheduler", "local_cwd", "utils.echo", "--msg", "hi"]
    rounds = bench.times(9)
    script = medians(
        in_turns(
            rounds,
            {
                "ours": Turn(functools.partial(_hello, bench, ours, "script")),
                "released": Turn(functools.partial(_hello, bench, released, "script"), every=3),
                "torchx": Turn(
                    functools.partial(_seconds, bench, torchx, [torchx.command("torchx"), *echo])
                ),
            },
        )
    )
    function = medians(
        in_turns(
            rounds,
            {
                "ours": Turn(functools.partial(_hello, bench, ours, "partial")),
                "released": Turn(functools.partial(_hello, bench, released, "partial"), every=3),
            },
        )
    )
    return [
        Row("Script", script["ours"], "s", released.name, script["released"], Limit("<=", 1 / 6)),
        Row("Script", script["ours"], "s", torchx.name, script["torchx"], Limit("<", 1)),
        Row(
            "Partial",
            function["ours"],
            "s",
            released.name,
            function["released"],
            Limit("<=", 1 / 8),
        ),
    ]


def _hello(bench: Bench, candidate: Candidate, kind: str) -> float:
    return _seconds(bench, candidate, [candidate.python, "-m", "benchmarks.workers.hello", kind])


def _seconds(bench: Bench, candidate: Candidate, argv: list[str]) -> float:
    took_s, output = bench.call(candidate, argv)
    # The others lose the log of a short job now and then, on a busy machine.
    expected = "\nhi" if candidate == bench.ours else "SUCCEEDED"
    if expected not in output:
        raise BenchmarkError(f"{candidate.name} did not say {expected!r} but:\n{output}")
    return took_s
