"""Arguments: ANSWER COMMAND COUNT parallel|sequential."""

from __future__ import annotations

import sys
from time import perf_counter

import nemo_run as run
from benchmarks.workers._answer import answer
from benchmarks.workers._memory import peak_memory_mb


def main() -> None:
    command, count, order = sys.argv[2], int(sys.argv[3]), sys.argv[4]
    experiment = run.Experiment("tasks", executor=run.LocalExecutor())
    tasks = [run.Script(inline=command) for _ in range(count)]
    begin = perf_counter()
    with experiment:
        for number, task in enumerate(tasks):
            experiment.add(task, name=f"task-{number}")
        experiment.run(sequential=order == "sequential")
    seconds = perf_counter() - begin
    memory_mb = peak_memory_mb()
    status = experiment.status(return_dict=True) or {}
    succeeded = sum(job["status"].name == "SUCCEEDED" for job in status.values())
    answer({"seconds": seconds, "memory_mb": memory_mb, "succeeded": succeeded})


if __name__ == "__main__":
    main()
