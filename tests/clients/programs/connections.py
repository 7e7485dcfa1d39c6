"""A way to the cluster over a connection that the tool has made itself."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_run.core.tunnel import SSHTunnel

NOTES = Path(os.environ["OUT"]) / "commands.txt"


@dataclass(frozen=True)
class Answer:
    """How a command ended, in the words that users of fabric know."""

    command: str
    stdout: str
    stderr: str
    exited: int

    @property
    def return_code(self) -> int:
        return self.exited

    @property
    def ok(self) -> bool:
        return self.exited == 0

    @property
    def failed(self) -> bool:
        return self.exited != 0

    def __bool__(self) -> bool:
        return self.ok


class TeamSession:
    """A connection through the team's own program, which notes what passes."""

    is_connected = True

    def __init__(self, host: str) -> None:
        self.host = host

    def run(self, command: str, hide: bool = True, warn: bool = False, **options: Any) -> Answer:
        with NOTES.open("a") as notes:
            notes.write(f"{command!r}\n")
        done = subprocess.run(
            ["ssh", self.host, command], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode and not warn:
            raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
        return Answer(command, done.stdout, done.stderr, done.returncode)

    def close(self) -> None:
        self.is_connected = False


class TeamTunnel(SSHTunnel):
    """Connects in the way of the team."""

    def connect(self) -> None:
        self.session = TeamSession(self.host)
