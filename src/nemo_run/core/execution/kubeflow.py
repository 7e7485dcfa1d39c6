"""Run on Kubernetes, as TrainJobs of Kubeflow."""

from __future__ import annotations

import getpass
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run._backends.kubernetes.script import RUNDIR
from nemo_run._extras import check_installed
from nemo_run.core.execution.base import Capabilities, Executor, ExecutorMacros
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from nemo_run._backends.kubeflow.client import TrainJob
    from nemo_run.core.execution.checks import Finding
    from nemo_run.core.execution.leftovers import Leftover

logger = logging.getLogger(__name__)

_LABEL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./-]+")


class KubeflowJobState(Enum):
    """How a TrainJob is."""

    CREATED = "Created"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, job: TrainJob) -> KubeflowJobState:
        """Return the state that a TrainJob shows.

        What failed may be started again: a job has failed when Kubeflow says so of the whole.
        """
        conditions = {item.kind for item in job.conditions if item.holds}
        if "Failed" in conditions:
            return cls.FAILED
        if "Complete" in conditions:
            return cls.SUCCEEDED
        if job.parts and all(part.succeeded and not part.active for part in job.parts):
            return cls.SUCCEEDED
        if any(part.active or part.ready or part.failed for part in job.parts):
            return cls.RUNNING
        return cls.CREATED if not job.parts else cls.UNKNOWN


@dataclass(kw_only=True)
class KubeflowExecutor(Executor):
    """Runs each task as a TrainJob of Kubeflow Trainer.

    The cluster is the one that ``KUBECONFIG`` and its current context name when a job is
    submitted, as for kubectl. In a pod, it is the cluster of that pod.

    Attributes:
        runtime_ref: name of a ClusterTrainingRuntime.
        nprocs_per_node: how many processes torchrun starts on a node; without it, one for each GPU.
        cpu_requests, memory_requests, cpu_limits, memory_limits: of each node, as Kubernetes
            writes quantities.
        volumes, volume_mounts, tolerations, affinity: of the pods, in Kubernetes' words.
        labels, annotations: of the TrainJob.
        env_list: whole entries, such as ones that refer to secrets of the cluster.
        pod_spec_overrides: replaces top-level keys of what goes over the pods.
        data_mover_image: of the pod that files are moved through; must have ``sh`` and ``tar``.
        restart_policy: has no effect; the runtime says it, and ``retries`` is what counts.
        spec_kwargs, container_kwargs: go over the TrainJob's ``spec`` and its ``trainer``.
        workdir_pvc: the claim of a volume that files are moved to and that logs outlive their pods
            on. Without one, files travel with the job and may be some hundred kilobytes.
        workdir_pvc_path: where it is mounted.
        workdir_local_path: a directory of this machine that is sent along.
        train_job_basename: how the names of TrainJobs begin; by default, with the task's.
        job_name: set by the experiment.
    """

    SCHEDULER: ClassVar[str] = "kubeflow"
    _SEEN_AS: ClassVar[str] = RUNDIR
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(detach=True, groups=True, retries=True)

    runtime_ref: str = "torch-distributed"
    namespace: str = "default"
    image: str = ""
    num_nodes: int = 1
    nprocs_per_node: int | None = None
    gpus_per_node: int | None = None
    cpu_requests: str | None = None
    memory_requests: str | None = None
    cpu_limits: str | None = None
    memory_limits: str | None = None
    extra_resource_requests: dict[str, str] = field(default_factory=dict)
    extra_resource_limits: dict[str, str] = field(default_factory=dict)
    volume_mounts: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    pod_annotations: dict[str, Any] = field(default_factory=dict)
    pod_labels: dict[str, Any] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    affinity: dict[str, Any] = field(default_factory=dict)
    env_list: list[dict[str, Any]] = field(default_factory=list)
    pod_spec_overrides: dict[str, Any] = field(default_factory=dict)
    data_mover_image: str = "alpine:3.19"
    restart_policy: str = "OnFailure"
    image_pull_secrets: list[str] = field(default_factory=list)
    spec_kwargs: dict[str, Any] = field(default_factory=dict)
    container_kwargs: dict[str, Any] = field(default_factory=dict)
    workdir_pvc: str | None = None
    workdir_pvc_path: str = "/nemo_run"
    workdir_local_path: str | None = None
    train_job_basename: str | None = None
    job_name: str = field(init=False, default="")

    # What an executor is.

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        self._belong_to(exp_id, exp_dir, task_dir)
        self.job_name = task_id

    def nnodes(self) -> int:
        return self.num_nodes

    def nproc_per_node(self) -> int:
        return self.nprocs_per_node or self.gpus_per_node or 1

    def macro_values(self) -> ExecutorMacros:
        """Return the variables that Kubeflow sets in the pods of a TrainJob."""
        return ExecutorMacros(
            head_node_ip_var="PET_MASTER_ADDR",
            nproc_per_node_var="PET_NPROC_PER_NODE",
            num_nodes_var="PET_NNODES",
            node_rank_var="PET_NODE_RANK",
            het_group_host_var="PET_MASTER_ADDR",
        )

    @property
    def code_dir(self) -> str:
        """Where the job's files are on the work volume."""
        parts = (getpass.getuser(), self.experiment_id or "", self.job_name)
        return str(PurePosixPath(self.workdir_pvc_path, *filter(None, parts), "code"))

    @property
    def place(self) -> str:
        """Where a pod finds the job's files; empty where they come with the job."""
        return self.code_dir if self.workdir_pvc else ""

    def check(self) -> None:
        """Find what cannot work before anything is asked of a cluster.

        Raises:
            ConfigError: a setting is missing or wrong.
        """
        check_installed("kubernetes", extra="kubeflow", needed_by="KubeflowExecutor")
        if not self.image and "image" not in self.container_kwargs:
            raise ConfigError("image is empty; it is never guessed. Name one that has bash.")
        for name in ("num_nodes", "nprocs_per_node", "gpus_per_node"):
            value = getattr(self, name)
            least = 0 if name == "gpus_per_node" else 1
            if value is not None and value < least:
                raise ConfigError(f"{name}={value} would run nothing. Ask for at least {least}.")
        for name in ("namespace", "runtime_ref"):
            if not _LABEL_NAME.fullmatch(getattr(self, name)):
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} cannot be a name in Kubernetes. Use lower "
                    "case letters, digits and '-'."
                )
        if self.retries and self.num_nodes > 1:
            raise UnsupportedError(
                f"A TrainJob does not start all of its nodes again, but retries={self.retries} was "
                f"asked for with num_nodes={self.num_nodes}. Set it to 0, or use "
                "FaultTolerance(max_restarts=...)."
            )
        self._check_volumes()

    def _check_volumes(self) -> None:
        if self.workdir_pvc and not _PLAIN_PATH.fullmatch(self.workdir_pvc_path):
            raise ConfigError(
                f"workdir_pvc_path={self.workdir_pvc_path!r} must be an absolute path of letters, "
                "digits and '/', '.', '_', '-'."
            )
        known = {str(volume.get("name")) for volume in self.volumes}
        self._check_work_volume()
        for mount in self.volume_mounts:
            if mount.get("name") not in known and not self.pod_spec_overrides.get("volumes"):
                raise ConfigError(
                    f"volume_mounts has {mount.get('name')!r}, which is none of `volumes` "
                    f"({', '.join(sorted(known)) or 'there are none'}). Give the volume, too."
                )
        if self.workdir_local_path and not Path(self.workdir_local_path).is_dir():
            raise ConfigError(
                f"workdir_local_path={self.workdir_local_path!r} is no directory of this machine."
            )

    def _check_work_volume(self) -> None:
        others = {
            volume.get("name")
            for volume in self.volumes
            if (volume.get("persistentVolumeClaim") or {}).get("claimName") != self.workdir_pvc
        }
        path = self.workdir_pvc_path.rstrip("/")
        for mount in self.volume_mounts if self.workdir_pvc else ():
            if str(mount.get("mountPath")).rstrip("/") == path and mount.get("name") in others:
                raise ConfigError(
                    f"volume_mounts has {mount.get('name')!r} at {path}, where the work volume "
                    f"{self.workdir_pvc!r} goes. Mount it elsewhere, or set workdir_pvc_path."
                )

    def diagnose(self) -> Iterator[Finding]:
        """Yield whether the cluster lets us in and has what the settings name."""
        from nemo_run._backends.kubeflow.checks import diagnose

        return diagnose(self)

    def leftovers(self, handle: str) -> Iterator[Leftover]:
        """Yield the TrainJob, which the cluster keeps; files stay on the volume."""
        from nemo_run._backends.kubeflow.jobs import leftovers

        return leftovers(handle)

    def get_launcher_prefix(self) -> list[str] | None:
        super().get_launcher_prefix()
        return self.launcher_in_use().get_nsys_prefix(profile_dir=self.place or self._SEEN_AS)

    def package(self, packager: Packager, job_name: str) -> None:
        """Collect the code that travels, and what is in ``workdir_local_path``."""
        super().package(packager, job_name)
        if self.workdir_local_path:
            from nemo_run._backends.kubeflow.volume import merge

            merge(Path(self.workdir_local_path), Path(self.job_dir))

    # Calls that 0.12 has; jobs are submitted and watched by the scheduler.

    def get_job_body(self, name: str, command: list[str]) -> dict[str, Any]:
        """Return the TrainJob that the settings describe, to run ``command``.

        Variables that sound secret refer to a secret of the same name as the job.
        """
        from nemo_run._backends.kubeflow.manifests import job_body

        return job_body(self, name, command)

    def _trainjob_name(self, fallback: str = "") -> str:
        """Return a name for a new TrainJob, another one each time."""
        from nemo_run._backends.kubeflow.manifests import trainjob_name
        from nemo_run._jobs.records import new_tag

        return trainjob_name(self.train_job_basename or fallback or "job", new_tag())

    def launch(
        self,
        name: str,
        cmd: list[str],
        wait: bool = False,
        timeout: int = 300,
        poll_interval: int = 10,
    ) -> tuple[str, KubeflowJobState]:
        """Run a command, as the scheduler would; return the TrainJob's name and its state.

        Raises:
            SubmitError: it was not created.
            RuntimeError: with ``wait``, it did not start within ``timeout`` seconds.
        """
        from nemo_run._backends.kubeflow import calls

        return calls.launch(self, name, cmd, wait=wait, timeout_s=timeout, poll_s=poll_interval)

    def status(self, job_name: str) -> KubeflowJobState | None:
        """Return how a TrainJob is; None where that cannot be had."""
        from nemo_run._backends.kubeflow import calls

        return calls.status(self, job_name)

    def cancel(
        self, job_name: str, wait: bool = False, timeout: int = 300, poll_interval: int = 5
    ) -> bool | None:
        """Delete a TrainJob, by its name or the id or handle of its job.

        Returns None where there is none, or without ``wait``; else whether it and its pods were
        gone within ``timeout`` seconds.
        """
        from nemo_run._backends.kubeflow import calls

        return calls.cancel(self, job_name, wait=wait, timeout_s=timeout, poll_s=poll_interval)

    def fetch_logs(
        self, job_name: str, stream: bool = False, lines: int = 100, timeout: int = 60
    ) -> Iterable[str]:
        """Yield lines of the first process of all, and of the last one.

        Without ``stream`` those are the last ``lines``. Lines that no torchrun has marked with a
        process are shown of the first node and the last; those of all nodes also go to
        ``log-allranks_0.out`` of the job directory.
        ``timeout`` seconds are waited for the first pod.
        """
        from nemo_run._backends.kubeflow import calls

        return calls.fetch_logs(self, job_name, stream, lines, timeout)

    def materialize_launch_script(self, cmd: list[str], max_retries: int = 0) -> str:
        """Write what a pod runs to ``launch.sh`` of the job directory, and return its path."""
        from nemo_run._backends.kubeflow import calls

        return calls.materialize_launch_script(self, cmd, max_retries)

    def copy_to_workspace(
        self, local_path: str, remote_path: str, label: str = "datamover"
    ) -> None:
        """Copy what is in a directory of this machine to one of the work volume.

        Does nothing without ``workdir_pvc``. ``label`` is in the name of the pod that does it.
        """
        from nemo_run._backends.kubeflow import calls

        calls.copy_to_workspace(self, local_path, remote_path, label)

    def copy_from_workspace(
        self, remote_path: str, local_path: str, label: str = "datamover"
    ) -> None:
        """Copy what is in a directory of the work volume to one of this machine."""
        from nemo_run._backends.kubeflow import calls

        calls.copy_from_workspace(self, remote_path, local_path, label)

    def pull_results(self, job_name: str, dest_dir: str | None = None) -> None:
        """Copy a job's directory on the work volume to ``dest_dir``, else to its job directory.

        Raises:
            RuntimeError: ``dest_dir`` is not given, and no job directory is known.
        """
        from nemo_run._backends.kubeflow import calls

        calls.pull_results(self, job_name, dest_dir)
