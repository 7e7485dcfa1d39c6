"""A Slurm job that is a Ray cluster, with a command on it or without."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from nemo_run import _shell
from nemo_run._backends.slurm.batch import SlurmBatchRequest, first_number
from nemo_run._backends.slurm.containers import RUNDIR, Container
from nemo_run._backends.slurm.log_paths import LogPath, fill_in
from nemo_run._backends.slurm.script import beginning
from nemo_run.core.execution.utils import fill_template
from nemo_run.exceptions import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from nemo_run.core.execution.slurm import SlurmJobDetails

TRIES = 3
"""How often the head is started before the cluster has failed; each try has other ports."""
UNITS = "worker_units"
"""Resource that every node of a cluster brings: one for each of its GPUs, or one."""

_GPUS = re.compile(r"\bgpu(?::[A-Za-z][\w.-]*)?(?::|=)(\d+)")
_SHARED_FILES = (None, "pyxis", "apptainer", "singularity")


@dataclass(kw_only=True, repr=False)  # the one of its base shows no secret
class RayBatch(SlurmBatchRequest):
    """The first of ``jobs`` is the Ray job; others run beside it.

    Attributes:
        cluster_dir: on the cluster, in a file system that all nodes see.
        command: a line for bash, run on the first node; empty for a cluster that waits for jobs.
        workdir: where the command, and Ray, start; by default the code of the job.
        before_ray: lines of bash that every node runs before Ray starts there.
        template_name, template_dir: of the script.
    """

    cluster_dir: str
    command: str = ""
    workdir: str = ""
    before_ray: Sequence[str] = ()
    template_name: str = "ray.sub.j2"
    template_dir: str | None = None
    nemo_run_dir: str | None = None

    @classmethod
    def around(cls, request: SlurmBatchRequest) -> RayBatch:
        """Return a planned job whose first task is the job of a Ray cluster on its nodes."""
        names = [item.name for item in dataclasses.fields(SlurmBatchRequest)]
        return cls(
            **{name: getattr(request, name) for name in names},
            cluster_dir=request.remote_dir,
            command=_shell.render(request.command_groups[0], expand=request.macro_names()),
            template_name=request.executor.ray_template,
        )

    def tasks_of(self, position: int) -> int:
        return super().tasks_of(position) if position else 1

    @property
    def remote_dir(self) -> str:
        return self.cluster_dir

    def details_of(self, position: int) -> SlurmJobDetails:
        details = super().details_of(position)
        if details.folder == self.remote_dir:
            details.folder = f"{self.remote_dir}/logs"
        return details

    def folders(self) -> list[str]:
        return [str(self.details_of(0).folder)]

    def log_of(self, position: int) -> LogPath:
        name = f"overlap-{position}.out" if position else "job.log"
        return self._ray_log(name)

    def _ray_log(self, name: str) -> LogPath:
        details = self.details_of(0)
        path = f"{details.folder}/{details.ray_log_prefix}{name}"
        return LogPath.below(self.remote_dir, path).checked()

    def materialize(self) -> str:
        """Return the batch script."""
        self._check()
        fill_in(self.executor.job_details, self.job_details)
        directory = self.template_dir or str(resources.files("nemo_run.run.ray") / "templates")
        return fill_template(self.template_name, self._values(), directory)

    def _check(self) -> None:
        if self.executor.array:
            raise UnsupportedError("A Ray cluster cannot be an array of jobs. Leave array out.")
        runtime = self.executor.container_runtime
        if self.executor.container_image and runtime not in _SHARED_FILES:
            raise UnsupportedError(
                f"Ray's processes of one node need each other's files, which container_runtime="
                f"{runtime!r} keeps apart. Use 'pyxis' or 'apptainer'."
            )
        if self.executor.heterogeneous and self.executor.run_as_group:
            group = self.executor.resource_group
            if not group or first_number(group[0].nodes) < 1:
                raise ConfigError("The first task of a heterogeneous Ray cluster needs a node.")

    def _values(self) -> dict[str, Any]:
        gpus = self.gpus_per_node
        limit = self.executor.time_limit_s
        return {
            "beginning": "\n".join(beginning(self)),
            "cluster_dir": _shell.render([self.remote_dir]),
            "log_dir": _shell.render([str(self.details_of(0).folder)]),
            "job_log": "\n".join(self.log_of(0).assignments("ray_job_log", array=False)),
            "head_log": "\n".join(self._ray_log("head.log").assignments("ray_log", array=False)),
            "before_ray": "\n".join(self.before_ray),
            "command": _shell.render([self.command]) if self.command else "",
            "gpus": "" if gpus is None else gpus,
            "units": gpus or 1,
            "tries": max(TRIES, self.max_retries),
            "steps": _shell.render(self._step_options()) if self._step_options() else "",
            "in_head": _shell.render(self._container("head").srun_options(), {"SLURM_JOB_ID"}),
            "in_worker": _shell.render(self._container("worker").srun_options(), {"SLURM_JOB_ID"}),
            "again": _shell.render(self._again().srun_options(), {"SLURM_JOB_ID"}),
            "wrapper": _shell.render(self._container("head").wrapped([])),
            "command_options": _shell.render(self.srun_args_of(0)),
            "environment": "env-0" if self.task_env[0] else "",
            "beside": self._beside(),
            "time_limit": "" if limit is None else f"{limit:g}",
        }

    @property
    def gpus_per_node(self) -> int | None:
        """How many GPUs were asked for on each node; None where that was not said."""
        executor = self.executor
        if executor.gpus_per_node is not None:
            return first_number(executor.gpus_per_node)
        if executor.gpus_per_task is not None:
            return first_number(executor.gpus_per_task) * first_number(executor.ntasks_per_node)
        found = _GPUS.search(executor.gres or "")
        return int(found[1]) if found else None

    def _step_options(self) -> list[str]:
        return ["--het-group=0"] if self.executor.heterogeneous and self._is_group else []

    @property
    def _is_group(self) -> bool:
        return self.executor.run_as_group and len(self.command_groups) > 1

    def _container(self, role: str) -> RayContainer:
        executor = self.executor
        here = [path for path in (self.remote_dir, str(self.details_of(0).folder)) if path]
        # What is below the directory of the cluster is there with it.
        folders = [path for path in here if path == here[0] or not path.startswith(f"{here[0]}/")]
        return RayContainer(
            image=executor.container_image,
            runtime=executor.container_runtime,
            mounts=[*executor.container_mounts, *(f"{path}:{path}" for path in folders)],
            env=executor.container_env,
            job_dir=self.nemo_run_dir or self.remote_dir,
            gpus=bool(self.gpus_per_node),
            name=f"ray-{role}-$SLURM_JOB_ID",
            workdir=self._workdir,
        )

    def _again(self) -> RayContainer:
        """Return the container of the head, for a step that joins it."""
        return dataclasses.replace(self._container("head"), joins=True)

    @property
    def _workdir(self) -> str:
        if self.workdir:
            return self.workdir
        return f"{RUNDIR}/code" if self.executor.container_image else f"{self.remote_dir}/code"

    def _beside(self) -> list[dict[str, str]]:
        """Return the steps of the other tasks, on nodes of the cluster or their own."""
        found = []
        for position in range(1, len(self.command_groups)):
            het = self.executor.heterogeneous and self._is_group
            options = [
                *([f"--het-group={position}"] if het else []),
                *self.container_of(position).srun_options(),
                *("--wait=60", "--kill-on-bad-exit=1"),
                *self.srun_args_of(position),
            ]
            argv = self.container_of(position).wrapped(self.command_groups[position])
            log = self.log_of(position)
            found.append(
                {
                    "log": "\n".join(log.assignments("ray_beside_log", array=False)),
                    "options": _shell.render(options),
                    "command": _shell.render(argv, expand=self.macro_names()),
                    "environment": f"env-{position}" if self.task_env[position] else "",
                }
            )
        return found


@dataclass(frozen=True, kw_only=True)
class RayContainer(Container):
    """A container that several steps of one node share, by a name that no other job has."""

    name: str
    workdir: str
    joins: bool = False

    def srun_options(self) -> list[str]:
        if not self.image:
            return ["--chdir", self.workdir]
        if self._runtime != "pyxis":
            return []
        options = ["--container-name", self.name, "--container-workdir", self.workdir]
        options += ["--no-container-mount-home", "--container-mounts", ",".join(self._mounts())]
        if not self.joins:
            options += ["--container-image", self.image]
        return [*options, *(["--container-env", ",".join(self.env)] if self.env else [])]

    def wrapped(self, argv: Sequence[str]) -> list[str]:
        if not self.image or self._runtime == "pyxis":
            return list(argv)
        binds = [part for mount in self._mounts() for part in ("--bind", mount)]
        gpus = ["--nv"] if self.gpus else []
        inside = [self._runtime, "exec", *gpus, *binds, "--pwd", self.workdir, self.image]
        return [*self._winning(), *inside, *argv]
