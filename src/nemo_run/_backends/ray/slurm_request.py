"""The batch script of a Ray cluster on Slurm, from plain values."""

from __future__ import annotations

import json
from dataclasses import dataclass

from nemo_run._backends.ray.runtime_env import read_settings
from nemo_run._backends.ray.slurm_batch import RayBatch
from nemo_run._backends.ray.slurm_jobs import batch_of
from nemo_run.core.execution.slurm import SlurmExecutor
from nemo_run.exceptions import ConfigError


@dataclass(kw_only=True, repr=False)
class SlurmRayRequest:
    """The batch script of a Ray cluster, from plain values.

    Attributes:
        template_dir: where the template is; by default among those that come with us.
        command: a line for bash on the first node; None for a cluster that waits for jobs.
        nemo_run_dir: what a container sees as ``/nemo_run``; by default the cluster's directory.
        command_groups: the first is the Ray job, and is told by ``command``; others run beside it.
    """

    name: str
    cluster_dir: str
    template_name: str
    template_dir: str | None = None
    executor: SlurmExecutor
    pre_ray_start_commands: list[str] | None = None
    command: str | None = None
    workdir: str | None = None
    nemo_run_dir: str | None = None
    command_groups: list[list[str]] | None = None
    launch_cmd: list[str]

    @staticmethod
    def get_job_name(executor: SlurmExecutor, name: str) -> str:
        """Return what the job is called in Slurm's queue."""
        return batch_of(executor, name, "/").slurm_name

    def materialize(self) -> str:
        """Return the script, which has all in it that it needs, variables, too."""
        return self.batch().materialize()

    def batch(self, tag: str = "") -> RayBatch:
        """Return the job; with a tag its variables are in files of their own."""
        batch = batch_of(
            self.executor, self.name, self.cluster_dir, tag=tag, command=self.command or ""
        )
        batch.launch_cmd = list(self.launch_cmd)
        batch.template_name, batch.template_dir = self.template_name, self.template_dir
        batch.before_ray = self.pre_ray_start_commands or []
        batch.workdir = self.workdir or self.cluster_dir
        batch.nemo_run_dir = self.nemo_run_dir
        others = (self.command_groups or [])[1:]
        batch.command_groups += [list(argv) for argv in others]
        batch.jobs += [f"{self.name}-{n}" for n in range(1, len(others) + 1)]
        batch.task_env = [{} for _ in batch.command_groups]
        return batch

    def __repr__(self) -> str:
        # With a tag, so that no value of a variable is in the script.
        return repr(self.batch(tag="nr-"))


def job_config(runtime_env_yaml: str) -> str:
    """Return what tells a driver its runtime environment, from a YAML file or its text."""
    settings = read_settings(runtime_env_yaml)
    for name in ("working_dir", "py_modules"):
        if name in settings:
            raise ConfigError(
                f"runtime_env_yaml has {name}, but on Slurm the code is sent as workdir. "
                "Leave it out."
            )
    return json.dumps({"runtime_env": settings})
