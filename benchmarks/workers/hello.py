"""Argument: script | partial."""

from __future__ import annotations

import sys

import nemo_run as run
from benchmarks.targets import hello

if __name__ == "__main__":
    if sys.argv[1] == "script":
        run.run(run.Script(inline="echo hi"), executor=run.LocalExecutor(), name="hello")
    else:
        run.run(run.Partial(hello, name="you"), executor=run.LocalExecutor(), name="hello")
