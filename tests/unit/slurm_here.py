"""Batch scripts without a cluster: commands named like Slurm's that run tasks on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests import patience

from nemo_run.core.execution.slurm import SlurmBatchRequest


def fake_slurm(directory: Path) -> dict[str, str]:
    """Return an environment whose Slurm commands run tasks here and note how they are called."""
    bin_ = directory / "bin"
    bin_.mkdir()
    programs = {
        # Options with a value of their own, as our scripts write them.
        "srun": 'while :; do case "$1" in --output) out=$2; shift 2;; --chdir) shift 2;; '
        '--*) shift;; *) break;; esac; done; exec "$@" >>"$out" 2>&1',
        "scontrol": f'[ "$1" = show ] && echo node1 || echo "$@" >>{directory}/scontrol',
    }
    for name, text in programs.items():
        (bin_ / name).write_text(f"#!/bin/bash\n{text}\n")
        (bin_ / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "node1",
    }


def run_here(
    asked: SlurmBatchRequest, directory: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a request's script in ``directory``, with the commands that ``environment`` has."""
    asked.executor.tunnel.job_dir = str(directory)
    state = Path(asked.state_dir)
    state.mkdir(parents=True, exist_ok=True)
    if not list(state.glob("env*")):  # started for the first time
        for name, text in asked.environment_files().items():
            (state / name).write_text(text)
    return subprocess.run(
        ["bash", "-c", asked.materialize()],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=patience.seconds(60),
        check=False,
    )
