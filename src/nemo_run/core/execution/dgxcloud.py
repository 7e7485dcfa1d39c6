"""Run on DGX Cloud, through the REST API of Run:ai."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run._backends.kubernetes import script as kubernetes_script
from nemo_run._backends.kubernetes.script import RUNDIR
from nemo_run._credentials import CredentialStore, is_reference, secret
from nemo_run._secrets.masking import mask_environment
from nemo_run.config import get_nemorun_home
from nemo_run.core.execution.base import Capabilities, Executor
from nemo_run.core.execution.launcher import FaultTolerance, Launcher
from nemo_run.exceptions import BackendError, ConfigError, UnsupportedError

if TYPE_CHECKING:
    import requests

    from nemo_run._backends.runai.client import Kind, RunAI
    from nemo_run.config import Config
    from nemo_run.core.execution.checks import Finding
    from nemo_run.core.execution.leftovers import Leftover

logger = logging.getLogger(__name__)

_strange: set[str] = set()
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./-]*")


class DGXCloudState(Enum):
    """Run:ai's phases of a workload."""

    CREATING = "Creating"
    INITIALIZING = "Initializing"
    RESUMING = "Resuming"
    PENDING = "Pending"
    DELETING = "Deleting"
    RUNNING = "Running"
    UPDATING = "Updating"
    STOPPED = "Stopped"
    STOPPING = "Stopping"
    DEGRADED = "Degraded"
    FAILED = "Failed"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, phase: str) -> DGXCloudState:
        """Return the state of that name; UNKNOWN for a word we have never seen."""
        try:
            return cls(phase)
        except ValueError:
            if phase and phase not in _strange:
                _strange.add(phase)
                logger.warning("Run:ai reported the unknown phase %r", phase)
            return cls.UNKNOWN


@dataclass(kw_only=True)
class DGXCloudExecutor(Executor):
    """Runs each task as a Run:ai training; with several nodes as a distributed workload.

    Attributes:
        base_url: root of the API, such as ``https://<host>/api/v1``.
        kube_apiserver_url: of the cluster, which must accept Run:ai's tokens; logs, exit codes
            and files go this way.
        client_id: of an application (service account) of Run:ai.
        client_secret: its secret, best as a reference: ``env:NAME`` or ``file:PATH``.
        project_name: where workloads are created; never guessed.
        pvc_nemo_run_dir: the home directory as jobs see it; below the path of one of ``pvcs``.
        launched_from_cluster: this process has the volume mounted at the same path.
        nprocs_per_node: how many processes torchrun starts on a node without GPUs.
        pvcs: volumes to mount, in Run:ai's words, such as ``{"name": ..., "path": ...,
            "existingPvc": True, "claimName": ...}``.
        custom_spec: goes over the workload's ``spec``, key by key.
        MAX_ARGS_CHARS: has no effect; files do not travel in arguments.
    """

    SCHEDULER: ClassVar[str] = "dgx_cloud"
    _SEEN_AS: ClassVar[str] = RUNDIR
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(
        detach=True, groups=True, retries=True, rendezvous="platform"
    )

    base_url: str
    kube_apiserver_url: str
    client_id: str
    client_secret: str = secret()
    project_name: str
    container_image: str
    pvc_nemo_run_dir: str
    launched_from_cluster: bool = False
    nodes: int = 1
    gpus_per_node: int = 0
    nprocs_per_node: int = 1
    pvc_job_dir: str = field(init=False, default="")
    pvcs: list[dict[str, Any]] = field(default_factory=list)
    distributed_framework: str = "PyTorch"
    custom_spec: dict[str, Any] = field(default_factory=dict)
    MAX_ARGS_CHARS: int = 9500

    # What an executor is.

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        """Tell this executor which job it belongs to.

        Raises:
            ConfigError: no volume of ``pvcs`` holds ``pvc_nemo_run_dir``.
        """
        self._belong_to(exp_id, exp_dir, task_dir)
        self.job_name = task_id
        self._check_volume()
        self.pvc_job_dir = ""
        self.pvc_job_dir = self.place

    @property
    def place(self) -> str:
        """Where the job's files are on the volume.

        Raises:
            ConfigError: it was never told which job it belongs to.
        """
        # A copy that was built from a config has no more than its constructor takes.
        return self.pvc_job_dir or str(PurePosixPath(self.pvc_nemo_run_dir) / self._below_home())

    def _below_home(self) -> PurePosixPath:
        if not self.job_dir:
            raise ConfigError("This executor belongs to no job yet. Call assign(...) first.")
        job_dir = Path(self.job_dir).absolute()
        try:
            return PurePosixPath(job_dir.relative_to(Path(get_nemorun_home()).absolute()))
        except ValueError:  # kept elsewhere
            return PurePosixPath("experiments", self.experiment_id or "", job_dir.name)

    def _check_volume(self) -> None:
        home = PurePosixPath(self.pvc_nemo_run_dir)
        paths = [str(pvc.get("path", "")) for pvc in self.pvcs]
        if not any(path and home.is_relative_to(path) for path in paths):
            raise ConfigError(
                f"pvc_nemo_run_dir={self.pvc_nemo_run_dir!r} is on none of the volumes in `pvcs`, "
                f"which are mounted at {', '.join(filter(None, paths)) or 'no path'}. Give it a "
                "path below one of them."
            )

    def check(self) -> None:
        """Find what cannot work before anything is asked of Run:ai.

        Raises:
            ConfigError: a setting is missing or wrong.
        """
        for name in ("base_url", "kube_apiserver_url"):
            if not getattr(self, name).startswith(("https://", "http://")):
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} is not a URL. Write it like https://..."
                )
        for name in ("client_id", "project_name", "container_image"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty; it is never guessed. Name it.")
        if self.nodes < 1:
            raise ConfigError(f"nodes={self.nodes} would run nothing. Ask for at least one.")
        if not _PLAIN_PATH.fullmatch(self.pvc_nemo_run_dir):
            raise ConfigError(
                f"pvc_nemo_run_dir={self.pvc_nemo_run_dir!r} must be an absolute path of letters, "
                "digits and '/', '.', '_', '-': Run:ai takes commands as one text."
            )
        if self.retries and self.nodes > 1:
            raise UnsupportedError(
                f"Run:ai does not start distributed workloads again as a whole, but retries="
                f"{self.retries} was asked for with nodes={self.nodes}. Set it to 0, or use "
                "FaultTolerance(max_restarts=...)."
            )
        self._check_volume()

    def diagnose(self) -> Iterator[Finding]:
        """Yield whether Run:ai knows us and the project, and whether the cluster lets us in."""
        from nemo_run._backends.runai.checks import diagnose

        return diagnose(self)

    def leftovers(self, handle: str) -> Iterator[Leftover]:
        """Yield the workload, which Run:ai keeps for ever; files stay on the volume."""
        from nemo_run._backends.runai.site import Site
        from nemo_run._jobs.store import JobStore
        from nemo_run.core.execution.leftovers import Leftover, app_id_of

        record = JobStore().find(app_id_of(handle), self.SCHEDULER)
        if record is not None and record.ref is not None and record.ref.native_id:
            site, workload = Site.from_where(record.ref.where), record.ref.native_id
            yield Leftover(
                f"workload {workload} of project {site.project}",
                lambda: site.client().delete(self._kind, workload),
            )

    def nnodes(self) -> int:
        return self.nodes

    def nproc_per_node(self) -> int:
        return self.gpus_per_node or self.nprocs_per_node or 1

    def to_config(self) -> Config[Any]:
        """Return a config that can be stored: a literal secret is kept in ``credentials.json``."""
        config = super().to_config()
        if self.client_secret and not is_reference(self.client_secret):
            CredentialStore().put(self.base_url, self.client_id, self.client_secret)
            config.client_secret = ""
        return config

    # Calls that 0.12 has; jobs are submitted and watched by the scheduler.

    @property
    def _kind(self) -> Kind:
        return "distributed" if self.nodes > 1 else "trainings"

    def _default_headers(self, token: str | None = None) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        return headers | ({"Authorization": f"Bearer {token}"} if token else {})

    def _client(self) -> RunAI:
        from nemo_run._backends.runai.site import connect

        return connect(self.base_url, self.client_id, self.client_secret)

    def get_auth_token(self) -> str | None:
        """Return a token; None where there is none to be had, which is logged."""
        try:
            return self._client().token()
        except BackendError as err:
            logger.warning("no token: %s", err)
            return None

    def get_project_and_cluster_id(self, token: str) -> tuple[str | None, str | None]:
        """Return the ids of the project and of its cluster; None for both where there is none."""
        found = self._client().projects(self.project_name) if self.project_name else []
        return (found[0].id, found[0].cluster_id) if found else (None, None)

    def launch(self, name: str, cmd: list[str]) -> tuple[str, str]:
        """Run a command, as the scheduler would; return the workload's id and phase.

        Raises:
            SubmitError: it was not created.
        """
        from nemo_run._backends.runai import calls

        return calls.launch(self, name, cmd)

    def create_training_job(
        self, token: str, project_id: str, cluster_id: str, name: str
    ) -> requests.Response:
        """Create a workload that runs ``launch_script.sh`` of the job directory on the volume.

        Raises:
            ConfigError: the token, an id or the number of nodes is not usable.
        """
        from nemo_run._backends.runai import calls

        if not (token and project_id and cluster_id):
            raise ConfigError("A token and the ids of project and cluster are needed.")
        return calls.create_training_job(self, project_id, cluster_id, name)

    def status(self, job_id: str) -> DGXCloudState | None:
        """Return the phase of a workload by its id or name, None where it cannot be had."""
        from nemo_run._backends.runai.calls import workload_id

        try:
            found = self._client().get(self._kind, workload_id(self, job_id))
            return DGXCloudState.of(found.phase)
        except BackendError as err:
            logger.warning("%s: %s", job_id, err)
            return None

    def cancel(self, job_id: str) -> None:
        """Ask a workload to stop, by its id or name. The scheduler's cancel waits until it has."""
        from nemo_run._backends.runai.calls import workload_id

        self._client().suspend(self._kind, workload_id(self, job_id))

    def delete_workload(self, token: str, workload_id: str) -> requests.Response:
        """Remove a workspace and return the answer."""
        from nemo_run._backends.runai import calls

        return calls.delete_workspace(self, workload_id)

    def fetch_logs(
        self, job_id: str, stream: bool, stderr: bool | None = None, stdout: bool | None = None
    ) -> Iterable[str]:
        """Yield the lines of a workload's first pod; ``stderr`` and ``stdout`` have no effect."""
        from nemo_run._backends.runai import calls

        return calls.fetch_logs(self, job_id, stream)

    def copy_directory_data_command(self, local_dir_path: str, dest_path: str) -> str:
        """Return a shell command that makes a copy of a directory somewhere else.

        Its size is that of the directory; to move files, use `move_data`.
        """
        from nemo_run._backends.runai import calls

        return calls.copy_directory_command(local_dir_path, dest_path)

    def move_data(self, token: str, project_id: str, cluster_id: str, sleep: float = 10) -> None:
        """Copy the job directory to the volume. ``sleep`` has no effect."""
        from nemo_run._backends.runai import calls

        calls.move_data(self)

    def deploy_script_to_pvc(
        self,
        script_content: str,
        dest_path: str,
        token: str | None = None,
        project_id: str | None = None,
        cluster_id: str | None = None,
    ) -> None:
        """Write a script to the volume, executable."""
        from nemo_run._backends.runai import calls

        calls.deploy_script(self, script_content, dest_path)


@dataclass(kw_only=True)
class DGXCloudRequest:
    """A command and what it needs, to be written as the script that a workload runs."""

    launch_cmd: list[str]
    jobs: list[str]
    executor: DGXCloudExecutor
    max_retries: int
    extra_env: dict[str, str]
    launcher: Launcher | None = None

    def materialize(self) -> str:
        """Return the script. It holds the environment, and so possibly secrets.

        Raises:
            ConfigError: no shell can pass on an argument or a variable.
        """
        return self._render({**self.executor.env_vars, **self.extra_env})

    def _render(self, env: dict[str, str]) -> str:
        return kubernetes_script.render(
            self.launch_cmd,
            name=" ".join(self.jobs),
            directory=self.executor.place,
            env=env,
            nodes=self.executor.nodes,
            max_retries=self.max_retries,
            fault_tolerance=self._fault_tolerance(),
        )

    def _fault_tolerance(self) -> FaultTolerance | None:
        """Return the launcher with its files in the job's directory, where it has none."""
        if not isinstance(self.launcher, FaultTolerance):
            return None
        start = f"{self.executor.place}/{self.jobs[0]}"
        return dataclasses.replace(
            self.launcher,
            cfg_path=self.launcher.cfg_path or f"{start}_ft_cfg.yml",
            finished_flag_file=self.launcher.finished_flag_file or f"{start}_finished_flag",
            job_results_file=self.launcher.job_results_file or f"{start}_job_results",
        )

    def __repr__(self) -> str:
        env = mask_environment({**self.executor.env_vars, **self.extra_env})
        return f"# Script of {' '.join(self.jobs)}, secrets masked\n{self._render(env)}"
