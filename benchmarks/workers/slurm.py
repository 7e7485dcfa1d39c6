"""Arguments: ANSWER HOST USER PORT IDENTITY JOB_DIR COUNT."""

from __future__ import annotations

import sys
from time import perf_counter

import nemo_run as run
from benchmarks.workers._answer import answer


def main() -> None:
    host, user, port, identity, job_dir, count = sys.argv[2:]
    tunnel = run.SSHTunnel(host=host, user=user, port=int(port), identity=identity, job_dir=job_dir)
    executor = run.SlurmExecutor(
        account="root", mem="10M", tunnel=tunnel, packager=run.Packager(), time="00:05:00"
    )
    experiment = run.Experiment("tasks", executor=executor)
    begin = perf_counter()
    with experiment:
        for number in range(int(count)):
            experiment.add(run.Script(inline="true"), name=f"task-{number}")
        experiment.run()
    seconds = perf_counter() - begin
    status = experiment.status(return_dict=True) or {}
    succeeded = sum(job["status"].name == "SUCCEEDED" for job in status.values())
    answer({"seconds": seconds, "succeeded": succeeded})


if __name__ == "__main__":
    main()
