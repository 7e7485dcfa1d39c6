"""A user with a home, a directory to work in, and programs of other people to run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import patience
from tests.conftest import processes_with
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.sshd import ALIAS

PROGRAMS = Path(__file__).parent / "programs"
FORGOTTEN = ("NEMORUN_HOME", "SLURM_CONF", "PYTHONPATH")


def site(way: str, *, accounting: bool) -> Any:
    """Return the parameter for a user of a cluster, which is reached this way."""
    name = f"{way}-{'accounting' if accounting else 'bare'}"
    return pytest.param((way, accounting), id=name, marks=pytest.mark.needs("slurmctld"))


class User:
    """Runs programs, each in a process of its own, whose results are found in ``out``."""

    def __init__(self, root: Path, variables: Mapping[str, str] | None = None) -> None:
        self.home = root / "home"
        self.work = root / "work"
        self.out = root / "out"
        for directory in (self.home, self.work, self.out):
            directory.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if name not in FORGOTTEN}
        # The wide terminal keeps long lines in one piece.
        self.environment = {**kept, "COLUMNS": "300", **(variables or {})}
        self.environment |= {"HOME": str(self.home), "OUT": str(self.out)}
        self.environment["WAIT_S"] = str(patience.seconds(150))

    def tries(
        self, program: str, *args: str, within_s: float = 200, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, whatever that is."""
        return subprocess.run(
            [sys.executable, str(PROGRAMS / program), *args],
            cwd=self.work,
            env={**self.environment, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience.seconds(within_s),
            check=False,
        )

    def runs(self, program: str, *args: str, **env: Any) -> subprocess.CompletedProcess[str]:
        """Run a program that must end well."""
        done = self.tries(program, *args, **env)
        assert done.returncode == 0, said(done)
        return done

    def found(self, name: str) -> Any:
        """Return what a job or a program has left under this name."""
        path = self.out / name
        assert path.exists(), f"no {name} among {sorted(p.name for p in self.out.iterdir())}"
        return json.loads(path.read_text())

    def leave(self) -> None:
        """End all that was started for this user."""
        for pid in processes_with(f"HOME={self.home}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Return how a program ended and its last words, for messages."""
    return (
        f"exit code {done.returncode}\n--- stdout\n{done.stdout[-3000:]}"
        f"\n--- stderr\n{done.stderr[-5000:]}"
    )


class ClusterUser(User):
    """A user of a Slurm cluster, over ssh or logged in to a machine of it."""

    def __init__(self, root: Path, cluster: SlurmCluster, way: str) -> None:
        described: dict[str, Any] = {
            "account": "root",
            "partition": "main",
            "job_dir": str(root / "cluster"),
        }
        # As in an activated environment, whose python the jobs of a login node find.
        path = os.pathsep.join([str(cluster.sshd.bin), str(Path(sys.executable).parent)])
        path = os.pathsep.join([path, cluster.environment["PATH"]])
        variables = {"CLUSTER": str(root / "cluster.yaml"), "PATH": path}
        if way == "ssh":
            described["ssh_tunnel"] = {"host": ALIAS, "user": cluster.sshd.user}
        else:
            variables["SLURM_CONF"] = cluster.environment["SLURM_CONF"]
        super().__init__(root, variables)
        self.cluster = cluster
        self.way = way
        self.job_dir = root / "cluster"
        Path(variables["CLUSTER"]).write_text(yaml.safe_dump(described))

    def job(self, job_id: str) -> dict[str, str]:
        """Return what the controller says of a job."""
        words = self.cluster.run("scontrol", "show", "job", job_id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)
