"""Executors: where a task runs and what to ask for there."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # One backend does not make the others be loaded.
        import nemo_run

        return getattr(nemo_run, name)
