"""What runs on a login node, run here: whether a submission is still under way."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_run._clients import _slurm_remote as remote


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A submission that somebody has begun."""
    directory = tmp_path / "nr-0123456789"
    (directory / "submitting").mkdir(parents=True)
    return directory


@pytest.fixture
def submitter(state_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Whoever has begun, with the directory among its arguments."""
    with subprocess.Popen(["sh", "-c", f"sleep 60; : {state_dir}"]) as process:
        yield process
        process.kill()


def asked(state_dir: Path) -> str:
    """Return what becomes of a submission that the queue does not know."""
    programs = state_dir.parent / "bin"
    programs.mkdir()
    for name in ("squeue", "sacct"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = ["sh", "-c", remote.ask(str(state_dir), 1)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout


def begun_by(state_dir: Path, pid: int, host: str) -> None:
    (state_dir / "submitting" / "by").write_text(f"{pid} {host}\n")


def test_who_takes_long_is_not_taken_for_dead(
    state_dir: Path, submitter: subprocess.Popen[bytes]
) -> None:
    begun_by(state_dir, submitter.pid, socket.gethostname())
    assert f"{remote.MARK} unknown" in asked(state_dir)
    assert (state_dir / "submitting").exists()


def test_who_was_killed_is_not_waited_for(
    state_dir: Path, submitter: subprocess.Popen[bytes]
) -> None:
    submitter.kill()
    submitter.wait()
    begun_by(state_dir, submitter.pid, socket.gethostname())
    assert f"{remote.MARK} never" in asked(state_dir)
    assert not (state_dir / "submitting").exists()


def test_another_process_with_the_same_number_is_another(state_dir: Path) -> None:
    begun_by(state_dir, os.getpid(), socket.gethostname())
    assert f"{remote.MARK} never" in asked(state_dir)


@pytest.mark.parametrize(("minutes", "verdict"), [(1, "unknown"), (11, "never")])
def test_another_login_node_gets_its_time(state_dir: Path, minutes: int, verdict: str) -> None:
    begun_by(state_dir, 1, "another-login-node")
    then = time.time() - 60 * minutes
    os.utime(state_dir / "submitting", (then, then))
    assert f"{remote.MARK} {verdict}" in asked(state_dir)
