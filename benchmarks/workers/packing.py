"""Arguments: ANSWER TREE PACKAGER. The tree is the current directory of whoever packs it."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import nemo_run as run
from benchmarks.workers._answer import answer


def packager(name: str) -> Any:
    if name == "git":
        return run.GitArchivePackager()
    if name == "pattern":
        return run.PatternPackager(include_pattern=["package_*"], relative_path=["."])
    if name == "hybrid":
        return run.HybridPackager(sub_packagers={"code": run.GitArchivePackager()})
    return run.SnapshotPackager()


def main() -> None:
    tree, name = Path(sys.argv[2]), sys.argv[3]
    os.chdir(tree)
    chosen = packager(name)
    seconds = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(2):
            job_dir = Path(scratch) / str(number)
            job_dir.mkdir()
            begin = perf_counter()
            chosen.package(tree, str(job_dir), "job")
            seconds.append(perf_counter() - begin)
    answer({"first": seconds[:1], "second": seconds[1:]})


if __name__ == "__main__":
    main()
