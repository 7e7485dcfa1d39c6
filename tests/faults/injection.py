"""Make calls of chosen processes fail, and set their clocks; see ``shim.c``, which does it."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROLES = ("launcher", "conductor", "supervisor")
_COUNTED = ("EIO", "ENOSPC", "EMFILE", "ESTALE", "slow")
_RATES = struct.Struct("=4I")
_CLOCK = struct.Struct("=q")
_COUNTS = struct.Struct("=5Q")
_ONLY = struct.Struct("=I")
_HOME = _RATES.size + _CLOCK.size + _COUNTS.size
_SIZE = _HOME + 1024 + _ONLY.size


class Injection:
    """What goes wrong in processes that are started with `environment`.

    Whether a process is a launcher, a conductor or a supervisor, its command line says. Only what
    it does with files below ``home`` can fail.
    """

    def __init__(self, directory: Path, home: Path) -> None:
        directory.mkdir()
        library, plan = directory / "shim.so", directory / "plan"
        source = Path(__file__).with_name("shim.c")
        build = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(build, check=True)
        plan.write_bytes(bytes(_SIZE))
        with plan.open("r+b") as file:
            self._plan = mmap.mmap(file.fileno(), _SIZE)
        self.only_below(home)
        self.environment = {"LD_PRELOAD": str(library), "NEMO_RUN_FAULTS": str(plan)}
        self._directory = directory

    def reach_supervisors(self) -> str:
        """Let calls of supervisors fail, too; return the interpreter that is to start them.

        They are given few variables, so it is a script that sets these. Other launchers and
        conductors take it for their own.
        """
        python = self._directory / "python"
        exports = "".join(f"export {key}='{value}'\n" for key, value in self.environment.items())
        python.write_text(f"#!/bin/sh\n{exports}exec '{sys.executable}' \"$@\"\n")
        python.chmod(0o755)
        site = self._directory / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(python)!r}\n")
        self.environment["PYTHONPATH"] = str(site)
        return str(python)

    def often(self, **per_million: int) -> None:
        """Have so many of a million calls meet something, by role; of other roles none."""
        _RATES.pack_into(self._plan, 0, 0, *(per_million.get(role, 0) for role in ROLES))

    def only_below(self, path: Path) -> None:
        """Let nothing but what is done with files below ``path`` fail."""
        self._plan[_HOME : _HOME + 1024] = os.fsencode(path).ljust(1024, b"\0")

    def only_syncs(self) -> None:
        """Let nothing but ``fsync`` fail."""
        _ONLY.pack_into(self._plan, _HOME + 1024, 1)

    def only_opening(self) -> None:
        """Let nothing but ``open`` fail, for want of descriptors."""
        _ONLY.pack_into(self._plan, _HOME + 1024, 2)

    def set_clock(self, ahead_s: int) -> None:
        """Set the clocks of all roles to so many seconds after the true time."""
        _CLOCK.pack_into(self._plan, _RATES.size, ahead_s)

    def met(self) -> Counter[str]:
        """Return what was met so far, by kind."""
        counts = _COUNTS.unpack_from(self._plan, _RATES.size + _CLOCK.size)
        return Counter(dict(zip(_COUNTED, counts, strict=True)))
