"""Jobs that SkyPilot manages, each on a cluster of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torchx.schedulers.api import (
    AppDryRunInfo,
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
)
from torchx.specs import AppDef, AppState, is_terminal

from nemo_run import _later
from nemo_run._backends.skypilot import client, downloads, launches
from nemo_run._backends.skypilot.jobs import (
    INDEX,
    SkypilotSchedulerMixin,
)
from nemo_run._backends.skypilot.streams import LogLine
from nemo_run._backends.skypilot.task import task_name
from nemo_run._jobs.records import JobRecord, JobRef
from nemo_run._transport.waiting import Waiting
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.skypilot_jobs import (
    SkypilotJobsExecutor,
    find_job,
    split_app_id,
)
from nemo_run.exceptions import ConfigError, JobLostError, JobNotFoundError
from nemo_run.run.torchx_backend.schedulers.api import TAG, SchedulerMixin

if TYPE_CHECKING:
    import sky

log: logging.Logger = logging.getLogger(__name__)

STATES: Mapping[str, AppState] = {
    "PENDING": AppState.PENDING,
    # Servers of long ago still have it in their tables, and it may be written by its name, too.
    "SUBMITTED": AppState.SUBMITTED,
    "DEPRECATED_SUBMITTED": AppState.SUBMITTED,
    "STARTING": AppState.SUBMITTED,
    "RUNNING": AppState.RUNNING,
    # Its machine was lost, and another is being looked for.
    "RECOVERING": AppState.RUNNING,
    # The task has ended and what it left is being saved; how it ended is not said yet.
    "WINDING_DOWN": AppState.RUNNING,
    # Asked to end, and may still be at work.
    "CANCELLING": AppState.RUNNING,
    "SUCCEEDED": AppState.SUCCEEDED,
    "CANCELLED": AppState.CANCELLED,
    "FAILED": AppState.FAILED,
    "FAILED_SETUP": AppState.FAILED,
    "FAILED_PRECHECKS": AppState.FAILED,
    "FAILED_NO_RESOURCE": AppState.FAILED,
    "FAILED_CONTROLLER": AppState.FAILED,
}
"""The values of SkyPilot's ``ManagedJobStatus``, and the one name of it that is not the value."""

_RAN = ("SUCCEEDED", "FAILED", "FAILED_SETUP")
"""How a job ends that has written a log."""

_CANCEL_TIMEOUT_S = 300.0
_CANCEL_POLL_S = 1.0


def __getattr__(name: str) -> Any:
    if name == "SKYPILOT_STATES":
        if find_spec("sky") is None:
            return {}
        words = client.managed_job_status()
        return {word: STATES[word.value] for word in words if word.value in STATES}
    return _later.file_at_home(__name__, name, {"SKYPILOT_JOB_DIRS": INDEX})


@dataclass
class SkypilotJobsRequest:
    """A task of SkyPilot's and the executor it was made from."""

    task: sky.task.Task
    executor: SkypilotJobsExecutor
    app_id: str = ""


class SkypilotJobsScheduler(
    SkypilotSchedulerMixin[SkypilotJobsExecutor, SkypilotJobsRequest],
    SchedulerMixin[SkypilotJobsExecutor, SkypilotJobsRequest],
    Scheduler[dict[str, str]],
):
    """Hands jobs to SkyPilot's controller, which starts them again where a machine is lost."""

    EXECUTOR: ClassVar[type[Executor]] = SkypilotJobsExecutor
    STATES = STATES

    def __init__(self, session_name: str) -> None:
        super().__init__("skypilot_jobs", session_name)

    def schedule(self, dryrun_info: AppDryRunInfo[SkypilotJobsRequest]) -> str:
        """Ask SkyPilot for the job and return its app id; does not wait for a cluster."""
        return super().schedule(dryrun_info)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return what is known of a job; None where nothing is."""
        return super().describe(app_id)

    def list(self) -> list[ListAppResponse]:
        """Return the jobs that were submitted from this home directory, the latest first."""
        return super().list()

    def _plan(self, app: AppDef, executor: SkypilotJobsExecutor) -> SkypilotJobsRequest:
        (role,) = app.roles
        role.num_replicas = executor.num_nodes
        tag = app.metadata[TAG]
        name = task_name(app.name)
        if not name[0].isalpha():
            name = f"job-{name}"  # SkyPilot names the cluster after the job, with a letter first
        task = executor.to_task(f"{name}-{tag}", [role.entrypoint, *role.args], dict(role.env))
        where = task_name(executor.cluster_name or executor.experiment_id or "managed")
        return SkypilotJobsRequest(task, executor, f"{where}___{name}___{tag}")

    def _stop(self, ref: JobRef) -> None:
        request = self._launch_request(ref)
        if request is not None and request.is_live:
            launches.cancel_request(request.id)
        app_id = ref.where["app_id"]
        job = self._job(app_id)
        if job is None or is_terminal(self._state(job)):
            return
        client.cancel_managed(job.id)
        # SkyPilot answers when it has taken note; the controller then ends job and cluster.
        waiting = Waiting(_CANCEL_POLL_S, _CANCEL_POLL_S, timeout_s=_CANCEL_TIMEOUT_S)
        while job is not None and not is_terminal(self._state(job)):
            if waiting.is_over:
                return
            waiting.pause()
            job = self._job(app_id)

    def _job(self, app_id: str) -> client.SkyJob | None:
        try:
            return find_job(app_id)
        except JobNotFoundError:
            return None

    def _missing(self, app_id: str) -> JobNotFoundError:
        client.managed_jobs()  # raises where the controller, which would know it, is not up
        return JobLostError(
            "SkyPilot manages no such job: its launch was lost, or the controller is another",
            backend=self.backend,
            operation="status",
        )

    def _launch_request(self, ref: JobRef) -> launches.SkyRequest | None:
        if ref.native_id:
            return launches.find_request(ref.native_id)
        _, task, last = split_app_id(ref.where["app_id"])
        if last.isdecimal():  # of 0.12, which waited for its requests
            return None
        return next(iter(launches.requests_naming(None, f"{task}-{last}")), None)

    def _stream(self, app_id: str, job: client.SkyJob, *, follow: bool) -> Iterator[LogLine]:
        return client.tail_managed(job.id, follow=follow)

    def _host(self, record: JobRecord) -> str:
        return "skypilot-api"

    def _download(self, app_id: str, job: client.SkyJob, directory: Path) -> None:
        downloads.download_managed(job.id, directory, has_run=job.status in _RAN)

    def _legacy_task(self, app_id: str) -> str:
        # The index file has jobs of clusters too, which have one part more.
        if app_id.count("___") != 2:
            raise ConfigError(f"{app_id!r} is not the id of a managed job.")
        return split_app_id(app_id)[1]


def create_scheduler(session_name: str, **kwargs: Any) -> SkypilotJobsScheduler:
    """Return a scheduler for jobs that SkyPilot manages."""
    return SkypilotJobsScheduler(session_name)
