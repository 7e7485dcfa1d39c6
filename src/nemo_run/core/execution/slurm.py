"""Run on a Slurm cluster, on whose login node we are or which is reached over ssh."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run import _later
from nemo_run._backends.slurm import batch, directives, places
from nemo_run._backends.slurm import interactive as slurm_interactive
from nemo_run._backends.slurm.batch import SlurmBatchRequest as SlurmBatchRequest
from nemo_run._backends.slurm.batch import first_number
from nemo_run._backends.slurm.containers import RUNDIR, Runtime, check_runtime
from nemo_run._backends.slurm.directives import AFTER_SUCCESS, RUN_IF, SBATCH_FLAGS, flag
from nemo_run._backends.slurm.log_paths import as_given, given_values
from nemo_run._backends.slurm.script import fault_tolerance
from nemo_run.config import Config
from nemo_run.core.execution.base import NEW, Capabilities, Executor, ExecutorMacros
from nemo_run.core.execution.devspaces import RunsDevSpaces
from nemo_run.core.execution.launcher import (
    FaultTolerance,
    Launcher,
    SlurmTemplate,
    Torchrun,
)
from nemo_run.core.packaging.base import Packager
from nemo_run.core.packaging.git import GitArchivePackager
from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel
from nemo_run.core.tunnel.client import PackagingJob as PackagingJob
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

    from nemo_run._order import RunIf
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

    def __eq__(self, other: object) -> bool:
        # What planning has filled in does not make an executor another one.
        if not isinstance(other, SlurmJobDetails) or type(other) is not type(self):
            return NotImplemented
        return given_values(self) == given_values(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder})"


@dataclass(kw_only=True)
class SlurmExecutor(slurm_interactive.ByHand, RunsDevSpaces, Executor):
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
        dependencies: handles of jobs that Slurm lets end first.
        dependency_type: what is asked of them, and of those that a job of an experiment depends
            on, in Slurm's words; any but the default wins over ``run_if``.
        wait_time_for_group_job: seconds between the starts of two tasks of a group.
        monitor_group_job: when a task of a group has ended, end the others
            ``monitor_group_job_wait_time`` seconds later.
        torchrun_nproc_per_node: how many processes torchrun starts on each node.
        rank_logs: give each task of a step a log of its own.
        time_limit_s: end an attempt that takes longer, to the second; the job has then failed.
            ``time``, which Slurm counts in minutes, follows it.
    """

    SCHEDULER: ClassVar[str] = "slurm_tunnel"
    _SEEN_AS: ClassVar[str] = RUNDIR
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(
        detach=True,
        dependencies=True,
        groups=True,
        merged_groups=True,
        retries=True,
        time_limit=True,
        shell_values=True,
        poll_s=(0.25, 60.0),
        batch=64,
    )

    HEAD_NODE_IP_VAR: ClassVar[str] = "head_node_ip"
    NPROC_PER_NODE_VAR: ClassVar[str] = "SLURM_NTASKS_PER_NODE"
    NUM_NODES_VAR: ClassVar[str] = "SLURM_NNODES"
    NODE_RANK_VAR: ClassVar[str] = "SLURM_NODEID"
    HET_GROUP_HOST_VAR: ClassVar[str] = "het_group_host"

    _UNSAID: ClassVar[frozenset[str]] = frozenset(SBATCH_FLAGS)

    SBATCH_FLAGS: ClassVar[list[str]] = SBATCH_FLAGS
    SRUN_ARGS: ClassVar[list[str]] = slurm_interactive.SRUN_ARGS
    ALLOC_ARGS: ClassVar[list[str]] = slurm_interactive.ALLOC_ARGS

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
    dependency_type: str = AFTER_SUCCESS
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
        super().__post_init__()
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
        return batch.merged(executors, num_tasks)

    def clone(self) -> Self:
        own = super().clone()
        own.job_details = as_given(own.job_details)
        return own

    def to_config(self) -> Config[Any]:
        given = copy.copy(self)
        given.job_details = as_given(self.job_details)
        return super(SlurmExecutor, given).to_config()

    def info(self) -> str:
        return f"{super().info()} on {self.tunnel.key}"

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        if isinstance(self.launcher, FaultTolerance):
            fault_tolerance.leave_files(self.launcher, self.remote_dir, self.job_name)
        self.tunnel = places.tunnel_for(self, exp_id)
        self._belong_to(exp_id, exp_dir, task_dir)
        self.job_name = task_id

    @property
    def remote_dir(self) -> str:
        """Where the job lives on the cluster."""
        if not self.job_dir:
            return ""
        return places.inside(self.tunnel.job_dir, self.job_dir)

    def package(self, packager: Packager, job_name: str) -> None:
        """Collect the code that travels; it is unpacked on the cluster, which keeps it by hash."""
        from nemo_run.core.packaging._staging import stage

        code, linked = f"{self.remote_dir}/code", self.linked_code
        if linked:
            there = PackagingJob(symlink=True, src_path=linked, dst_path=code)
        else:
            travels = stage(packager, self.job_dir, job_name) is not None
            there = PackagingJob(dst_path=code if travels else None)
        key = get_packaging_job_key(self.experiment_id or "", Path(self.job_dir).name)
        self.tunnel.packaging_jobs[key] = there

    @property
    def way(self) -> SSHTunnel | LocalTunnel:
        return self.tunnel

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
        return self._launcher_is(Torchrun, FaultTolerance)

    def get_launcher(self) -> Launcher:
        """Return the launcher that is used; `FaultTolerance` has its files in the job directory."""
        launcher = super().get_launcher()
        if isinstance(launcher, FaultTolerance):
            fault_tolerance.use_files(launcher, self.remote_dir, self.job_name)
        return launcher

    def get_launcher_prefix(self) -> list[str] | None:
        prefix = super().get_launcher_prefix()
        if prefix is None or not self.launcher_in_use().nsys_gpu_metrics:
            return prefix
        return [*prefix, "$GPU_METRICS_FLAG"]

    def get_nsys_entrypoint(self) -> tuple[str, str]:
        if not self.launcher_in_use().nsys_gpu_metrics:
            return "nsys", ""
        return slurm_interactive.NSYS_WITH_GPU_METRICS, "'"

    def supports_launcher_transform(self) -> bool:
        return self._launcher_is(SlurmTemplate)

    def get_ready(self) -> None:
        """Connect to the cluster, where that needs no password or code."""
        if isinstance(self.tunnel, SSHTunnel):
            self.tunnel.connect_unasked()

    def implied_run_if(self) -> RunIf | None:
        """Return what ``dependency_type`` asks of the jobs before, unless it is the default."""
        return None if self.dependency_type == AFTER_SUCCESS else RUN_IF.get(self.dependency_type)

    def held_back(self, before: Sequence[tuple[Executor, str]], run_if: str) -> Self | None:
        return directives.held_back(self, before, run_if)

    @property
    def _cluster(self) -> tuple[str, int | None]:
        return self.tunnel.key, getattr(self.tunnel, "port", None)

    def parse_deps(self) -> list[str]:
        """Return the numbers of the jobs that Slurm lets end first."""
        return [handle.rpartition("/")[2].partition("@")[0] for handle in self.dependencies]

    def diagnose(self) -> Iterator[Finding]:
        """Yield whether the cluster can be reached and would take a job like this."""
        from nemo_run._backends.slurm.checks import diagnose

        return diagnose(self)

    def leftovers(self, handle: str) -> Iterator[Leftover]:
        """Yield the directory of the experiment on the cluster, where that is not the one here."""
        return places.leftovers(self)


_LATER = {
    "Context": "invoke.context",
    "SlurmTunnelCallback": "nemo_run.devspace._attached",
    "Tunnel": "nemo_run.core.tunnel.client",
}


def __getattr__(name: str) -> Any:
    return _later.find(__name__, name, _LATER)
