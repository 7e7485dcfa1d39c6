"""Run launching scripts as users do, find what they started, and kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests import patience
from tests.conftest import processes_with

from nemo_run.run.experiment import Experiment
from nemo_run.run.torchx_backend.schedulers.local import create_scheduler

HEADER = """\
import os, sys, time
import nemo_run as run
def script(text, **settings):
    return run.Script(inline=text, **settings)
"""


def write(directory: Path, text: str, name: str = "launch.py") -> Path:
    path = directory / name
    path.write_text(HEADER + text)
    return path


def launch(path: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script to its end."""
    return subprocess.run(
        [sys.executable, str(path), *args],
        cwd=path.parent,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=patience.seconds(100),
        check=False,
    )


def start(path: Path, *args: str) -> subprocess.Popen[bytes]:
    """Run a script in a session of its own, its output in a file beside it."""
    with path.with_suffix(".out").open("ab") as out:
        return subprocess.Popen(
            [sys.executable, str(path), *args],
            cwd=path.parent,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 30) -> None:
    deadline = patience.deadline(timeout_s)
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout_s} s")
        time.sleep(0.02)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def only_experiment(title: str) -> Experiment:
    (found,) = Experiment.catalog(title)
    return Experiment.from_id(found)


def command_line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace")
    except OSError:
        return ""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ours() -> dict[int, str]:
    """Return the processes of this test's home with their command lines."""
    home = os.environ["NEMORUN_HOME"]
    found = {pid: command_line(pid) for pid in processes_with(f"NEMORUN_HOME={home}")}
    # A supervisor may have been given an environment of its own; its arguments name the home.
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and home in (text := command_line(int(entry.name))):
            found[int(entry.name)] = text
    found.pop(os.getpid(), None)
    return {pid: text for pid, text in found.items() if alive(pid)}


def conductors() -> list[int]:
    return [
        pid for pid, text in ours().items() if "nemo_run._experiments.conductor.detached" in text
    ]


def supervisors() -> list[int]:
    return [pid for pid, text in ours().items() if "import supervisor" in text]


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Send a signal; tell whether there was somebody to receive it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def log_of_handle(handle: str) -> list[str]:
    """Return the log lines of a local job with one role."""
    scheduler = create_scheduler("nemo_run")
    app_id = handle.rpartition("/")[2]
    described = scheduler.describe(app_id)
    assert described is not None
    (role,) = described.roles
    return list(scheduler.log_iter(app_id, role.name))
