"""Which backend serves which executor; it is imported when its executor is used."""

from __future__ import annotations

import importlib
from typing import Any

from nemo_run.core.execution.base import Executor

_BACKENDS = {
    "SlurmExecutor": ("nemo_run.run.ray.slurm", "SlurmRayCluster", "SlurmRayJob"),
    "KubeRayExecutor": ("nemo_run.run.ray.kuberay", "KubeRayCluster", "KubeRayJob"),
    "DGXCloudExecutor": ("nemo_run.run.ray.dgxcloud", "DGXCloudRayCluster", "DGXCloudRayJob"),
    "LeptonExecutor": ("nemo_run.run.ray.lepton", "LeptonRayCluster", "LeptonRayJob"),
}


def backend_class(executor: Executor, *, job: bool) -> type[Any]:
    """Return the class for clusters, or jobs, of an executor of exactly a known class.

    Raises:
        ValueError: Ray cannot be started by this kind of executor.
    """
    kind = type(executor)
    found = _BACKENDS.get(kind.__name__)
    if found is None or not kind.__module__.startswith("nemo_run.core.execution."):
        raise ValueError(
            f"Ray cannot be started by {kind.__name__}. Use one of: {', '.join(_BACKENDS)}."
        )
    module, cluster_class, job_class = found
    chosen: type[Any] = getattr(
        importlib.import_module(module), job_class if job else cluster_class
    )
    return chosen


def show_log_lines(level: str) -> None:
    """Show what is logged from ``level`` on, where the program has not set up logging itself."""
    from nemo_run.core.frontend.console.api import configure_logging

    configure_logging(level)
