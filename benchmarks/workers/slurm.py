"""Arguments: ANSWER HOST USER PORT IDENTITY JOB_DIR COUNT LOGS.

With LOGS the logs of all jobs are followed, too; they say one line each.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import nemo_run as run
from benchmarks.workers._answer import answer

LINE = "a line of the log"


def main() -> None:
    host, user, port, identity, job_dir, count, logs = sys.argv[2:]
    tunnel = run.SSHTunnel(host=host, user=user, port=int(port), identity=identity, job_dir=job_dir)
    executor = run.SlurmExecutor(
        account="root", mem="10M", tunnel=tunnel, packager=run.Packager(), time="00:05:00"
    )
    experiment = run.Experiment("tasks", executor=executor)
    with tempfile.TemporaryDirectory() as directory:
        shown = Path(directory) / "shown"
        begin = perf_counter()
        with _shown_in(shown), experiment:
            for number in range(int(count)):
                script = run.Script(inline=f"echo {LINE}")
                experiment.add(script, name=f"task-{number}", tail_logs=logs == "logs")
            experiment.run()
        seconds = perf_counter() - begin
        lines = shown.read_text(errors="replace").count(LINE)
    status = experiment.status(return_dict=True) or {}
    succeeded = sum(job["status"].name == "SUCCEEDED" for job in status.values())
    answer({"seconds": seconds, "succeeded": succeeded, "lines": lines})


@contextmanager
def _shown_in(path: Path) -> Iterator[None]:
    """Have all that this process shows in a file, as it would be on a terminal."""
    kept = [os.dup(number) for number in (1, 2)]
    with path.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)


if __name__ == "__main__":
    main()
