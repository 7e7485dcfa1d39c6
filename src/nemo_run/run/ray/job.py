"""A command on a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from nemo_run.config import USE_WITH_RAY_CLUSTER_KEY, Script
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import UnsupportedError
from nemo_run.run.ray._choice import backend_class, show_log_lines
from nemo_run.run.ray._known import remember


@dataclass(kw_only=True)
class RayJob:
    """A Ray job, known by its name and executor to every process that has both.

    Attributes:
        pre_ray_start_commands: for `start`, where it is given none.
        cluster_name, cluster_ready_timeout: for executors whose jobs use a cluster that is there.
        backend: what starts and ends it; its class depends on that of the executor.
    """

    name: str
    executor: Executor
    pre_ray_start_commands: list[str] | None = None
    log_level: str = "INFO"
    cluster_name: str | None = None
    cluster_ready_timeout: int | None = 1800
    backend: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        show_log_lines(self.log_level)
        made = backend_class(self.executor, job=True)
        settings: dict[str, Any] = {"name": self.name, "executor": self.executor}
        if any(item.name == "cluster_name" for item in fields(made)):
            settings["cluster_name"] = self.cluster_name
            settings["cluster_ready_timeout"] = self.cluster_ready_timeout
        self.backend = made(**settings)

    def start(
        self,
        command: str,
        workdir: str,
        runtime_env_yaml: str | None = None,
        pre_ray_start_commands: list[str] | None = None,
        dryrun: bool = False,
    ) -> Any:
        """Send the code, start a cluster and have ``command``, a line for bash, run on it.

        Returns what the backend calls the job.
        """
        if not dryrun:
            remember("job", self.name, self.executor, cluster_name=self.cluster_name)
        return self.backend.start(
            command=command,
            workdir=workdir,
            runtime_env_yaml=runtime_env_yaml,
            pre_ray_start_commands=pre_ray_start_commands or self.pre_ray_start_commands,
            dryrun=dryrun,
        )

    def as_task(self, command: str) -> Script:
        """Return the job as a task of an experiment, to be added with the executor of this job.

        The experiment then sends the code, keeps the order, and starts a cluster for the command:
        ``exp.add(job.as_task("python train.py"), executor=job.executor, name=job.name)``.

        Raises:
            UnsupportedError: the executor has no clusters for tasks, or the job has settings that
                a task has no place for.
        """
        if self.executor.SCHEDULER != "slurm_tunnel":
            raise UnsupportedError(
                f"{type(self.executor).__name__} starts no Ray cluster for a task of an "
                "experiment. Use a SlurmExecutor, or a RayExecutor and a cluster that is there."
            )
        if self.pre_ray_start_commands:
            raise UnsupportedError(
                "pre_ray_start_commands are for RayJob.start, not for a task of an experiment. "
                "Use setup_lines of the SlurmExecutor."
            )
        return Script(inline=command, metadata={USE_WITH_RAY_CLUSTER_KEY: True})

    def stop(self, wait: bool = False) -> Any:
        """End the job; with ``wait`` return when it has ended."""
        return self.backend.stop(wait=wait)

    def status(self, display: bool = True) -> Any:
        """Return what is known of the job now."""
        return self.backend.status(display=display)

    def logs(self, *, follow: bool = False, lines: int = 100, timeout: int = 100) -> None:
        """Print the last ``lines`` of the job's log, and with ``follow`` what comes until its end.

        ``timeout`` is how many seconds to wait for a log that is not there yet.
        """
        self.backend.logs(follow=follow, lines=lines, timeout=timeout)
