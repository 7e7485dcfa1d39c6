"""Run commands as users do: in a process of their own, with a home directory of their own."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts"
BIN = Path(sys.executable).parent
GIVE_UP_S = 110


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)

    def answer(self) -> dict[str, Any]:
        """What the scripts of these tests report about themselves, last if more than once."""
        reports = [line for line in self.lines if line.startswith("REPORT ")]
        found: dict[str, Any] = json.loads(reports[-1].removeprefix("REPORT "))
        return found


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    timeout_s: float = GIVE_UP_S,
) -> Result:
    """Run a command without a terminal; without ``input`` nobody answers questions."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("COLUMNS", "LINES", "TERM"))}
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={**kept, "TERM": "dumb", **(env or {})},
        input=input if input is not None else "",
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def script(name: str, *words: str, cwd: Path, **options: Any) -> Result:
    """Run a script of these tests."""
    return run([sys.executable, SCRIPTS / name, *words], cwd=cwd, **options)


def nemorun(*words: str, cwd: Path, program: str = "nemorun", **options: Any) -> Result:
    """Run the installed command."""
    return run([BIN / program, *words], cwd=cwd, **options)


def on_a_terminal(argv: list[str], env: Mapping[str, str]) -> str:
    """Return what a command shows on a terminal, colours and all."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        argv,
        stdin=side,
        stdout=side,
        stderr=side,
        env={**os.environ, "TERM": "xterm", **env},
        close_fds=True,
    )
    os.close(side)
    seen = b""
    while process.poll() is None or select.select([main], [], [], 0)[0]:
        if select.select([main], [], [], 0.1)[0]:
            try:
                block = os.read(main, 65536)
            except OSError:  # the other side was closed
                break
            if not block:
                break
            seen += block
    os.close(main)
    process.wait()
    return seen.decode().replace("\r\n", "\n")
