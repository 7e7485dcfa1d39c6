"""Turn a cluster's description, a YAML file that a team shares, into tunnels and executors."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import yaml

import nemo_run as run

RECORD = str(Path(__file__).parent / "jobs" / "record.py")
ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}


def out(name: str) -> str:
    """Return where a job or a program leaves something for the user to look at."""
    return str(Path(os.environ["OUT"]) / name)


def description() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path(os.environ["CLUSTER"]).read_text())
    return found


def tunnel(kind: Any = run.SSHTunnel) -> Any:
    """Return the way to the cluster: over ssh, or none where this machine belongs to it."""
    cluster = description()
    if "ssh_tunnel" in cluster:
        return kind(**cluster["ssh_tunnel"], job_dir=cluster["job_dir"])
    return run.LocalTunnel(job_dir=cluster["job_dir"])


def executor(**settings: Any) -> run.SlurmExecutor:
    cluster = description()
    chosen: dict[str, Any] = {
        "account": cluster["account"],
        "partition": cluster["partition"],
        "time": "00:10:00",
        "mem": "100M",
        "tunnel": tunnel(),
        "packager": run.Packager(),
        "poll_estimated_start_time": False,
        "wait_time_for_group_job": 0,
        "monitor_group_job_wait_time": 1,
        **settings,
    }
    return run.SlurmExecutor(**chosen)


def record(name: str, *args: str, **settings: Any) -> run.Script:
    """Return a task that notes what it was given in a file of this name."""
    return run.Script(RECORD, args=[out(name), *args], entrypoint="python3", **settings)


def states(experiment: run.Experiment) -> dict[str, str]:
    found = experiment.status(return_dict=True) or {}
    return {job: entry["status"].name for job, entry in found.items()}


def wait(experiment_id: str) -> dict[str, str]:
    """Look at an experiment, as another process may have launched it, until all of it has ended."""
    deadline = time.monotonic() + float(os.environ.get("WAIT_S", "150"))
    while True:
        found = states(run.Experiment.from_id(experiment_id))
        if set(found.values()) <= ENDED or time.monotonic() > deadline:
            return found
        time.sleep(0.5)
