"""Arguments: ANSWER COUNT. As many functions that do nothing through submitit, on this machine."""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.workers._answer import answer
from benchmarks.workers._memory import peak_memory_mb


def main() -> None:
    # Installed for the peers only.
    submitit: Any = importlib.import_module("submitit")
    count = int(sys.argv[2])
    executor = submitit.LocalExecutor(folder=tempfile.mkdtemp(dir=Path.cwd()))
    begin = perf_counter()
    jobs = [executor.submit(int) for _ in range(count)]
    for job in jobs:
        job.result()
    answer({"seconds": perf_counter() - begin, "memory_mb": peak_memory_mb(), "succeeded": count})


if __name__ == "__main__":
    main()
