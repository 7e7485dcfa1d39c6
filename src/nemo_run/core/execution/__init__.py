"""Executors: where a task runs and what to ask for there."""

from nemo_run.core.execution.dgxcloud import DGXCloudExecutor
from nemo_run.core.execution.lepton import LeptonExecutor
from nemo_run.core.execution.local import LocalExecutor

__all__ = ["DGXCloudExecutor", "LeptonExecutor", "LocalExecutor"]
