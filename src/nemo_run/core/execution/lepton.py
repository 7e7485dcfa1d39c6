"""Run on DGX Cloud Lepton."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run._backends.lepton import mover
from nemo_run._backends.lepton.mover import TAG_LABEL, Patience
from nemo_run._backends.lepton.script import (
    MARK_LABEL,
    RUNDIR,
    job_name,
    launch_script,
)
from nemo_run._backends.lepton.types import LeptonSettingError
from nemo_run._files import read_whole, write_whole
from nemo_run._jobs.records import mark_nonce, new_tag
from nemo_run._jobs.shown_text import show
from nemo_run._secrets.masking import mask_environment
from nemo_run.config import get_nemorun_home
from nemo_run.core.execution.base import Capabilities, Executor
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    SubmitError,
)

if TYPE_CHECKING:
    from nemo_run._backends.lepton.client import Job, Lepton
    from nemo_run.core.execution.checks import Finding
    from nemo_run.core.execution.leftovers import Leftover

logger = logging.getLogger(__name__)

LAUNCH_SCRIPT = "launch_script.sh"
DEFAULT_PRIORITY = "mid-4000"


@dataclass(kw_only=True)
class LeptonExecutor(Executor):
    """Runs each task as a batch job of a DGX Cloud Lepton workspace.

    The workspace and its token are those that ``lep login`` or the variables
    ``LEPTON_WORKSPACE_ID``, ``LEPTON_WORKSPACE_TOKEN`` and ``LEPTON_WORKSPACE_URL`` name.

    Attributes:
        container_image: must have bash.
        nemo_run_dir: where jobs keep their files, on one of the ``mounts``.
        launched_from_cluster: this machine has the same mounts, so that files are just copied.
        gpus_per_node, nprocs_per_node: how many processes torchrun starts on each node.
        shared_memory_size: in MiB.
        resource_shape: what each node has, such as ``gpu.8xh100-sxm``.
        node_group, node_reservation: by name, and by id; empty for any.
        secret_vars: environment variables whose values are secrets of the workspace, by the names
            of those.
        mounts: each a dict with ``path`` on the storage, ``mount_path`` in the container, and
            ``from``, which storage, such as ``node-nfs:my-volume``.
        image_pull_secrets: names of secrets of the workspace.
        custom_spec: merged into the job's specification, over everything else.
        pre_launch_commands: shell commands that run first on every node.
        head_resource_shape, ray_version: for Ray clusters.
        queue_priority: such as ``mid-4000``.
    """

    SCHEDULER: ClassVar[str] = "lepton"
    _SEEN_AS: ClassVar[str] = RUNDIR
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(
        detach=True, retries=True, rendezvous="variables", poll_s=(1.0, 30.0)
    )

    container_image: str
    nemo_run_dir: str
    launched_from_cluster: bool = False
    nodes: int = 1
    gpus_per_node: int = 0
    nprocs_per_node: int = 1
    shared_memory_size: int = 65536
    resource_shape: str = ""
    node_group: str = ""
    node_reservation: str = ""
    secret_vars: dict[str, str] = field(default_factory=dict)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    lepton_job_dir: str = field(init=False, default="")
    image_pull_secrets: list[str] = field(default_factory=list)
    custom_spec: dict[str, Any] = field(default_factory=dict)
    pre_launch_commands: list[str] = field(default_factory=list)
    head_resource_shape: str | None = ""
    ray_version: str | None = None
    can_be_preempted: bool = False
    can_preempt: bool = False
    queue_priority: str | None = None

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        self._belong_to(exp_id, exp_dir, task_dir)
        self.job_name = task_id
        self.lepton_job_dir = ""
        self.lepton_job_dir = self.place

    @property
    def place(self) -> str:
        """Where the job's files are on the storage."""
        # A copy that was built from a config has no more than its constructor takes.
        below = PurePosixPath(self.nemo_run_dir) / _below_home(self.job_dir)
        return self.lepton_job_dir or str(below)

    def nnodes(self) -> int:
        return self.nodes

    def nproc_per_node(self) -> int:
        return self.gpus_per_node or self.nprocs_per_node or 1

    def check(self) -> None:
        """Find what is wrong with the settings without asking the workspace.

        Raises:
            ConfigError: says which setting.
        """
        if not self.resource_shape and "resource_shape" not in self.custom_spec:
            raise ConfigError(
                "A Lepton job needs a resource_shape, such as 'gpu.8xh100-sxm', and none is set."
            )
        if self.nodes < 1:
            raise ConfigError(f"nodes={self.nodes} would run nowhere. Use 1 or more.")
        for position, mount in enumerate(self.mounts):
            missing = [key for key in ("path", "mount_path") if not mount.get(key)]
            if missing:
                raise LeptonSettingError(
                    f"Mount {position} of the LeptonExecutor has no {' and no '.join(missing)}: "
                    f"{mount}. Give what to mount as 'path' and where as 'mount_path'."
                )
        places = [PurePosixPath(mount["mount_path"]) for mount in self.mounts]
        directory = PurePosixPath(self.nemo_run_dir)
        if not any(directory == place or place in directory.parents for place in places):
            known = ", ".join(map(str, places)) or "there are none"
            raise ConfigError(
                f"nemo_run_dir {self.nemo_run_dir!r} is on no mount of the LeptonExecutor "
                f"({known}), so that jobs would not find their files. Put it below a mount_path."
            )

    def diagnose(self) -> Iterator[Finding]:
        """Yield whether the workspace lets us in and has what the settings name."""
        from nemo_run._backends.lepton.checks import diagnose

        return diagnose(self)

    def leftovers(self, handle: str) -> Iterator[Leftover]:
        """Yield the job, which the workspace keeps; files stay on the storage."""
        from nemo_run.core.execution.leftovers import Leftover, app_id_of

        job_id = app_id_of(handle).rpartition("___")[2]
        yield Leftover(f"job {job_id} of the Lepton workspace", lambda: self.cancel(job_id))

    def job_spec(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the specification of a job, but for the id of its node group."""
        script = str(PurePosixPath(self.place) / LAUNCH_SCRIPT)
        variables: list[dict[str, Any]] = [
            {"name": name, "value": value} for name, value in environment.items()
        ]
        variables += [
            {"name": name, "value_from": {"secret_name_ref": secret}}
            for name, secret in self.secret_vars.items()
        ]
        spec = {
            "resource_shape": self.resource_shape,
            "container": {
                "image": self.container_image,
                "command": ["/bin/bash", script],
            },
            "shared_memory_size": self.shared_memory_size,
            "completions": self.nodes,
            "parallelism": self.nodes,
            "max_failure_retry": None,
            "max_job_failure_retry": self.retries or None,
            "envs": variables,
            "mounts": [dict(mount) for mount in self.mounts],
            "image_pull_secrets": list(self.image_pull_secrets),
            "ttl_seconds_after_finished": None,
            "intra_job_communication": True,
            "queue_config": self._queue(),
            "reservation_config": self._reservation(),
        }
        return _merged(spec, self.custom_spec)

    def _queue(self) -> dict[str, Any] | None:
        if not (self.can_be_preempted or self.can_preempt or self.queue_priority):
            return None
        return {
            "priority_class": self.queue_priority or DEFAULT_PRIORITY,
            "can_be_preempted": self.can_be_preempted or None,
            "can_preempt": self.can_preempt or None,
        }

    def _reservation(self) -> dict[str, Any] | None:
        return {"reservation_id": self.node_reservation} if self.node_reservation else None

    def submit(
        self, job_id: str, cmd: Sequence[str], environment: Mapping[str, str], *, tag: str
    ) -> Job:
        """Move the job's files and create the job: once, also if this is called again.

        Raises:
            ConfigError: a setting is wrong.
            SubmitError: the workspace did not take it.
            BackendUnavailableError: it could not be asked, and there is no job.
            ConnectionLostError: the same, but the job may be there.
        """
        client = _client()
        plain = [name for name, shown in mask_environment(environment).items() if shown == "***"]
        if plain:
            logger.warning(
                "%s: all users of the workspace can read the value of %s in the job's description. "
                "Make it a secret of the workspace and name that in secret_vars.",
                job_id,
                ", ".join(plain),
            )
        body = self._body(client, job_id, environment, tag)
        nonce = mark_nonce(tag)
        body["metadata"]["labels"][MARK_LABEL] = nonce
        self.write_launch_script(job_id, cmd, nonce=nonce)
        try:
            self._place_files(client, job_id, tag, body["spec"]["affinity"], Patience())
            return client.create_job(job_id, body)
        except (SubmitError, AuthenticationError, BackendUnavailableError):
            raise
        except BackendError as err:
            raise SubmitError(
                f"Lepton did not accept job {job_id}: {err}",
                backend=self.SCHEDULER,
                operation="submit",
                detail=err.detail,
            ) from err

    def _body(
        self, client: Lepton, job_id: str, environment: Mapping[str, str], tag: str
    ) -> dict[str, Any]:
        from nemo_run._backends.lepton.client import check_spec

        self.check()
        spec = self.job_spec(environment)
        spec.setdefault("affinity", self._affinity(client))
        check_spec(spec)
        return {"metadata": {"id": job_id, "labels": {TAG_LABEL: tag}}, "spec": spec}

    def _affinity(self, client: Lepton) -> dict[str, Any] | None:
        # The group and not its nodes: one that is added while the job waits may run it, too.
        if not self.node_group:
            return None
        group = client.patiently(lambda: client.node_group(self.node_group))
        return {"allowed_dedicated_node_groups": [group]}

    def write_launch_script(self, job_id: str, cmd: Sequence[str], *, nonce: str = "") -> None:
        """Write what every node of the job runs into the job directory."""
        text = launch_script(
            cmd, job_id=job_id, job_dir=self.place, before=self.pre_launch_commands, nonce=nonce
        )
        path, data = Path(self.job_dir) / LAUNCH_SCRIPT, text.encode("utf-8", "surrogateescape")
        if read_whole(path) != data:  # its time is a part of what is moved
            write_whole(path, data)

    def _place_files(
        self,
        client: Lepton,
        job_id: str,
        tag: str,
        affinity: Mapping[str, Any] | None,
        patience: Patience,
    ) -> None:
        archives = tuple(path.name for path in Path(self.job_dir).glob("*.tar.gz"))
        if self.launched_from_cluster:
            target = Path(self.place)
            if target.resolve() != Path(self.job_dir).resolve():
                ignored = shutil.ignore_patterns(*archives)
                shutil.copytree(self.job_dir, target, dirs_exist_ok=True, ignore=ignored)
            return
        mover.move(
            client,
            mover.pack(Path(self.job_dir), without=archives),
            self.place,
            job_id=job_id,
            tag=tag,
            spec={
                "resource_shape": mover.SHAPE,
                "mounts": [dict(mount) for mount in self.mounts],
                "affinity": affinity,
                "reservation_config": self._reservation(),
            },
            patience=patience,
        )

    # What scripts written for 0.12 may call.

    def launch(self, name: str, cmd: list[str]) -> tuple[str, Any]:
        """Run a command as a job of its own; return the job's id and its state."""
        tag = new_tag()
        job = self.submit(job_name(name, tag), cmd, self.env_vars, tag=tag)
        return job.id, self.status(job.id)

    def create_lepton_job(self, name: str) -> Job:
        """Create the job whose files are in place already."""
        client, tag = _client(), new_tag()
        job_id = job_name(name, tag)
        return client.create_job(job_id, self._body(client, job_id, self.env_vars, tag))

    def copy_directory_data_command(self, local_dir_path: str, dest_path: str) -> list[str]:
        """Return what a job runs to receive a directory; the files come in its environment."""
        archive = mover.pack(Path(local_dir_path))
        return mover.command(dest_path, mover.sha256(archive))

    def move_data(
        self,
        sleep: float = 10,
        timeout: int = 600,
        poll_interval: int = 5,
        unknowns_grace_period: int = 60,
    ) -> None:
        """Bring the job directory to the storage; ``sleep`` has no effect.

        Raises:
            SubmitError: it could not be moved.
            TimeoutError: it took longer than ``timeout`` seconds.
        """
        client = _client()
        patience = Patience(timeout, poll_interval, unknowns_grace_period)
        name = Path(self.job_dir).name
        self._place_files(client, name, new_tag(), self._affinity(client), patience)

    def status(self, job_id: str) -> Any:
        """Return the state of a job as the vendor's ``LeptonJobState``."""
        from nemo_run._backends.lepton.client import job_states

        job = _client().find_job(job_id)
        return job_states()["Unknown" if job is None else shown_state(job)]

    def stop_job(self, job_id: str) -> None:
        """Stop a running job; it can be started again."""
        client = _client()
        if client.job(job_id).state == "Running":
            client.stop_job(job_id)

    def cancel(self, job_id: str) -> None:
        """Delete a job; one that is gone already is fine."""
        _client().delete_job(job_id)

    @classmethod
    def logs(cls, app_id: str, fallback_path: str | None) -> None:
        """Print the log of a job's first replica, following it to the end of the job."""
        from nemo_run._backends.lepton.logs import JobLog

        for text in JobLog(_client(), app_id.rpartition("___")[2], 0).follow():
            show(text)
        sys.stdout.flush()


def shown_state(job: Job) -> str:
    """Return the name of a job's state: one that runs and is not ready yet is still starting."""
    return "Starting" if job.state == "Running" and job.ready < job.active else job.state


def _client() -> Lepton:
    from nemo_run._backends.lepton.client import Lepton

    return Lepton()


def _below_home(job_dir: str) -> PurePosixPath:
    path, home = Path(job_dir), Path(get_nemorun_home())
    if path.is_relative_to(home):
        return PurePosixPath(path.relative_to(home))
    return PurePosixPath(*path.parts[1:][-3:])


def _merged(spec: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(spec)
    for name, value in changes.items():
        old = merged.get(name)
        both = isinstance(old, dict) and isinstance(value, Mapping)
        merged[name] = _merged(old, value) if both and old is not None else value
    return merged


def __getattr__(name: str) -> Any:
    if name == "LeptonJobState":  # the vendor's, of whichever release is installed
        from nemo_run._backends.lepton.types import job_states

        return job_states()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
