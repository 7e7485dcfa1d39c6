"""An ``sbatch`` that takes its time, so that a launcher can be killed meanwhile."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path


class SlowSbatch:
    """An ``sbatch`` as on a busy cluster: it takes a while before or after it has done its work.

    ``command`` puts it first on a PATH. ``reached`` tells whether the while has begun.
    """

    def __init__(self, directory: Path, moment: str) -> None:
        directory.mkdir()
        self._mark = directory / "reached"
        wait = f"touch {shlex.quote(str(self._mark))}; sleep 2"
        real = f'{shutil.which("sbatch")} "$@"; code=$?'
        lines = [wait, real] if moment == "before" else [real, wait]
        program = directory / "sbatch"
        program.write_text("\n".join(["#!/bin/sh", *lines, "exit $code", ""]))
        program.chmod(0o755)
        self.command = f"export PATH={shlex.quote(str(directory))}:$PATH"

    def reached(self) -> bool:
        return self._mark.exists()
