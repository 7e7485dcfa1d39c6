"""What `import nemo_run` costs over a bare interpreter."""

from __future__ import annotations

import functools
import json

from benchmarks._bench import Bench, Turn, in_turns, medians
from benchmarks._candidates import Candidate
from benchmarks._report import Fact, Limit, Row

HEAVY = ("torchx", "fiddle", "rich", "typer")

IMPORT = "import nemo_run"
MEMORY = "from benchmarks.workers._memory import peak_memory_mb; print(peak_memory_mb())"
MODULES = """
import json, sys
before = set(sys.modules)
import nemo_run
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def run(bench: Bench) -> list[Row | Fact]:
    ours, released = bench.ours, bench.released
    seconds = medians(
        in_turns(
            bench.times(20),
            {
                "bare": Turn(functools.partial(_seconds, bench, ours, "pass")),
                "ours": Turn(functools.partial(_seconds, bench, ours, IMPORT)),
                "released": Turn(functools.partial(_seconds, bench, released, IMPORT), every=4),
            },
        )
    )
    memory_mb = {
        "bare": _printed(bench, ours, MEMORY),
        "ours": _printed(bench, ours, f"{IMPORT}; {MEMORY}"),
        "released": _printed(bench, released, f"{IMPORT}; {MEMORY}"),
    }
    loaded: list[str] = json.loads(bench.call(ours, [ours.python, "-c", MODULES])[1])
    heavy = [name for name in HEAVY if any(m.split(".")[0] == name for m in loaded)]
    print(f"import nemo_run loads: {', '.join(loaded)}")
    return [
        Row("time", seconds["ours"], "s", "bare python", seconds["bare"], Limit("<=", 1.5)),
        Row("time", seconds["ours"], "s", released.name, seconds["released"]),
        Row("peak memory", memory_mb["ours"], "MB", "bare python", memory_mb["bare"]),
        Row("peak memory", memory_mb["ours"], "MB", released.name, memory_mb["released"]),
        Fact(f"loads of {', '.join(HEAVY)}", ", ".join(heavy) or "none", not heavy),
    ]


def _seconds(bench: Bench, candidate: Candidate, code: str) -> float:
    return bench.call(candidate, [candidate.python, "-c", code])[0]


def _printed(bench: Bench, candidate: Candidate, code: str) -> float:
    return float(bench.call(candidate, [candidate.python, "-c", code])[1].split()[-1])
