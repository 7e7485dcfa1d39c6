"""Failures that need more than a program: a cluster, an engine, or another process that meddles.

``slurm`` runs on the cluster of ``python -m tests.integration.slurm up``, ``docker`` on the engine
of ``python -m tests.integration.docker up``, with the environment that these print.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

from tests.unit.failures.scenarios import Scenario, python

import nemo_run as run

LOCAL = {
    "time-limit": Scenario("time_limit", "echo started\nsleep 60"),
    "time-limit-python": Scenario(
        "time_limit", python("import time\nprint('step 1')\ntime.sleep(60)")
    ),
    "cancelled": Scenario("cancelled", "echo started\nsleep 60"),
    "cancelled-python": Scenario("cancelled", python("import time\ntime.sleep(60)")),
    "retried": Scenario("python_error", python("raise ValueError('always the same')")),
}
_PYTHON3 = "PY=python3\n"
SLURM = {
    "exit": Scenario("exit_code", "echo 'nothing to do'\nexit 9"),
    "import": Scenario("import_error", _PYTHON3 + python("import not_on_this_node")),
    "error": Scenario("python_error", _PYTHON3 + python("raise ValueError('wrong vocabulary')")),
    "nan": Scenario("not_a_number", _PYTHON3 + python("raise ArithmeticError('nan in layer 3')")),
    "tasks": Scenario(
        "python_error",
        _PYTHON3
        + "sleep $((2 * SLURM_PROCID))\n"
        + python("import os\nraise KeyError('rank ' + os.environ['SLURM_PROCID'])"),
    ),
    "segv": Scenario("crash", _PYTHON3 + python("import ctypes\nctypes.string_at(0)")),
    "killed": Scenario("killed", "kill -9 $$"),
    "command": Scenario("command_not_found", "module-not-here load cuda"),
    "file": Scenario("missing_file", "exec cat /lustre/none/config.yaml"),
    "disk": Scenario("disk_full", "exec head -c 100000 /dev/zero > /dev/full"),
    "cancelled": Scenario("cancelled", "echo up\nsleep 300"),
    "cancelled-by-scancel": Scenario("cancelled", "echo up\nsleep 300"),
    "node-failed": Scenario("node_failure", "echo up\nsleep 300"),
    "time-limit": Scenario("time_limit", "echo up\nsleep 300"),
    "time-limit-python": Scenario(
        "time_limit", _PYTHON3 + python("import time\nprint('up', flush=True)\ntime.sleep(300)")
    ),
}
DOCKER = {
    "exit": Scenario("exit_code", "echo 'nothing to do'\nexit 9"),
    "import": Scenario("import_error", _PYTHON3 + python("import not_in_this_image")),
    "error": Scenario("python_error", _PYTHON3 + python("raise ValueError('wrong vocabulary')")),
    "memory": Scenario(
        "out_of_memory",
        _PYTHON3 + python("rows = []\nwhile True:\n    rows.append(bytearray(b'x') * (1 << 22))"),
    ),
    "killed": Scenario("killed", _PYTHON3 + python("import os\nos.kill(os.getpid(), 9)")),
    "segv": Scenario("crash", _PYTHON3 + python("import ctypes\nctypes.string_at(0)")),
    "command": Scenario("command_not_found", "nvcc-not-here --version"),
    "disk": Scenario("disk_full", "exec head -c 100000 /dev/zero > /dev/full"),
    "read-only": Scenario("missing_file", "exec touch /proc/nothing/x"),
    "cancelled": Scenario("cancelled", "echo up\nsleep 300"),
}


def executor(suite: str, name: str) -> Any:
    """Return where a program is to run."""
    if suite == "docker":
        limits = {"mem_limit": "64m", "memswap_limit": "64m"} if name == "memory" else {}
        return run.DockerExecutor(
            container_image="nemo-run-test/python:1", additional_kwargs=dict(limits)
        )
    if suite == "slurm":
        tunnel = run.SSHTunnel(host="loop", user="root", job_dir=os.environ["REMOTE_DIR"])
        time_limit = "00:01:00" if name.startswith("time-limit") else "00:10:00"
        settings: dict[str, Any] = {"ntasks_per_node": 2} if name == "tasks" else {}
        if name == "node-failed":
            settings["additional_parameters"] = {"no_requeue": True}
        return run.SlurmExecutor(
            account="all", tunnel=tunnel, time=time_limit, mem="100M", **settings
        )
    env = {key: os.environ[key] for key in ("PY", "MPIRUN", "MPIPY") if key in os.environ}
    local = run.LocalExecutor(env_vars=env)
    if name.startswith("time-limit"):
        local.time_limit_s = 2
    if name == "retried":
        local.retries = 1
    return local


def meddle(suite: str, experiment: Any) -> None:
    """End the jobs that are to be cancelled, and take away the node of one."""
    for job in experiment.jobs:
        if job.id in ("cancelled", "cancelled-python", "cancelled-by-scancel", "node-failed"):
            _wait_until_running(experiment, job.id)
        number = job.handle.rpartition("/")[2]
        if job.id == "cancelled-by-scancel":
            subprocess.run(["scancel", number], check=True)
        elif job.id.startswith("cancelled"):
            experiment.cancel(job.id)
        elif job.id == "node-failed":
            said = subprocess.run(
                ["squeue", "-h", "-j", number, "-o", "%N"],
                capture_output=True,
                text=True,
                check=True,
            )
            node = f"NodeName={said.stdout.strip()}"
            subprocess.run(["scontrol", "update", node, "State=DOWN", "Reason=x"], check=True)
            time.sleep(20)
            subprocess.run(["scontrol", "update", node, "State=RESUME"], check=False)


def _wait_until_running(experiment: Any, job: str) -> None:
    while (experiment.status(return_dict=True) or {})[job]["status"].name != "RUNNING":
        time.sleep(0.3)
