"""Which scheduler runs the jobs of which executor, of those that come with nemo_run."""

from __future__ import annotations

from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.dgxcloud import DGXCloudExecutor
from nemo_run.core.execution.docker import DockerExecutor
from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.core.execution.lepton import LeptonExecutor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.execution.ray import RayExecutor
from nemo_run.core.execution.skypilot import SkypilotExecutor
from nemo_run.core.execution.skypilot_jobs import SkypilotJobsExecutor
from nemo_run.core.execution.slurm import SlurmExecutor

EXECUTOR_MAPPING: dict[type[Executor], str] = {
    kind: kind.SCHEDULER
    for kind in (
        LocalExecutor,
        SlurmExecutor,
        SkypilotExecutor,
        SkypilotJobsExecutor,
        DGXCloudExecutor,
        LeptonExecutor,
        KubeflowExecutor,
        DockerExecutor,
        RayExecutor,
    )
}
REVERSE_EXECUTOR_MAPPING: dict[str, type[Executor]] = {v: k for k, v in EXECUTOR_MAPPING.items()}
