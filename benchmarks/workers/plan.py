"""Arguments: ANSWER REPEATS."""

from __future__ import annotations

import sys
from time import perf_counter

import nemo_run as run
from benchmarks.targets import training
from benchmarks.workers._answer import answer


def main() -> None:
    config = training()
    seconds: dict[str, list[float]] = {"add": [], "dryrun": [], "both": []}
    for _ in range(int(sys.argv[2])):
        with run.Experiment("plan", executor=run.LocalExecutor()) as experiment:
            begin = perf_counter()
            experiment.add(config, name="train")
            added = perf_counter()
            experiment.dryrun()
            end = perf_counter()
        seconds["add"].append(added - begin)
        seconds["dryrun"].append(end - added)
        seconds["both"].append(end - begin)
    answer(seconds)


if __name__ == "__main__":
    main()
