"""Run on this machine."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from nemo_run._backends.local.spec import SlotRequest
from nemo_run.core.execution.base import NEW, Capabilities, Executor
from nemo_run.core.execution.checks import Finding
from nemo_run.core.execution.devspaces import RunsDevSpaces
from nemo_run.core.execution.launcher import Torchrun
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class LocalExecutor(RunsDevSpaces, Executor):
    """Runs each task as a process of this machine, in the current directory.

    A job outlives the process that launched it. Python tasks use the interpreter that launched
    them.

    Attributes:
        ntasks_per_node: how many processes torchrun starts.
        nodes: more than one needs ``MASTER_ADDR``, ``MASTER_PORT`` and ``NODE_RANK`` to be set.
        time_limit_s: end an attempt that takes longer; the job has then failed.
        gpus: wait until that many GPUs of this machine are not used by other jobs of ours, and
            show the task only those.
        jobs_at_a_time: wait while that many jobs, of all that state this, are running.
        separate_streams: keep stdout and stderr in files of their own; the order between them is
            then not known.
    """

    SCHEDULER: ClassVar[str] = "local_persistent"
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(
        detach=True,
        groups=True,
        local_paths=True,
        retries=True,
        time_limit=True,
        poll_s=(0.02, 0.2),
    )

    ntasks_per_node: int = 1
    nodes: int = 1
    time_limit_s: float | None = field(default=None, metadata=NEW)
    gpus: int = field(default=0, metadata=NEW)
    jobs_at_a_time: int | None = field(default=None, metadata=NEW)
    separate_streams: bool = field(default=False, metadata=NEW)

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        self._belong_to(exp_id, exp_dir, task_dir)

    def nnodes(self) -> int:
        return self.nodes

    def nproc_per_node(self) -> int:
        return self.ntasks_per_node

    def python(self) -> str:
        return sys.executable

    def package(self, packager: Packager, job_name: str) -> None:
        """Leave the code where it is: jobs start in the user's directory."""

    def slots(self, environ: Mapping[str, str]) -> tuple[SlotRequest, ...]:
        """Return what a job has to wait for.

        Raises:
            ConfigError: this machine does not have as many GPUs as were asked for.
        """
        wanted = []
        if self.gpus:
            names = _gpu_names(environ)
            if not 0 < self.gpus <= len(names):
                raise ConfigError(
                    f"gpus={self.gpus} was asked for, but this machine has {len(names)} that we "
                    "may use. See CUDA_VISIBLE_DEVICES."
                )
            wanted.append(SlotRequest.gpus(self.gpus, names))
        if self.jobs_at_a_time is not None:
            if self.jobs_at_a_time < 1:
                raise ConfigError(f"jobs_at_a_time={self.jobs_at_a_time} would run none. Use 1.")
            wanted.append(SlotRequest.jobs(self.jobs_at_a_time))
        return tuple(wanted)

    def queues(self) -> bool:
        return bool(self.gpus) or self.jobs_at_a_time is not None

    def diagnose(self) -> Iterator[Finding]:
        """Yield whether this machine has what is asked for."""
        try:
            self.slots(os.environ)
        except ConfigError as err:
            yield Finding("slots", "failed", str(err))
        else:
            yield Finding("slots", "ok", f"{self.gpus} GPUs asked for")
        launcher = self.launcher_in_use()
        if isinstance(launcher, Torchrun) and shutil.which("torchrun") is None:
            advice = "Install torch in the environment that launches."
            yield Finding("launcher", "failed", "torchrun is not on the PATH.", advice)


def _gpu_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that this process may use."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name.strip() for name in visible.split(",") if name.strip())
    numbers = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia*"))
    return tuple(sorted((n for n in numbers if n.isdecimal()), key=int))
