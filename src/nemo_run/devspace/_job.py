"""The job of a devspace: an ordinary task of an experiment, which runs an ssh server."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nemo_run.config import Script
from nemo_run.core.execution.docker import DockerExecutor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.execution.slurm import SlurmExecutor
from nemo_run.core.packaging.base import Packager
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel
from nemo_run.core.tunnel.server import program, server_dir
from nemo_run.devspace import _records
from nemo_run.devspace._records import Record
from nemo_run.exceptions import ConfigError, ExperimentNotFoundError

if TYPE_CHECKING:
    from nemo_run.core.execution.base import Executor
    from nemo_run.devspace.base import DevSpace
    from nemo_run.run.experiment import Experiment

log = logging.getLogger(__name__)

GONE = "GONE"
"""Launched from another machine, and its server is not there any more."""
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", GONE})
UNSUBMITTED = "UNSUBMITTED"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a devspace lives.

    Attributes:
        tunnel: the way to its files.
        outside, inside: its workspace, as the end of the tunnel and as the job see it.
        listen: which address its server uses: see `_node_server.listen_address`.
    """

    tunnel: SSHTunnel | LocalTunnel
    outside: str
    inside: str
    listen: str

    @classmethod
    def of(cls, name: str, executor: Executor) -> Place:
        """Return where an executor runs devspaces.

        Raises:
            ConfigError: it cannot.
        """
        seen_as = f"/workspaces/{name}"
        if isinstance(executor, SlurmExecutor):
            tunnel = executor.tunnel
            outside = executor.job_dir or f"{tunnel._base_dir()}/devspaces/{name}"
            inside = seen_as if executor.container_image else outside
            return cls(tunnel=tunnel, outside=outside, inside=inside, listen="cluster")
        here = LocalTunnel(job_dir="")
        outside = executor.job_dir or str(_records.root() / name / "workspace")
        if isinstance(executor, DockerExecutor):
            listen = "loopback" if executor.network == "host" else "own"
            return cls(tunnel=here, outside=outside, inside=seen_as, listen=listen)
        if isinstance(executor, LocalExecutor):
            return cls(tunnel=here, outside=outside, inside=outside, listen="loopback")
        raise ConfigError(
            f"{type(executor).__name__} cannot run a devspace. SlurmExecutor, DockerExecutor and "
            "LocalExecutor can."
        )

    def server_directory(self, name: str, *, inside: bool = False) -> str:
        return str(server_dir(self.inside if inside else self.outside, name))


def submit(
    space: DevSpace, executor: Executor, *, job_name: str, env_vars: Mapping[str, str]
) -> Record:
    """Have a job run the server of ``space``, unless one does; return its record.

    The record is written before the job is submitted: a process that dies in between leaves one
    that leads to an experiment, which says how far it came.
    """
    name = _records.checked_name(space.name)
    place = Place.of(name, executor)
    check_one_node(executor)
    with _records.lock(name):
        known = _running(name)
        if known is not None:
            log.info("%s: runs already as %s", name, known.experiment or known.directory)
            return known
        from nemo_run.run.experiment import Experiment

        directory = place.server_directory(name)
        place.tunnel.run(["mkdir", "-p", "--", directory])
        place.tunnel.run(["chmod", "700", "--", directory])
        own = _prepared(space, executor, place, env_vars)
        with Experiment(
            f"devspace-{name}",
            executor=own,
            clean_mode=True,
            log_level="WARNING",
            enable_goodbye_message=False,
            skip_status_at_exit=True,
            check=False,
        ) as exp:
            task = script(space, place, label=exp._id, key=_records.public_key(name))
            job = exp.add(task, executor=own, name=job_name)
            record = Record(
                name=name,
                label=exp._id,
                experiment=exp._id,
                job=job,
                directory=directory,
                workspace=place.inside,
                executor=type(executor).__name__,
                login=_records.login_of(place.tunnel),
            )
            record.save()
            try:
                exp.run(detach=True)
            except ConfigError:
                record.forget()
                raise
    return record


def _running(name: str) -> Record | None:
    """Return the devspace of that name if it has a job, which may still be waiting for a node."""
    known = _records.find(name)
    if known is None:
        return None
    now = state(known)
    if now == UNSUBMITTED:
        # A launcher died here. Cancelling looks for a job with its tag, and so settles the matter.
        exp = experiment(known)
        if exp is not None:
            exp.cancel(known.job, check=True)
    return None if now in {UNSUBMITTED, *ENDED} else known


def check_one_node(executor: Executor) -> None:
    """Refuse several servers: a devspace is one machine to log in to.

    Raises:
        ConfigError: several tasks were asked for.
    """
    tasks = getattr(executor, "ntasks_per_node", 1)
    if executor.nnodes() != 1 or (isinstance(executor, SlurmExecutor) and tasks != 1):
        raise ConfigError(
            f"A devspace is one ssh server, but {executor.nnodes()} nodes with {tasks} tasks each "
            "were asked for. Use nodes=1 and ntasks_per_node=1; CPUs and GPUs as many as you like."
        )


def _prepared(
    space: DevSpace, executor: Executor, place: Place, env_vars: Mapping[str, str]
) -> Executor:
    """Return a copy of the executor for the job; that of the user stays as it is."""
    own = executor.clone()
    own.job_dir = ""
    if not space.use_packager:
        own.packager = Packager()
    own.env_vars = {**own.env_vars, **env_vars, "NEMO_DEVSPACE": space.name}
    mounts = [f"{place.outside}:{place.inside}"]
    if space.add_workspace_to_pythonpath:
        mounts.append(f"{place.outside}:/workspaces/.main")
    if isinstance(own, SlurmExecutor) and own.container_image:
        own.container_mounts = [*own.container_mounts, *mounts]
        if own.container_runtime in (None, "pyxis"):
            own.srun_args = [*(own.srun_args or []), "--no-container-remap-root"]
        # By these the server knows where it is, and which network leads to its users.
        own.container_env = [*(own.container_env or []), "SLURM_SUBMIT_HOST", "SLURMD_NODENAME"]
    elif isinstance(own, DockerExecutor):
        own.volumes = [*own.volumes, *mounts]
    return own


def script(space: DevSpace, place: Place, *, label: str, key: str) -> Script:
    """Return the task: our server's own text, so that the node needs Python and no nemo_run."""
    settings = {
        "directory": place.server_directory(space.name, inside=True),
        "name": space.name,
        "workspace": place.inside,
        "label": label,
        "keys": [key],
        "listen": "loopback" if space.reverse else place.listen,
        "idle_s": space.idle_s,
        "reverse": space.reverse,
        "space": ZlibJSONSerializer().serialize(space.config_to_connect()),
        "hello": hello(space, place.server_directory(space.name), place.tunnel),
        "pythonpath": place.inside if space.add_workspace_to_pythonpath else "",
    }
    return Script(inline=program(settings), entrypoint="python3")


def hello(space: DevSpace, directory: str, tunnel: Any) -> list[str]:
    """Return what a server prints once it is up: how to connect from elsewhere."""
    if not isinstance(tunnel, SSHTunnel):
        return [f"Devspace {space.name} is up: {directory}"]
    user = f"{tunnel.user}@" if tunnel.user else ""
    return [
        f"Devspace {space.name} is up: {directory}",
        "To connect from another machine, type there:",
        f"nemorun devspace connect {user}{tunnel.host} {directory}",
    ]


def experiment(record: Record) -> Experiment | None:
    """Return what runs a devspace; None if another machine launched it, or nothing was submitted.

    Also None for one that was removed since.
    """
    from nemo_run._experiments.store.directory import TASKS
    from nemo_run._experiments.store.places import find_directory
    from nemo_run.run.experiment import Experiment

    if not record.experiment:
        return None
    try:
        path = find_directory(record.experiment, None)
    except ExperimentNotFoundError:
        return None
    # Written before the first job is submitted: without it, a launcher is about to, or has died.
    return Experiment.from_id(record.experiment) if (path / TASKS).exists() else None


def state(record: Record) -> str:
    """Return the state of a devspace, in the words of jobs."""
    exp = experiment(record)
    if exp is not None:
        found = exp.status(return_dict=True) or {}
        status = found.get(record.job)
        return str(status["status"].name) if status else "UNKNOWN"
    if record.experiment:
        return UNSUBMITTED  # a launcher is just about to, or died before
    from nemo_run.devspace._reaching import find_server

    return "RUNNING" if find_server(record) else GONE


def has_ended(record: Record) -> bool:
    return state(record) in ENDED
