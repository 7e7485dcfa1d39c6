"""Jobs on clusters that SkyPilot makes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
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
    NotListedNowError,
    SkypilotSchedulerMixin,
)
from nemo_run._backends.skypilot.sdk import BACKEND, sdk
from nemo_run._backends.skypilot.streams import LogLine
from nemo_run._backends.skypilot.task import task_name
from nemo_run._jobs.records import JobRecord, JobRef
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.skypilot import (
    SkypilotExecutor,
    app_id_for,
    find_job,
    is_made_for_experiment,
    job_name,
    split_app_id,
)
from nemo_run.exceptions import (
    BackendUnavailableError,
    JobLostError,
    JobNotFoundError,
    UnsupportedError,
)
from nemo_run.run.torchx_backend.schedulers.api import TAG, JobStatus, SchedulerMixin

if TYPE_CHECKING:
    import sky

log: logging.Logger = logging.getLogger(__name__)

STATES: Mapping[str, AppState] = {
    "INIT": AppState.SUBMITTED,
    "PENDING": AppState.PENDING,
    # The setup commands of the task are part of it.
    "SETTING_UP": AppState.RUNNING,
    "RUNNING": AppState.RUNNING,
    "SUCCEEDED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
    "FAILED_SETUP": AppState.FAILED,
    # The process that runs the task on the cluster ended without saying how the task did.
    "FAILED_DRIVER": AppState.FAILED,
    "CANCELLED": AppState.CANCELLED,
}
"""The words of SkyPilot's ``JobStatus``."""

CLUSTERS: Mapping[str | None, str] = {
    None: "is gone, and how the job ended is not known",
    "PENDING": "waits to be made",
    "INIT": "was not made to the end, or is in trouble: see sky status --refresh, or sky down it",
    "UP": "does not know of it: its launch was lost, or another cluster had the same name",
    "STOPPED": "is stopped: sky start brings it back",
    "AUTOSTOPPING": "is being stopped, for it was idle",
}
"""The words of SkyPilot's ``ClusterStatus``, and what they say of a job that is not listed."""

_MISSING: Mapping[str | None, type[JobNotFoundError]] = {
    None: JobLostError,
    "UP": JobLostError,
    "PENDING": NotListedNowError,
    "INIT": NotListedNowError,
}
"""What is raised for a job that is not listed; of other clusters a plain `JobNotFoundError`."""


def __getattr__(name: str) -> Any:
    if name == "SKYPILOT_STATES":
        if find_spec("sky") is None:
            return {}
        known = sdk().JobStatus
        return {known(word): state for word, state in STATES.items() if word in known.__members__}
    return _later.file_at_home(__name__, name, {"SKYPILOT_JOB_DIRS": INDEX})


@dataclass
class SkypilotRequest:
    """A task of SkyPilot's and the executor it was made from."""

    task: sky.task.Task
    executor: SkypilotExecutor
    app_id: str = ""


class SkypilotScheduler(
    SkypilotSchedulerMixin[SkypilotExecutor, SkypilotRequest],
    SchedulerMixin[SkypilotExecutor, SkypilotRequest],
    Scheduler[dict[str, str]],
):
    """Runs jobs in the queues of clusters; cancelling a job takes down a cluster made for it."""

    EXECUTOR: ClassVar[type[Executor]] = SkypilotExecutor
    STATES = STATES

    def __init__(self, session_name: str) -> None:
        super().__init__("skypilot", session_name)

    def schedule(self, dryrun_info: AppDryRunInfo[SkypilotRequest]) -> str:
        """Ask SkyPilot for the job and return its app id; does not wait for a cluster."""
        return super().schedule(dryrun_info)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return what is known of a job; None where nothing is."""
        return super().describe(app_id)

    def list(self) -> list[ListAppResponse]:
        """Return the jobs that were submitted from this home directory, the latest first."""
        return super().list()

    def unused_clusters(self) -> dict[str, str]:
        """Return the clusters that were made for experiments from here and on which no job runs.

        By name, with the word of SkyPilot's ``ClusterStatus``. They cost money, a stopped one for
        its disks: take them down with ``sky down``.
        """
        made: dict[str, list[JobStatus]] = {}
        for record in self._store.list(self._scheduler_name()):
            if is_made_for_experiment(record.app_id):
                cluster, _, _ = split_app_id(record.app_id)
                made.setdefault(cluster, []).append(self._present(record))
        found = {
            name: client.cluster_status(name)
            for name, jobs in made.items()
            if all(job.state is AppState.UNKNOWN or _is_over(job) for job in jobs)
        }
        return {
            name: status
            for name, status in found.items()
            if status is not None
            and is_unused(status, made[name])
            and not launches.live_launches(name)
        }

    def unused(self) -> dict[str, str]:
        return {
            f"SkyPilot cluster {name} ({status})": f"sky down {name}"
            for name, status in self.unused_clusters().items()
        }

    def _plan(self, app: AppDef, executor: SkypilotExecutor) -> SkypilotRequest:
        if executor.retries and executor.num_nodes > 1:
            raise UnsupportedError(
                f"On a cluster a failed command is started again on its own node, and the other "
                f"nodes would not be, but retries={executor.retries} was asked for with "
                f"num_nodes={executor.num_nodes}. Use SkypilotJobsExecutor, which starts all nodes "
                "again, or set retries to 0."
            )
        (role,) = app.roles
        role.num_replicas = executor.num_nodes
        tag = app.metadata[TAG]
        name = task_name(app.name)
        task = executor.to_task(f"{name}-{tag}", [role.entrypoint, *role.args], dict(role.env))
        return SkypilotRequest(task, executor, app_id_for(executor, name, tag))

    def _forecast(self, request: SkypilotRequest) -> str:
        return client.forecast(request.task, request.executor.cluster())

    def _stop(self, ref: JobRef) -> None:
        request = self._launch_request(ref)
        if request is not None and request.is_live:
            launches.cancel_request(request.id)
        app_id = ref.where["app_id"]
        cluster, _, _ = split_app_id(app_id)
        job = self._job(app_id)
        if job is not None and not is_terminal(self._state(job)):
            client.cancel(cluster, job.id)
            job = self._job(app_id)
        if job is not None and is_terminal(self._state(job)):
            self._keep(ref, job)
        if is_made_for_experiment(app_id) and client.is_idle(cluster):
            status = client.cluster_status(cluster)
            if status is not None and is_unused(status, self._beside(app_id)):
                client.down(cluster)

    def _beside(self, app_id: str) -> Iterator[JobStatus]:
        """Yield the other jobs of a cluster: one that is not up does not list what runs on it."""
        cluster, _, _ = split_app_id(app_id)
        for record in self._store.list(self._scheduler_name()):
            if record.app_id != app_id and split_app_id(record.app_id)[0] == cluster:
                yield self._present(record)

    def _job(self, app_id: str) -> client.SkyJob | None:
        cluster, task, last = split_app_id(app_id)
        try:
            return find_job(cluster, job_name(task, last))
        except JobNotFoundError:
            return None

    def _host(self, record: JobRecord) -> str:
        return split_app_id(record.app_id)[0]

    def _missing(self, app_id: str) -> JobNotFoundError:
        cluster, _, _ = split_app_id(app_id)
        is_launching = bool(launches.live_launches(cluster))
        status = client.cluster_status(cluster)
        # SkyPilot lists no jobs of a cluster that is up, while it makes it ready for another.
        if (status == "INIT" and is_launching) or (status == "UP" and self._job(app_id)):
            raise BackendUnavailableError(
                f"Cluster {cluster} is being made ready for another job.",
                backend=self.backend,
                operation="status",
            )
        return missing(cluster, status)

    def _launch_request(self, ref: JobRef) -> launches.SkyRequest | None:
        if ref.native_id:
            return launches.find_request(ref.native_id)
        cluster, task, last = split_app_id(ref.where["app_id"])
        if last.isdecimal():  # of 0.12, which waited for its requests
            return None
        return next(iter(launches.requests_naming(cluster, job_name(task, last))), None)

    def _stream(self, app_id: str, job: client.SkyJob, *, follow: bool) -> Iterator[LogLine]:
        return client.tail(split_app_id(app_id)[0], job.id, follow=follow)

    def _download(self, app_id: str, job: client.SkyJob, directory: Path) -> None:
        has_failed = job.status == "FAILED"
        downloads.download(split_app_id(app_id)[0], job.id, directory, has_failed=has_failed)

    def _legacy_task(self, app_id: str) -> str:
        return split_app_id(app_id)[1]


def missing(cluster: str, status: str | None) -> JobNotFoundError:
    """Return what is to be said of a job that a cluster of that status does not list."""
    said = CLUSTERS.get(status, f"is {status}")
    return _MISSING.get(status, JobNotFoundError)(
        f"the job was launched, but its cluster {cluster} {said}",
        backend=BACKEND,
        operation="status",
    )


def is_unused(cluster: str, jobs: Iterable[JobStatus]) -> bool:
    """Tell whether none of its jobs runs on a cluster that is there, if none is being launched."""
    # How they ended is not known before it is started again, but on a stopped one nothing runs.
    return cluster == "STOPPED" or all(job.lost or _is_over(job) for job in jobs)


def _is_over(job: JobStatus) -> bool:
    # A launcher that died has left a record of what it never asked for.
    return job.state is AppState.UNSUBMITTED or is_terminal(job.state)


def create_scheduler(session_name: str, **kwargs: Any) -> SkypilotScheduler:
    """Return a scheduler for clusters of SkyPilot's."""
    return SkypilotScheduler(session_name)
