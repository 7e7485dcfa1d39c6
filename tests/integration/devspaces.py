"""Short ways to say what tests of devspaces need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import patience

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
OPENSSH = [
    "/usr/sbin/sshd:/usr/sbin/sshd:ro",
    "/usr/bin/ssh-keygen:/usr/bin/ssh-keygen:ro",
    "/usr/lib/openssh:/usr/lib/openssh:ro",
    f"{LIBRARIES}:{LIBRARIES}:ro",
    f"{LIBRARIES}:/lib/x86_64-linux-gnu:ro",
]
"""Mounts for images without OpenSSH: that of this machine, with all that it needs."""
USERS = """\
root:x:0:0:root:/root:/bin/sh
sshd:x:100:65534::/run/sshd:/bin/false
somebody:x:1000:1000::/tmp:/bin/sh
"""
"""What such an image has for ``/etc/passwd``."""


def home_of_its_own(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a home directory for this test, whose ssh config may be edited."""
    home = directory / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    return home


def alias(name: str) -> str:
    return f"tunnel.{name}.{name}"


def ssh_argv(name: str, *command: str) -> list[str]:
    """Return how a user logs in, by the config that a user has."""
    config = Path(os.environ["HOME"]) / ".ssh" / "config"
    return ["ssh", "-F", str(config), "-o", "BatchMode=yes", alias(name), *command]


def ssh(name: str, command: str) -> subprocess.CompletedProcess[str]:
    """Log in as a user would, and run a command."""
    return subprocess.run(
        ssh_argv(name, command),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=patience.seconds(60),
        check=False,
    )


def said(name: str, command: str) -> str:
    """Return what a command on a devspace prints; it has to succeed."""
    done = ssh(name, command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def nemorun(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run our command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "nemo_run", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **variables},
        timeout=patience.seconds(120),
        check=False,
    )


def listed() -> dict[str, Any]:
    """Return what another process knows of devspaces, by name."""
    done = nemorun("devspace", "list", "--json")
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}
