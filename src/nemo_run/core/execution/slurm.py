"""Run on a Slurm cluster, on whose login node we are or which is reached over ssh."""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run.config import RUNDIR_NAME
from nemo_run.core.execution import _slurm_interactive
from nemo_run.core.execution._slurm_batch import SlurmBatchRequest as SlurmBatchRequest
from nemo_run.core.execution._slurm_batch import first_number
from nemo_run.core.execution._slurm_containers import RUNDIR, Runtime, check_runtime
from nemo_run.core.execution._slurm_directives import SBATCH_FLAGS, flag
from nemo_run.core.execution.base import NEW, Capabilities, Executor, ExecutorMacros
from nemo_run.core.execution.launcher import (
    FaultTolerance,
    Launcher,
    SlurmTemplate,
    Torchrun,
)
from nemo_run.core.packaging.base import Packager
from nemo_run.core.packaging.git import GitArchivePackager
from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

    from nemo_run.core.execution.checks import Finding
    from nemo_run.core.execution.leftovers import Leftover

noquote = str
"""Kept for scripts that mark a value with it; everything is quoted where it has to be."""


def _as_sbatch_flag(key: str, value: Any) -> str:
    return f"#SBATCH {flag(key, value)}"


def get_packaging_job_key(experiment_id: str, job_name: str) -> str:
    """Return what the code of a job is called among those of its tunnel."""
    return f"{experiment_id}:{job_name}"


@dataclass(kw_only=True)
class SlurmJobDetails:
    """Names and places of what Slurm writes; override its properties to choose others.

    ``%j`` is the number of the job. ``folder`` and ``job_name`` are filled in when a job is
    planned.
    """

    job_name: str | None = None
    folder: str | None = None
    ray_log_prefix: str = "ray-"

    @property
    def stdout(self) -> Path:
        return self._folder / f"sbatch_{self.job_name}_%j.out"

    @property
    def stderr(self) -> Path:
        return self._folder / f"sbatch_{self.job_name}_%j.err"

    @property
    def srun_stdout(self) -> Path:
        return self._folder / f"log-{self.job_name}_%j_${{SLURM_RESTART_COUNT:-0}}.out"

    @property
    def srun_stderr(self) -> Path:
        return self._folder / f"log-{self.job_name}_%j_${{SLURM_RESTART_COUNT:-0}}.err"

    @property
    def ls_term(self) -> str:
        """What to list on the cluster to find the logs."""
        return str(self._folder / "log*")

    @property
    def _folder(self) -> Path:
        if not self.folder:
            raise ConfigError(
                f"{type(self).__name__} has no folder yet. Planning a job sets it, or set it."
            )
        return Path(self.folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder})"


@dataclass(kw_only=True)
class SlurmExecutor(Executor):
    """Submits each job with ``sbatch``; a group of tasks is one job with a step for each.

    Fields named like an option of ``sbatch`` are passed on to it, and ``additional_parameters``
    takes every other one. Nothing but Slurm itself is needed on the cluster: neither accounting
    nor containers.

    Attributes:
        tunnel: how to get to a machine that has ``sbatch``; this one by default. Its ``job_dir``
            is where jobs live on the cluster, in a file system that all nodes see.
        container_image: run the tasks in this image; without one they run on the nodes as they are.
        container_runtime: what runs the image: ``pyxis`` (the default), ``apptainer``,
            ``singularity``, ``podman`` or ``docker``.
        container_mounts: ``from:to``; ``/$nemo_run`` stands for the job directory.
        container_env: variables whose values win over those of the image.
        additional_parameters: further options of ``sbatch`` by name; True for one without a value.
        srun_args: further options of ``srun``.
        setup_lines: lines of bash that run before the tasks.
        heterogeneous: each task of a group has nodes of its own kind.
        het_group_indices: which het group each task belongs to; tasks may share one.
        dependencies, dependency_type: handles of jobs that Slurm lets end first, and how.
        wait_time_for_group_job: seconds between the starts of two tasks of a group.
        monitor_group_job: when a task of a group has ended, end the others
            ``monitor_group_job_wait_time`` seconds later.
        torchrun_nproc_per_node: how many processes torchrun starts on each node.
        rank_logs: give each task of a step a log of its own.
        time_limit_s: end an attempt that takes longer, to the second; the job has then failed.
            ``time``, which Slurm counts in minutes, follows it.
    """

    SCHEDULER: ClassVar[str] = "slurm_tunnel"
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(
        detach=True,
        dependencies=True,
        groups=True,
        merged_groups=True,
        retries=True,
        time_limit=True,
        poll_s=(0.25, 60.0),
        batch=64,
    )

    HEAD_NODE_IP_VAR: ClassVar[str] = "head_node_ip"
    NPROC_PER_NODE_VAR: ClassVar[str] = "SLURM_NTASKS_PER_NODE"
    NUM_NODES_VAR: ClassVar[str] = "SLURM_NNODES"
    NODE_RANK_VAR: ClassVar[str] = "SLURM_NODEID"
    HET_GROUP_HOST_VAR: ClassVar[str] = "het_group_host"

    SBATCH_FLAGS: ClassVar[list[str]] = SBATCH_FLAGS
    SRUN_ARGS: ClassVar[list[str]] = _slurm_interactive.SRUN_ARGS
    ALLOC_ARGS: ClassVar[list[str]] = _slurm_interactive.ALLOC_ARGS

    @dataclass(kw_only=True)
    class ResourceRequest:
        """What one task of a group asks for."""

        packager: Packager
        nodes: int
        ntasks_per_node: int
        container_image: str | None = None
        gpus_per_node: int | None = None
        gpus_per_task: int | None = None
        container_mounts: list[str] = field(default_factory=list)
        container_env: list[str] | None = None
        env_vars: dict[str, str] = field(default_factory=dict, repr=False)
        srun_args: list[str] | None = None
        job_details: SlurmJobDetails = field(default_factory=SlurmJobDetails)
        het_group_index: int | None = None

    account: str
    partition: str | None = None
    job_name_prefix: str | None = None
    time: str = "00:10:00"
    nodes: int = 1
    ntasks_per_node: int = 1
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    qos: str | None = None
    mem: str | None = None
    mem_per_gpu: str | None = None
    mem_per_cpu: str | None = None
    comment: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    gres: str | None = None
    signal: str | None = None
    exclusive: bool | str | None = None
    array: str | None = None
    open_mode: str = "append"
    container_image: str | None = None
    container_mounts: list[str] = field(default_factory=list)
    container_env: list[str] | None = None
    additional_parameters: dict[str, Any] | None = None
    srun_args: list[str] | None = None
    heterogeneous: bool = False
    memory_measure: bool = False
    job_details: SlurmJobDetails = field(default_factory=SlurmJobDetails)
    tunnel: SSHTunnel | LocalTunnel = field(default_factory=lambda: LocalTunnel(job_dir=""))
    packager: Packager = field(default_factory=GitArchivePackager)
    dependencies: list[str] = field(default_factory=list)
    dependency_type: str = "afterok"
    torchrun_nproc_per_node: int | None = None
    wait_time_for_group_job: int = 30
    monitor_group_job: bool = True
    monitor_group_job_wait_time: int = 60
    setup_lines: str | None = None
    het_group_indices: list[int] | None = None
    segment: int | None = None
    network: str | None = None
    ray_template: str = "ray.sub.j2"
    poll_estimated_start_time: bool = True
    container_runtime: Runtime | None = field(default=None, metadata=NEW)
    rank_logs: bool = field(default=False, metadata=NEW)
    time_limit_s: float | None = field(default=None, metadata=NEW)
    job_name: str = field(init=False, default="nemo-job")
    stderr_to_stdout: bool = field(init=False, default=True)
    resource_group: list[ResourceRequest] = field(init=False, default_factory=list)
    run_as_group: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.wait_time_for_group_job = max(0, self.wait_time_for_group_job)
        check_runtime(self.container_runtime)
        given = (self.additional_parameters or {}).get("array")
        if given is not None and self.array is None:
            # Said the other way: elements are waited for, and their logs found, either way.
            self.array = str(given)

    @classmethod
    def merge(cls, executors: Sequence[Self], num_tasks: int) -> Self:
        """Return one executor for a group of tasks; those given stay as they are.

        Raises:
            ConfigError: their number does not fit, or the het groups do not.
        """
        if len(executors) not in (1, num_tasks):
            raise ConfigError(
                f"{len(executors)} executors do not fit {num_tasks} tasks. "
                "Give one for all, or one for each."
            )
        main = copy.deepcopy(executors[0])
        main.run_as_group = True
        if len(executors) == 1 and not main.heterogeneous:
            main.resource_group = []
            return main
        members = list(executors) if len(executors) == num_tasks else [*executors] * num_tasks
        indices = _checked_indices(main, num_tasks)
        main.resource_group = [
            executor._resource_request(None if indices is None else indices[position])
            for position, executor in enumerate(members)
        ]
        return main

    def _resource_request(self, het_group_index: int | None) -> ResourceRequest:
        names = {item.name for item in dataclasses.fields(self.ResourceRequest)}
        values = {name: copy.deepcopy(getattr(self, name)) for name in names if hasattr(self, name)}
        values["ntasks_per_node"] = self.tasks_per_node()
        return self.ResourceRequest(**values, het_group_index=het_group_index)

    def info(self) -> str:
        return f"{super().info()} on {self.tunnel.key}"

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        self.tunnel = copy.deepcopy(self.tunnel)
        if self.experiment_id:
            self.tunnel.job_dir = _without(self.tunnel.job_dir, self.experiment_id)
        self.tunnel._set_job_dir(exp_id)
        self.experiment_id = exp_id
        self.experiment_dir = exp_dir
        self.job_dir = str(Path(exp_dir) / task_dir)
        self.job_name = task_id

    @property
    def remote_dir(self) -> str:
        """Where the job lives on the cluster."""
        if not self.job_dir:
            return ""
        return _inside(self.tunnel.job_dir, self.job_dir)

    def package_configs(self, *cfgs: tuple[str, str]) -> list[str]:
        super().package_configs(*cfgs)
        return [f"{RUNDIR}/configs/{name}" for name, _ in cfgs]

    def package(self, packager: Packager, job_name: str) -> None:
        """Collect the code that travels; it is unpacked on the cluster, which keeps it by hash."""
        from nemo_run.core.packaging._staging import stage

        if not self.linked_code:
            stage(packager, self.job_dir, job_name)

    @property
    def linked_code(self) -> str | None:
        """The directory on the cluster that is the job's code, where none is sent."""
        return self.packager.symlink_from_remote_dir

    def rundir(self) -> str | None:
        return None if self.container_image else self.remote_dir

    def macro_values(self) -> ExecutorMacros:
        return ExecutorMacros(
            head_node_ip_var=self.HEAD_NODE_IP_VAR,
            nproc_per_node_var=self.NPROC_PER_NODE_VAR,
            num_nodes_var=self.NUM_NODES_VAR,
            node_rank_var=self.NODE_RANK_VAR,
            het_group_host_var=self.HET_GROUP_HOST_VAR,
        )

    def nnodes(self) -> int:
        return first_number(self.nodes)

    def nproc_per_node(self) -> int:
        if self.torchrun_nproc_per_node:
            return self.torchrun_nproc_per_node
        tasks = first_number(self.ntasks_per_node)
        if tasks == 1 and self.gpus_per_node:
            return self.gpus_per_node
        if tasks > 1 and self._starts_once_a_node:
            return tasks
        return self.gpus_per_task or tasks

    def tasks_per_node(self) -> int:
        """Return how many processes Slurm itself starts on a node: one, where a launcher follows.

        ``ntasks_per_node`` is then how many the launcher starts.
        """
        return 1 if self._starts_once_a_node else self.ntasks_per_node

    @property
    def _starts_once_a_node(self) -> bool:
        return isinstance(super().get_launcher(), (Torchrun, FaultTolerance))

    def get_launcher(self) -> Launcher:
        launcher = super().get_launcher()
        if not isinstance(launcher, FaultTolerance) or not self.job_dir:
            return launcher
        return dataclasses.replace(
            launcher,
            cfg_path=launcher.cfg_path or f"{self.remote_dir}/{self.job_name}_ft_cfg.yml",
            finished_flag_file=launcher.finished_flag_file
            or f"{RUNDIR}/{self.job_name}_finished_flag",
            job_results_file=launcher.job_results_file
            or f"{self.remote_dir}/{self.job_name}_job_results",
        )

    def get_launcher_prefix(self) -> list[str] | None:
        launcher = self.get_launcher()
        prefix = launcher.get_nsys_prefix(profile_dir=RUNDIR)
        if prefix is None:
            return None
        (Path(self.job_dir) / launcher.nsys_folder).mkdir(parents=True, exist_ok=True)
        return [*prefix, "$GPU_METRICS_FLAG"] if launcher.nsys_gpu_metrics else prefix

    def get_nsys_entrypoint(self) -> tuple[str, str]:
        if not self.get_launcher().nsys_gpu_metrics:
            return "nsys", ""
        return _slurm_interactive.NSYS_WITH_GPU_METRICS, "'"

    def supports_launcher_transform(self) -> bool:
        return isinstance(self.get_launcher(), SlurmTemplate)

    def get_ready(self) -> None:
        """Connect to the cluster, where that asks nobody for a password or a code."""
        if isinstance(self.tunnel, SSHTunnel):
            self.tunnel.connect_unasked()

    def held_back(self, before: Sequence[tuple[Executor, str]], run_if: str) -> Self | None:
        kind = {"succeeded": "afterok", "ended": "afterany"}.get(run_if)
        elsewhere = any(
            not isinstance(executor, SlurmExecutor) or executor._cluster != self._cluster
            for executor, _ in before
        )
        # Slurm's own words for several conditions cannot say what the user's may mean.
        if kind is None or elsewhere or self.dependencies:
            return None
        held = copy.deepcopy(self)
        held.dependencies = [handle for _, handle in before]
        held.dependency_type = kind
        return held

    @property
    def _cluster(self) -> tuple[str, int | None]:
        return self.tunnel.key, getattr(self.tunnel, "port", None)

    def parse_deps(self) -> list[str]:
        """Return the numbers of the jobs that Slurm lets end first."""
        return [handle.rpartition("/")[2].partition("@")[0] for handle in self.dependencies]

    def diagnose(self) -> Iterator[Finding]:
        """Yield whether the cluster can be reached and would take a job like this."""
        from nemo_run.core.execution._slurm_checks import diagnose

        return diagnose(self)

    def leftovers(self, handle: str) -> Iterator[Leftover]:
        """Yield the directory of the experiment on the cluster, where that is not the one here."""
        from nemo_run.core.execution.leftovers import Leftover

        directory = PurePosixPath(self.tunnel.job_dir)
        id = self.experiment_id or ""
        is_of_experiment = directory.parts[-2:] == (id.rpartition("_")[0] or id, id)
        is_here = (
            isinstance(self.tunnel, LocalTunnel) and Path(directory) == Path(self.job_dir).parent
        )
        if id and is_of_experiment and not is_here:
            argv = ["rm", "-rf", "--", str(directory)]
            where = self.tunnel.key.strip("@")
            yield Leftover(f"directory {directory} on {where}", lambda: self.tunnel.run(argv))

    # By hand, on a cluster.

    @property
    def local(self) -> LocalTunnel:
        return LocalTunnel(job_dir="")

    @property
    def local_is_slurm(self) -> bool:
        """Whether this machine has Slurm's commands."""
        return _slurm_interactive.is_here()

    @property
    def slurm(self) -> SSHTunnel | LocalTunnel:
        """The way to Slurm's commands, connected."""
        if self.local_is_slurm:
            return self.local
        self.tunnel.connect()
        return self.tunnel

    def alloc(self, job_name: str = "interactive") -> None:
        """Open a shell with nodes of our own."""
        self.slurm.run(_slurm_interactive.salloc(self, job_name), pty=True, hide=False, warn=True)

    def srun(
        self,
        cmd: str,
        job_name: str = "interactive",
        flags: list[str] | None = None,
        env_vars: dict[str, str] | None = None,
        arg_dict: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a command line on nodes of its own, and wait for it.

        ``arg_dict`` wins over our own fields; ``kwargs`` go to the tunnel's ``run``.
        """
        line = _slurm_interactive.srun(self, cmd, job_name, flags, env_vars, arg_dict)
        slurm = self.slurm
        if env_vars:
            line = _slurm_interactive.with_variables(slurm, env_vars, line)
        return slurm.run(line, **{"pty": True, "hide": False, **kwargs})

    def bash(self, job_name: str = "interactive") -> None:
        """Open a shell on a node."""
        self.srun("bash", job_name=job_name)


def in_place_of_rundir(text: str, directory: str | None) -> str:
    """Return ``text`` with ``/nemo_run``, where a path starts with it, replaced."""
    if directory is None:
        return text
    return _RUNDIR.sub(lambda _: directory, text)


_RUNDIR = re.compile(rf"(?<![\w./}}~-])/{RUNDIR_NAME}(?![\w-]|\.\w)")


@functools.lru_cache(maxsize=1024)  # it is asked for dozens of times for each job
def _inside(directory: str, job_dir: str) -> str:
    return str(PurePosixPath(directory) / Path(job_dir).name)


def _without(directory: str, experiment_id: str) -> str:
    """Return the directory that an earlier experiment's was made below."""
    title = experiment_id.rpartition("_")[0]
    return directory.removesuffix(f"{title}/{experiment_id}").rstrip("/") or directory


def _checked_indices(executor: SlurmExecutor, num_tasks: int) -> list[int] | None:
    indices = executor.het_group_indices
    if indices is None:
        return None
    if not executor.heterogeneous:
        raise ConfigError("het_group_indices needs heterogeneous=True.")
    if len(indices) != num_tasks:
        raise ConfigError(f"het_group_indices={indices} does not fit {num_tasks} tasks.")
    if indices != sorted(indices):
        raise ConfigError(f"het_group_indices={indices} must not go down.")
    return indices
