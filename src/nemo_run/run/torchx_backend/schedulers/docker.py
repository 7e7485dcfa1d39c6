"""Jobs in containers of a Docker engine."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torchx.schedulers.api import Scheduler, Stream
from torchx.specs import AppDef, AppState, is_terminal

from nemo_run._backends.docker import connection, legacy
from nemo_run._backends.docker.client import Engine
from nemo_run._backends.docker.files import JobFiles
from nemo_run._backends.docker.index import index_path
from nemo_run._backends.docker.job import (
    DOCKER_STATES,
    STOPPING_S,
    SubmittedJob,
)
from nemo_run._backends.docker.network import ensure_network
from nemo_run._backends.docker.settings import container_names
from nemo_run._jobs.records import JobRecord, JobRef
from nemo_run._names import slug
from nemo_run._transport.waiting import Waiting
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.docker import (
    DockerContainer,
    DockerExecutor,
    DockerJobRequest,
)
from nemo_run.exceptions import (
    BackendUnavailableError,
    ConfigError,
    ConnectionLostError,
    JobNotFoundError,
    SubmitError,
    UnsupportedError,
)
from nemo_run.run.torchx_backend.schedulers.api import (
    TAG,
    JobStatus,
    LogQuery,
    SchedulerMixin,
)

if TYPE_CHECKING:
    from nemo_run.run.experiment import Experiment

__all__ = ["DOCKER_STATES", "PersistentDockerScheduler", "create_scheduler", "log"]

log = logging.getLogger(__name__)

SUBMIT_PATIENCE_S = 60.0
CANCEL_PATIENCE_S = 60.0
PAUSE_S = (0.1, 2.0)


class PersistentDockerScheduler(
    SchedulerMixin[DockerExecutor, DockerJobRequest], Scheduler[dict[str, Any]]
):
    """Runs each role as a container; the roles of a group are one job.

    ``experiment`` is accepted for compatibility.
    """

    EXECUTOR: ClassVar[type[Executor]] = DockerExecutor
    MAX_ROLES = None

    def __init__(self, session_name: str, experiment: Experiment | None = None) -> None:
        super().__init__("docker_persistent", session_name)

    def close(self) -> None:
        """Do nothing: containers go on."""

    # Planning.

    def _plan(self, app: AppDef, executor: DockerExecutor) -> DockerJobRequest:
        members = executor.resource_group or [executor]
        if len(members) != len(app.roles):
            raise ConfigError(
                f"{len(members)} executors do not fit {len(app.roles)} tasks. "
                "DockerExecutor.merge() makes one executor for a group."
            )
        for member, role in zip(members, app.roles, strict=True):
            member.check()
            if role.num_replicas != 1:
                raise UnsupportedError(
                    f"DockerExecutor runs {role.name!r} once, not {role.num_replicas} times."
                )
        names = container_names(executor.experiment_id or "", [role.name for role in app.roles])
        containers = []
        for name, role, member in zip(names, app.roles, members, strict=True):
            command = [role.entrypoint, *role.args]
            container = DockerContainer(
                name=name, command=command, executor=member, extra_env=dict(role.env)
            )
            container.role = role.name
            containers.append(container)
        job_id = f"{slug(Path(executor.job_dir).name)}-{app.metadata[TAG]}"
        return DockerJobRequest(id=job_id, executor=executor, containers=containers)

    def _planned_id(self, request: DockerJobRequest) -> str:
        return request.id

    # Submitting.

    def _launch(self, request: DockerJobRequest) -> JobRef:
        files = JobFiles.of(request.executor.job_dir, request.id)
        # Then a launcher has come this far before, and may have started it.
        in_doubt = files.read_where() is not None
        try:
            engine = connection.connect()
            engine_id = engine.id
        except BackendUnavailableError as err:
            if in_doubt:
                raise
            raise SubmitError(
                f"{err} Nothing was submitted.",
                backend=self.backend,
                operation="submit",
                detail=err.detail,
            ) from err
        roles = {container.role: container for container in request.containers}
        where = {
            "host": engine.host,
            "engine": engine_id,
            "state_dir": str(files.directory),
            "containers": json.dumps({role: each.name for role, each in roles.items()}),
            "retries": json.dumps({role: each.executor.retries for role, each in roles.items()}),
        }
        files.write_where(where)
        try:
            self._settle(engine, request, in_doubt=in_doubt)
        except (SubmitError, ConfigError):
            for container in request.containers:
                files.member(container.name).forget_environment()
            raise
        return JobRef(native_id=request.id, where=where)

    def _settle(self, engine: Engine, request: DockerJobRequest, *, in_doubt: bool) -> None:
        """Start each container once, however often the engine goes away meanwhile.

        ``in_doubt`` says that it may have been started already.

        Raises:
            SubmitError: the engine did not accept it, or went away before it was asked to, or the
                job was cancelled meanwhile.
            ConnectionLostError: it may have been started, and the engine cannot say.
        """
        waiting = None  # counted from the first failure: an image may take an hour to come
        while True:
            try:
                return self._submit(engine, request)
            except BackendUnavailableError as err:
                in_doubt = in_doubt or isinstance(err, ConnectionLostError)
                waiting = waiting or Waiting(*PAUSE_S, timeout_s=SUBMIT_PATIENCE_S, growth=2)
                if waiting.is_over:
                    kind = ConnectionLostError if in_doubt else SubmitError
                    raise kind(str(err), backend=self.backend, operation="submit") from err
                log.warning("%s; trying again", err)
                waiting.pause()

    def _submit(self, engine: Engine, request: DockerJobRequest) -> None:
        """Do what is left to be done, which is all of it if this is called for the first time."""
        wanted = {(c.executor.container_image, c.executor.pull) for c in request.containers}
        for image, pull in sorted(wanted):
            _have_image(engine, image, pull)
        for network in sorted({container.executor.network for container in request.containers}):
            ensure_network(engine.client, network)
        if self._has_ended(request):
            return
        ids = request.create(engine)
        try:
            for container_id in ids:
                if self._has_ended(request):
                    engine.remove(container_id)  # made after others were removed
                else:
                    engine.start(container_id)
            self._has_ended(request)
        except SubmitError:
            for container in engine.containers(request.id):
                engine.remove(container.id)
            raise

    def _has_ended(self, request: DockerJobRequest) -> bool:
        """Tell whether the job has been started before, and a process saw its end.

        Raises:
            SubmitError: it was cancelled.
        """
        record = self._find(request.id)
        if record is None:
            return False
        files = JobFiles.of(request.executor.job_dir, request.id)
        outcome = files.read_outcome() or files.read_old_outcome() or {}
        end = record.state if record.is_terminal else outcome.get("state")
        # While images were pulled there was no container yet that could have been stopped.
        if end == "CANCELLED" or (end is None and files.was_cancelled_at is not None):
            message = "cancelled while it was being submitted"
            self._put(replace(record, state="CANCELLED", message=message))
            raise SubmitError(
                f"Job {request.id} was {message}.", backend=self.backend, operation="submit"
            )
        return end is not None

    def _planned_ref(self, record: JobRecord) -> JobRef | None:
        where = JobFiles.of(record.job_dir, record.app_id).read_where()
        if where is None:
            return None
        ref = JobRef(native_id=record.app_id, where=where)
        try:
            engine = connection.connect(where.get("host", ""))
            there = engine.containers(record.app_id)
            elsewhere = where.get("engine") != engine.id  # say, of another machine with this home
        except BackendUnavailableError:
            return ref  # it may be there
        job = SubmittedJob(ref)
        left = any(job.files.member(name).attempts for name in job.members.values())
        return ref if there or left or elsewhere else None

    # Asking.

    def _poll(self, ref: JobRef) -> JobStatus:
        return SubmittedJob(ref).status()

    def _stop(self, ref: JobRef) -> None:
        self._cancel(SubmittedJob(ref), wait_s=STOPPING_S)

    def _kill(self, ref: JobRef) -> None:
        self._cancel(SubmittedJob(ref), wait_s=0)

    def _cancel(self, job: SubmittedJob, *, wait_s: int) -> None:
        job.end(wait_s=wait_s)
        waiting = Waiting(*PAUSE_S, timeout_s=CANCEL_PATIENCE_S, growth=1)
        # A container that is between two tries is told not to start again, and ends a little later.
        while not _is_over(job) and not waiting.is_over:
            waiting.pause()

    # Reading.

    def _bytes(self, ref: JobRef, query: LogQuery) -> Iterator[bytes]:
        if query.stream is not Stream.COMBINED:
            raise UnsupportedError(
                f"A container has one log for both streams, so {query.stream.name} alone cannot be "
                "had."
            )
        job = SubmittedJob(ref)
        return job.read(query, lambda: _has_ended(job))

    def tail(self, app_id: str, query: LogQuery, lines: int) -> Sequence[str]:
        """Return the last lines of a log; of a failed job, those of the task that failed first."""
        record = self._find(app_id)
        if record is not None and record.ref is not None and record.state == "FAILED":
            query = SubmittedJob(record.ref).failed_first(query)
        return super().tail(app_id, query, lines)

    def unused(self) -> dict[str, str]:
        """Return containers of jobs that have ended, which could not be removed then."""
        found = {}
        for container in connection.connect().containers():
            record = self._store.find(container.job, self._scheduler_name())
            if container.status != "running" and record is not None and record.is_terminal:
                found[f"container {container.name}"] = f"docker rm {container.name}"
        return found

    def _legacy_record(self, app_id: str) -> JobRecord | None:
        return legacy.find_docker_job(index_path(), app_id)


def create_scheduler(session_name: str, **kwargs: Any) -> PersistentDockerScheduler:
    """Return a scheduler for the Docker engine that the environment names."""
    return PersistentDockerScheduler(session_name, experiment=kwargs.get("experiment"))


def _have_image(engine: Engine, image: str, pull: str) -> None:
    """Fetch an image as far as that is wanted.

    Raises:
        SubmitError: it is neither here nor to be had.
    """
    if pull == "never" or image.startswith("sha256:"):
        return
    there = engine.has_image(image)
    if there and pull == "missing":
        return
    try:
        engine.pull(image)
    except SubmitError as err:
        if not there:
            raise
        log.warning("%s. The image that is here is used.", str(err).rstrip("."))


def _has_ended(job: SubmittedJob) -> bool:
    try:
        return is_terminal(job.status().state)
    except BackendUnavailableError as err:
        log.debug("%s", err)
        return False
    except JobNotFoundError:
        return True


def _is_over(job: SubmittedJob) -> bool:
    try:
        state = job.status().state
    except BackendUnavailableError as err:
        log.warning("%s", err)
        return False
    return is_terminal(state) or state is AppState.UNSUBMITTED
