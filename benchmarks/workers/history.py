"""Arguments: ANSWER REPEATS."""

from __future__ import annotations

import sys
from time import perf_counter

import nemo_run as run
from benchmarks.workers._answer import answer


def launch() -> str:
    with run.Experiment("hello", executor=run.LocalExecutor()) as experiment:
        experiment.add(run.Script(inline="echo hi"), name="hello")
        experiment.run()
    return experiment._id


def main() -> None:
    seconds: dict[str, list[float]] = {"launch": [], "status": [], "from_id": []}
    # Once for what is imported on first use.
    run.Experiment.from_id(launch()).status()
    for _ in range(int(sys.argv[2])):
        begin = perf_counter()
        id = launch()
        launched = perf_counter()
        experiment = run.Experiment.from_id(id)
        found = perf_counter()
        experiment.status()
        end = perf_counter()
        seconds["launch"].append(launched - begin)
        seconds["from_id"].append(found - launched)
        seconds["status"].append(end - found)
    answer(seconds)


if __name__ == "__main__":
    main()
