"""What a hostile job does, as shell text, and what of its launcher each backend's can reach.

A backend joins `tests/hostile/test_jobs.py` by its line in `REACH`, and `test_table.py` by its
column.
"""

from __future__ import annotations

import shlex
from pathlib import Path

REACH = {
    "dgx_cloud": "/nemo_run",
    "docker": "/nemo_run/.nemo_run",
    "kubeflow": "../.nemo_run",
    "kubeflow-without-volume": "/nemo_run/.nemo_run",
}
"""Of each backend, the directory in which a job finds files that its launcher reads or writes."""

NAMES = (
    *("outcome.json", "where.json", "cancelled", "given-up", "clock", "status", "asked"),
    *("attempts", "log", "environment", "exit", "cancel", "spec", "clock.stdout", "clock.stderr"),
)
"""What such files are called, here or there."""

PLANTS = {
    "links": 'ln -s "$victim" "$file"',
    "fifos": 'mkfifo "$file"',
    "directories": 'mkdir "$file"',
    "huge": 'dd if=/dev/null of="$file" bs=1048576 seek=204800 2>/dev/null',
    "digits": 'printf \'{"state": "SUCCEEDED", "id": 1, "exit_code": "%05000d"}\\n\' 7 >"$file"',
    "nesting": 'head -c 200000 /dev/zero | tr "\\0" "[" >"$file"',
    "bytes": 'printf "\\377\\000\\n\\n1 2 3" >"$file"',
    "forgery": 'printf \'{"state": "SUCCEEDED", "exit_code": 0, "removed": true}\' >"$file"',
}
"""How one file is replaced, by what is planted in its place."""


SOME = ("fifos", "huge", "forgery")
"""What is planted where jobs have another machine: links there lead to what the job has anyway."""


def kinds_of(backend: str) -> list[str]:
    return list(PLANTS if backend == "docker" else SOME)


def plant(reach: str, kind: str, victim: Path) -> str:
    """Return text that replaces each file in reach, and puts some where there are none yet."""
    names = " ".join(NAMES)
    return f"""
victim={shlex.quote(str(victim))}
cd {reach}
replace() {{ file=$1; rm -rf "$file"; {PLANTS[kind]}; }}
find . -type f ! -name '*.sh' ! -path './c*/*' | while read -r found; do replace "$found"; done
find . -type d | while read -r place; do
    for name in {names}; do replace "$place/$name"; done
done
"""
