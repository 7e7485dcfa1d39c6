"""Run on this machine."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nemo_run.core.execution.base import Capabilities, Executor

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class LocalExecutor(Executor):
    """Runs each task as a process of this machine, in the current directory.

    A job outlives the process that launched it. Python tasks use the interpreter that launched
    them.

    Attributes:
        ntasks_per_node: how many processes torchrun starts.
        nodes: more than one needs ``MASTER_ADDR``, ``MASTER_PORT`` and ``NODE_RANK`` to be set.
        time_limit_s: end an attempt that takes longer; the job has then failed.
    """

    SCHEDULER: ClassVar[str] = "local_persistent"
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(
        detach=True, groups=True, local_paths=True, retries=True, time_limit=True
    )

    ntasks_per_node: int = 1
    nodes: int = 1
    time_limit_s: float | None = None

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        self.experiment_id = exp_id
        self.experiment_dir = exp_dir
        self.job_dir = str(Path(exp_dir) / task_dir)

    def nnodes(self) -> int:
        return self.nodes

    def nproc_per_node(self) -> int:
        return self.ntasks_per_node

    def python(self) -> str:
        return sys.executable
