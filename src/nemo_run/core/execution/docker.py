"""Run in containers of a Docker engine."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nemo_run._backends.docker import client as docker_client
from nemo_run._backends.docker import connection
from nemo_run._backends.docker import settings as docker_settings
from nemo_run._backends.docker.client import (
    LABEL_EXPERIMENT_ID,
    LABEL_ID,
    LABEL_NAME,
    Engine,
    NameTakenError,
)
from nemo_run._backends.docker.files import JobFiles, seen_environment
from nemo_run._backends.docker.index import add_to_index, index_path, read_index
from nemo_run._backends.docker.network import NETWORK, ensure_network
from nemo_run._backends.docker.settings import RUNDIR, WITHOUT_NAMES
from nemo_run._jobs.store import JobStore
from nemo_run._secrets.masking import mask_environment
from nemo_run.config import ConfigurableMixin
from nemo_run.core.execution.base import NEW, Capabilities, Executor
from nemo_run.core.execution.devspaces import RunsDevSpaces
from nemo_run.core.packaging.base import Packager
from nemo_run.core.packaging.git import GitArchivePackager
from nemo_run.exceptions import BackendError, ConfigError, SubmitError

if TYPE_CHECKING:
    from typing_extensions import Self

    from nemo_run.core.execution.checks import Finding
    from nemo_run.core.execution.leftovers import Leftover

__all__ = [
    "DOCKER_JOB_DIRS",  # noqa: F822 - by __getattr__, since the home may change
    "FCNTL_AVAILABLE",
    "LABEL_EXPERIMENT_ID",
    "LABEL_ID",
    "LABEL_NAME",
    "NETWORK",
    "DockerContainer",
    "DockerExecutor",
    "DockerJobRequest",
    "ensure_network",
    "get_client",
]

logger = logging.getLogger(__name__)

FCNTL_AVAILABLE = True


def __getattr__(name: str) -> Any:
    if name == "DOCKER_JOB_DIRS":
        return str(index_path())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_client() -> Any:
    """Return the vendor's client for the engine that the environment names.

    Raises:
        BackendUnavailableError: no engine answers there.
        MissingDependencyError: the vendor's client is not installed.
    """
    return connection.connect().client


@dataclass(kw_only=True)
class DockerExecutor(RunsDevSpaces, Executor):
    """Runs each task in a container of a Docker engine that sees this machine's files.

    The engine is the one that ``DOCKER_HOST`` or the current context of ``docker`` names. The job
    directory is ``/nemo_run`` in the container, and the task starts in ``/nemo_run/code``. A job
    outlives the process that launched it. The tasks of a group reach each other by their names.

    Attributes:
        container_image: must have a shell called ``sh``.
        ntasks_per_node: how many processes torchrun starts.
        runtime: such as ``nvidia``.
        num_gpus: -1 for all.
        shm_size: such as ``8g``.
        ulimits: each ``name=soft`` or ``name=soft:hard``; a colon in place of ``=`` will do.
        healthcheck: as Docker's client takes it: ``test``, and times in nanoseconds.
        network: made if it is not there; ``host`` for this machine's.
        additional_kwargs: further settings of a container, as Docker's client takes them.
        volumes: each ``from:to`` or ``from:to:ro``; ``/$nemo_run`` stands for the job directory.
        pull: whether to look for a newer image first. An image that cannot be had is used as it is
            here, with a warning.
    """

    SCHEDULER: ClassVar[str] = "docker_persistent"
    _SEEN_AS: ClassVar[str] = RUNDIR
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(
        detach=True, groups=True, merged_groups=True, retries=True, poll_s=(0.2, 2.0)
    )

    container_image: str
    ntasks_per_node: int = 1
    runtime: str | None = None
    num_gpus: int | None = None
    shm_size: str | None = None
    ulimits: list[str] = field(default_factory=list)
    ipc_mode: str | None = None
    healthcheck: dict[str, Any] = field(default_factory=dict)
    privileged: bool = False
    network: str = NETWORK
    additional_kwargs: dict[str, Any] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    packager: Packager = field(default_factory=GitArchivePackager)
    pull: Literal["always", "missing", "never"] = field(default="always", metadata=NEW)
    job_name: str = field(init=False, default="nemo-job")
    run_as_group: bool = field(init=False, default=False)
    resource_group: list[DockerExecutor] = field(init=False, default_factory=list)

    @classmethod
    def merge(cls, executors: Sequence[Self], num_tasks: int) -> Self:
        """Return one executor for a group of tasks; those given stay as they are.

        Raises:
            ConfigError: their number does not fit.
        """
        if len(executors) not in (1, num_tasks):
            raise ConfigError(
                f"{len(executors)} executors do not fit {num_tasks} tasks. "
                "Give one for all, or one for each."
            )
        members = list(executors) if len(executors) == num_tasks else [*executors] * num_tasks
        main = copy.deepcopy(executors[0])
        main.run_as_group = True
        main.resource_group = [copy.deepcopy(member) for member in members]
        return main

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        self._belong_to(exp_id, exp_dir, task_dir)
        self.job_name = task_id

    def nnodes(self) -> int:
        return 1

    def nproc_per_node(self) -> int:
        return self.ntasks_per_node

    def check(self) -> None:
        """Find what is wrong with the settings without asking the engine.

        Raises:
            ConfigError: says which setting.
        """
        if not docker_client.is_installed():
            docker_client.docker_package()  # says what to install
        docker_settings.check(self)
        if self.additional_kwargs:
            docker_client.check_settings(
                docker_settings.settings(self, "job", labels={}, environment={})
            )

    def diagnose(self) -> Iterator[Finding]:
        """Yield whether the engine answers and has what the settings name."""
        from nemo_run._backends.docker.checks import diagnose

        return diagnose(self)

    @property
    def _tidies_itself(self) -> bool:
        # The scheduler removes containers, once what they printed is kept elsewhere.
        return type(self).cleanup is DockerExecutor.cleanup

    def cleanup(self, handle: str) -> None:
        """Remove the containers of a job, ending what still runs in them."""
        from nemo_run.core.execution.leftovers import app_id_of

        job = app_id_of(handle)
        record = JobStore().find(job, self.SCHEDULER)
        ref = None if record is None else record.ref
        engine = connection.connect("" if ref is None else ref.where.get("host", ""))
        for container in engine.containers(job):
            engine.remove(container.id)

    def leftovers(self, handle: str) -> Iterator[Leftover]:
        """Yield the containers, which the process that sees their end removes, and not before."""
        from nemo_run.core.execution.leftovers import Leftover, app_id_of

        job = app_id_of(handle)
        files = JobFiles.of(self.job_dir, job)
        outcome = files.read_outcome() or files.read_old_outcome() or {}
        if job and not outcome.get("removed"):
            yield Leftover(f"containers of {job} in Docker", lambda: self.cleanup(handle))


@dataclass(kw_only=True)
class DockerContainer(ConfigurableMixin):
    """One task of a job.

    Attributes:
        name: of the container; one that is taken by another job's gets something appended.
        command: arguments, which no shell sees.
        extra_env: over the variables of the executor.
        role: the task, by the name that the others of its group reach it by.
    """

    name: str
    command: list[str]
    executor: DockerExecutor
    extra_env: dict[str, str] = field(default_factory=dict, repr=False)
    role: str = field(init=False, default="")

    @property
    def environment(self) -> dict[str, str]:
        return {**self.executor.env_vars, **self.extra_env}

    def run(self, client: Any, id: str) -> Any:
        """Start the container of this task in job ``id``; return it as the vendor's client does."""
        engine = Engine(client)
        ensure_network(client, self.executor.network)
        container = self.create(engine, id)
        engine.start(container.id)
        return container

    def create(
        self, engine: Engine, id: str, *, suffix: str = "", links: Mapping[str, str] | None = None
    ) -> Any:
        """Make the container, not started yet.

        ``links`` are names by which it reaches other containers, by theirs.

        Raises:
            NameTakenError: another container has its name.
            SubmitError: the engine does not accept it.
        """
        executor = self.executor
        files = JobFiles.of(executor.job_dir, id).member(self.name)
        start = files.prepare(id, self.name, self.environment)
        labels = {
            LABEL_EXPERIMENT_ID: executor.experiment_id or "",
            LABEL_NAME: self.name,
            LABEL_ID: id,
        }
        visible = seen_environment(self.environment)
        name = f"{self.name}{suffix}"
        # It calls itself by a name that no other has, since the network knows it by that, too.
        settings = docker_settings.settings(executor, name, labels, visible)
        settings["network"] = executor.network
        if executor.network not in WITHOUT_NAMES and ":" not in executor.network:
            endpoint = engine.endpoint(links or {})
            settings["networking_config"] = {executor.network: endpoint}
        return engine.create(
            executor.container_image,
            [*start, *self.command],
            {**settings, "name": name},
        )

    def get_container(self, client: Any, id: str) -> Any:
        """Return the container of this task in job ``id``, or None."""
        labels = [f"{LABEL_ID}={id}", f"{LABEL_NAME}={self.name}"]
        found = client.containers.list(all=True, filters={"label": labels})
        return found[0] if found else None

    def delete(self, client: Any, id: str) -> None:
        """Remove the container, ending what runs in it; trouble is only logged."""
        try:
            for container in Engine(client).containers(id):
                if container.member == self.name:
                    Engine(client).remove(container.id)
        except BackendError as err:
            logger.warning("%s: container %s was not removed: %s", id, self.name, err)


@dataclass(kw_only=True)
class DockerJobRequest(ConfigurableMixin):
    """A job: one container, or those of a group."""

    id: str
    executor: DockerExecutor
    containers: list[DockerContainer]

    def __str__(self) -> str:
        from nemo_run.core.serialization.yaml import YamlSerializer

        return YamlSerializer().serialize(_without_secrets(self).to_config())

    __repr__ = __str__

    def run(self, client: Any) -> list[Any]:
        """Start the containers, in order; return them as the vendor's client does."""
        return [container.run(client, self.id) for container in self.containers]

    def get_containers(self, client: Any) -> list[Any]:
        """Return the containers that there are, as the vendor's client does."""
        found = [container.get_container(client, self.id) for container in self.containers]
        return [each for each in found if each is not None]

    def create(self, engine: Engine) -> list[str]:
        """Make the containers that are not there yet; return the ids of those not started.

        Raises:
            SubmitError: the engine does not accept one; none is left then.
        """
        there = {c.member: c for c in engine.containers(self.id)}
        plain = all(c.name == c.member for c in there.values())
        suffixes = ["", f"-{self.id[-8:]}"] if plain else [f"-{self.id[-8:]}"]
        names = docker_settings.network_names([each.role or each.name for each in self.containers])
        for suffix in suffixes:
            links = {
                f"{each.name}{suffix}": name
                for each, name in zip(self.containers, names, strict=True)
            }
            made: dict[str, str] = {}
            try:
                for container in self.containers:
                    if container.name not in there:
                        new = container.create(engine, self.id, suffix=suffix, links=links)
                        made[container.name] = new.id
            except NameTakenError as err:
                _remove(engine, made.values())
                if suffix == suffixes[-1] or there:
                    raise SubmitError(str(err), backend=err.backend, operation="submit") from err
            except (SubmitError, ConfigError):
                _remove(engine, [*made.values(), *(c.id for c in there.values())])
                raise
            else:
                made |= {name: c.id for name, c in there.items() if c.status == "created"}
                return [made[each.name] for each in self.containers if each.name in made]
        raise AssertionError("the last try returns or raises")

    def save(self) -> None:
        """Add the request to the index that 0.12 keeps; nothing of ours needs that.

        Secrets are masked in it.
        """
        from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

        config = _without_secrets(self).to_config()
        add_to_index(self.id, ZlibJSONSerializer().serialize(config))

    @staticmethod
    def load(app_id: str) -> DockerJobRequest | None:
        """Return the request of that index, or None where it has none for ``app_id``."""
        from nemo_run._config.fiddle import fdl
        from nemo_run.core.serialization._decode import Stored
        from nemo_run.core.serialization._parts import only_parts

        text = read_index().get(app_id)
        if not isinstance(text, str):
            return None
        config = only_parts(Stored(text).root(), [])
        request = None if config is None else fdl.build(config)
        return request if isinstance(request, DockerJobRequest) else None


def _remove(engine: Engine, ids: Any) -> None:
    for container_id in ids:
        engine.remove(container_id)


def _without_secrets(request: DockerJobRequest) -> DockerJobRequest:
    return dataclasses.replace(
        request,
        executor=_masked(request.executor),
        containers=[
            dataclasses.replace(
                container,
                executor=_masked(container.executor),
                extra_env=mask_environment(container.extra_env),
            )
            for container in request.containers
        ],
    )


def _masked(executor: DockerExecutor) -> DockerExecutor:
    shown = executor.clone()
    shown.env_vars = mask_environment(executor.env_vars)
    return shown
