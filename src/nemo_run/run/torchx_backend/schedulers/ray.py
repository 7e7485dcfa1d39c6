"""Jobs of a Ray cluster that is already there."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torchx.schedulers.api import Scheduler, Stream
from torchx.specs import AppDef, AppState

from nemo_run._backends.ray import request as ray_request
from nemo_run._backends.ray.client import BACKEND, Job, RayJobs
from nemo_run._backends.ray.logs import JobLog, tries_of
from nemo_run._backends.ray.marks import nonce_of
from nemo_run._backends.ray.site import Site
from nemo_run._backends.ray.status import RAY_STATES, status_of
from nemo_run._jobs.notes import read_note, write_note
from nemo_run._jobs.records import JobRecord, JobRef
from nemo_run._names import slug
from nemo_run._secrets.masking import mask_environment
from nemo_run._shell import render
from nemo_run._transport.waiting import Waiting
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.ray import RayExecutor
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
    JobLostError,
    SubmitError,
    UnsupportedError,
)
from nemo_run.run.torchx_backend.schedulers.api import TAG, JobStatus, LogQuery, SchedulerMixin

__all__ = ["RAY_STATES", "RayRequest", "RayScheduler", "create_scheduler"]

log = logging.getLogger(__name__)

SUBMIT_PATIENCE_S = 60.0
STOP_PATIENCE_S = 20.0
STOPPING_S = 120.0
"""How long a job may take to stop before that is reported."""


@dataclass
class RayRequest:
    """A job to be submitted: ``id`` is its submission id on the cluster."""

    app: AppDef = field(repr=False)  # has the environment in it
    executor: RayExecutor
    cmd: list[str]
    id: str

    @property
    def tag(self) -> str:
        return str(self.app.metadata[TAG])


class RayScheduler(SchedulerMixin[RayExecutor, RayRequest], Scheduler[dict[str, str]]):
    """Runs each role as one job of the cluster, and asks the cluster about it."""

    EXECUTOR: ClassVar[type[Executor]] = RayExecutor

    def __init__(self, session_name: str) -> None:
        super().__init__("ray", session_name)

    # Planning.

    def _plan(self, app: AppDef, executor: RayExecutor) -> RayRequest:
        executor.check()
        role = app.roles[0]
        if role.num_replicas != 1:
            raise UnsupportedError(
                f"RayExecutor runs {role.name!r} once, not {role.num_replicas} times. Start tasks "
                "or actors on the cluster from within the job."
            )
        return RayRequest(
            app=app,
            executor=executor,
            cmd=[role.entrypoint, *role.args],
            id=ray_request.submission_id(role.name, app.metadata[TAG]),
        )

    def _describe_request(self, request: RayRequest) -> str:
        env = mask_environment(request.app.roles[0].env)
        body = self._body(request, "<package>")
        body["metadata"] = request.executor.metadata  # and not what opens the files of the job
        shown = {
            "job": request.app.roles[0].name,
            "submission_id": request.id,
            "address": request.executor.address,
            "command": render(request.cmd),
            "env": env,
            "retries": request.executor.retries,
            "body": body,
        }
        # The id is made from the tag, which is another one each time.
        text = json.dumps(shown, indent=2, ensure_ascii=False)
        return text.replace(request.id, f"{slug(request.app.roles[0].name, 40)}-{request.tag}")

    def _body(self, request: RayRequest, package: str) -> dict[str, Any]:
        executor = request.executor
        return ray_request.body(
            env=request.app.roles[0].env,
            runtime_env=executor.runtime_env,
            metadata=executor.metadata,
            resources=executor.asked_for(),
            package=package,
            tag=request.tag,
        )

    def _planned_id(self, request: RayRequest) -> str:
        experiment = slug(request.executor.experiment_id or "nemo_run", 40)
        return f"{experiment}___{request.id}"

    # Submitting.

    def _launch(self, request: RayRequest) -> JobRef:
        executor = request.executor
        site = Site.at(executor.address, executor.token)
        ref = JobRef(native_id=request.id, where=self._where(request, site))
        # Before anything is sent: a later process looks there for what a killed one submitted.
        write_note(_note(executor.job_dir, ref.native_id), ref.where)
        client = site.client(patience_s=0)
        name, data = ray_request.package(
            Path(executor.job_dir),
            request.cmd,
            request.app.roles[0].env,
            tag=request.tag,
            retries=executor.retries,
        )
        _submit(client, request.id, name, data, self._body(request, name))
        record = self._find(self._planned_id(request))
        if record is not None and record.is_terminal:
            # While files were sent there was no job yet that could have been stopped.
            self._stop(ref)
            raise SubmitError(
                f"Job {record.app_id} was cancelled while it was being submitted.",
                backend=BACKEND,
                operation="submit",
            )
        return ref

    def _where(self, request: RayRequest, site: Site) -> dict[str, str]:
        return {
            **site.to_where(),
            "nonce": nonce_of(request.tag),
            "retries": str(request.executor.retries),
        }

    def _planned_ref(self, record: JobRecord) -> JobRef | None:
        ref = _read_note(record.job_dir, record.app_id.rpartition("___")[2])
        if ref is None:
            return None
        try:
            found = Site.from_where(ref.where).client().find(ref.native_id)
        except BackendUnavailableError:
            return ref  # it may be there
        return None if found is None else ref

    # Asking.

    def _poll(self, ref: JobRef) -> JobStatus:
        site = Site.from_where(ref.where)
        client = site.client()
        job = client.find(ref.native_id)
        if job is None:
            raise JobLostError(
                f"{client.server} has no job {ref.native_id}: the cluster was started anew since "
                "it was submitted, or the job was deleted there.",
                backend=BACKEND,
            )
        tries = 0
        if int(ref.where["retries"]) and job.has_ended and job.node:
            tries = tries_of(client, job, ref.where["nonce"])
        url = f"{site.address}/#/jobs/{ref.native_id}"
        return status_of(job, url=url, restarts=max(0, tries - 1))

    def _stop(self, ref: JobRef) -> None:
        client = Site.from_where(ref.where).client(patience_s=STOP_PATIENCE_S)
        waiting = Waiting(0.1, 2, timeout_s=STOPPING_S)
        while True:
            job = client.find(ref.native_id)
            if job is None or job.has_ended:
                return
            if waiting.is_over:
                raise _still_there(client, job)
            # Each time: Ray forgets it for a job whose process is not there yet.
            client.stop(ref.native_id)
            waiting.pause()

    # Reading.

    def _bytes(self, ref: JobRef, query: LogQuery) -> Iterator[bytes]:
        if query.stream is not Stream.COMBINED:
            raise UnsupportedError(
                f"Ray keeps one log for both streams, so {query.stream.name} alone cannot be had."
            )
        for bound in ("since", "until"):
            if getattr(query, bound) is not None:
                raise UnsupportedError(
                    f"Ray does not keep when a line was written, so {bound} cannot choose lines."
                )
        client = Site.from_where(ref.where).client()
        lines = JobLog(client, ref.native_id, ref.where["nonce"])
        return lines.follow() if query.follow else lines.read()


def create_scheduler(session_name: str, **kwargs: Any) -> RayScheduler:
    """Return a scheduler for Ray clusters, each of which its executor names."""
    return RayScheduler(session_name)


def _submit(client: RayJobs, job_id: str, package: str, data: bytes, body: dict[str, Any]) -> None:
    """Have the job started once, however often the cluster goes away meanwhile.

    Raises:
        SubmitError: Ray did not take it, or could not be reached before it was asked to.
        ConnectionLostError: it may have been started, and Ray cannot say.
    """
    waiting = Waiting(0.2, 5, timeout_s=SUBMIT_PATIENCE_S, growth=2)
    asked = False
    while True:
        try:
            if not client.has_package(package):
                client.upload(package, data)
            asked = True
            client.submit(job_id, body)
        except BackendUnavailableError as err:
            if waiting.is_over:
                kind = ConnectionLostError if asked else SubmitError
                raise kind(str(err), backend=BACKEND, operation="submit") from err
            log.info("%s; trying again", err)
            waiting.pause()
        else:
            return


def _still_there(client: RayJobs, job: Job) -> BackendError:
    hint = ""
    if RAY_STATES.get(job.status) is AppState.PENDING:
        hint = " It waits for what it asked for, and Ray ends it when that is there."
    return BackendError(
        f"Asked {client.server} to end {job.id}, but it is still {job.status} after "
        f"{STOPPING_S:.0f} s.{hint} Cancel it once more.",
        backend=BACKEND,
        operation="cancel",
    )


def _note(job_dir: str, job_id: str) -> Path:
    return Path(job_dir) / ray_request.NOTES / f"{job_id}.json"


def _read_note(job_dir: str, job_id: str) -> JobRef | None:
    where = read_note(_note(job_dir, job_id), f"Ray job {job_id}")
    return None if where is None else JobRef(native_id=job_id, where=where)
