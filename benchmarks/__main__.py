"""Run benchmarks by name, all by default, and print what came out."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import _report
from benchmarks._bench import Bench
from benchmarks._candidates import BENCH
from benchmarks._errors import BenchmarkError
from benchmarks._report import Fact, Row

NAMES = (
    "imports",
    "install",
    "config",
    "hello",
    "parallel",
    "sequential",
    "plan",
    "logs",
    "history",
    "packing",
    "command_line",
    "slurm",
)


def main() -> int:
    """Return 0 if everything could be measured, whatever came out, else 1."""
    options = _options()
    # So that being ended ends what is being measured too, and leaves nothing behind.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    BENCH.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=BENCH))
    bench = Bench(scratch, quick=options.quick)
    before = _report.machine()
    print("python {python}, {system}, {cpus} cpus, load {load}".format(**before), flush=True)
    results: list[dict[str, Any]] = []
    broken = missed = 0
    try:
        for name in options.names or NAMES:
            begin = time.perf_counter()
            module = importlib.import_module(f"benchmarks.{name}")
            try:
                rows: list[Row | Fact] = module.run(bench)
            except BenchmarkError as err:
                print(f"\n{name}: could not be measured. {err}", flush=True)
                broken += 1
                continue
            took_s = time.perf_counter() - begin
            print(f"\n{name}: {(module.__doc__ or name).splitlines()[0]} ({took_s:.0f} s)")
            print(_report.table(rows), flush=True)
            results.append({"name": name, "rows": [row.to_json() for row in rows]})
            missed += sum(row.verdict == "MISSED" for row in rows)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        document = {"machine": before, "quick": options.quick, "benchmarks": results}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    print(f"\n{missed} targets missed, {broken} benchmarks could not be measured")
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure nemo_run side by side with NeMo Run 0.11.1, torchx and submitit. "
        "The first run installs them under .bench.",
    )
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, to try things out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
