"""Executors: where a task runs and what to ask for there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_run._later import on_demand

if TYPE_CHECKING:
    from nemo_run.core.execution.dgxcloud import DGXCloudExecutor
    from nemo_run.core.execution.kubeflow import KubeflowExecutor
    from nemo_run.core.execution.lepton import LeptonExecutor
    from nemo_run.core.execution.local import LocalExecutor
    from nemo_run.core.execution.skypilot import SkypilotExecutor
    from nemo_run.core.execution.slurm import SlurmExecutor

__all__ = [
    "DGXCloudExecutor",
    "KubeflowExecutor",
    "LeptonExecutor",
    "LocalExecutor",
    "SkypilotExecutor",
    "SlurmExecutor",
]

if not TYPE_CHECKING:  # to a type checker, any name would exist
    _module = on_demand(
        __name__,
        "base",
        "checks",
        "dgxcloud",
        "docker",
        "kubeflow",
        "launcher",
        "leftovers",
        "lepton",
        "local",
        "ray",
        "skypilot",
        "skypilot_jobs",
        "slurm",
        "utils",
    )

    def __getattr__(name):
        if name not in __all__:
            return _module(name)
        # One backend does not make the others be loaded.
        import nemo_run

        return getattr(nemo_run, name)
