"""Jobs on clusters that SkyPilot makes."""

from __future__ import annotations

import logging
import re
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
from torchx.specs import AppDef, AppState, is_terminal, runopts

from nemo_run._clients import skypilot as client
from nemo_run._home import get_nemorun_home
from nemo_run._records import JobRecord, JobRef
from nemo_run.core.execution._skypilot_task import TRY, shown
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.skypilot import (
    SkypilotExecutor,
    app_id_for,
    find_job,
    job_name,
    split_app_id,
)
from nemo_run.exceptions import BackendError, JobNotFoundError
from nemo_run.run._names import slug
from nemo_run.run.torchx_backend.schedulers.api import (
    TAG,
    JobStatus,
    LogQuery,
    SchedulerMixin,
)

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


def __getattr__(name: str) -> Any:
    if name == "SKYPILOT_JOB_DIRS":
        # The index file of 0.12, under the home directory of the moment. Only read.
        return str(Path(get_nemorun_home()) / ".skypilot_jobs.json")
    if name == "SKYPILOT_STATES":
        if find_spec("sky") is None:
            return {}
        known = client.sdk().JobStatus
        return {known(word): state for word, state in STATES.items() if word in known.__members__}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass
class SkypilotRequest:
    """A task of SkyPilot's and the executor it was made from."""

    task: sky.task.Task
    executor: SkypilotExecutor
    app_id: str = ""


class SkypilotScheduler(
    SchedulerMixin[SkypilotExecutor, SkypilotRequest], Scheduler[dict[str, str]]
):
    """Launches each job by a request that goes on at the API server, whoever asked for it.

    A job is found again by its name on the cluster, which ends with its tag.
    """

    EXECUTOR: ClassVar[type[Executor]] = SkypilotExecutor

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

    def _run_opts(self) -> runopts:
        options = runopts()
        options.add("job_dir", type_=str, help="where the files of the job are", default=None)
        return options

    def _plan(self, app: AppDef, executor: SkypilotExecutor) -> SkypilotRequest:
        (role,) = app.roles
        tag = app.metadata[TAG]
        name = slug(app.name)
        task = executor.to_task(f"{name}-{tag}", [role.entrypoint, *role.args], dict(role.env))
        return SkypilotRequest(task, executor, app_id_for(executor, name, tag))

    def _describe_request(self, request: SkypilotRequest) -> str:
        import yaml

        return yaml.safe_dump(shown(request.task), sort_keys=False)

    def _planned_id(self, request: SkypilotRequest) -> str:
        return request.app_id

    def _planned_ref(self, record: JobRecord) -> JobRef:
        """Return how to find a job whose launcher died before it had the request's id."""
        return JobRef(native_id="", where={"app_id": record.app_id, "job_dir": record.job_dir})

    def _launch(self, request: SkypilotRequest) -> JobRef:
        executor = request.executor
        return JobRef(
            native_id=executor.submit(request.task),
            where={
                "app_id": request.app_id,
                "job_dir": executor.job_dir,
                "own": "" if executor.cluster_name else "yes",
            },
        )

    def _poll(self, ref: JobRef) -> JobStatus:
        cluster, task, last = split_app_id(ref.where["app_id"])
        job = _find(cluster, job_name(task, last))
        if job is None:
            return self._launching(ref)
        state = STATES.get(job.status)
        if state is None:
            log.warning("%s: SkyPilot says %s, which is unknown here", task, job.status)
            state = AppState.UNKNOWN
        logs = _log_dir(ref)
        if is_terminal(state):
            _keep_logs(cluster, job.id, logs)
        return JobStatus(
            state=state,
            message="" if state is not AppState.FAILED else f"SkyPilot says {job.status}",
            exit_code=0 if state is AppState.SUCCEEDED else _exit_code(logs),
            url=job.log_path,
            restarts=_restarts(logs),
            started_at=job.started_at,
            ended_at=job.ended_at,
        )

    def _launching(self, ref: JobRef) -> JobStatus:
        """Say how far a job is that no cluster has yet."""
        request = _request(ref)
        if request is None:
            return JobStatus(state=AppState.UNSUBMITTED)
        if request.is_live:
            what = request.message or "waits for its cluster"
            return JobStatus(state=AppState.PENDING, message=what)
        if request.status == "CANCELLED":
            return JobStatus(state=AppState.CANCELLED, message="cancelled before it was started")
        try:
            client.answer(request.id, operation="launch")
        except BackendError as err:
            return JobStatus(state=AppState.FAILED, message=str(err))
        raise JobNotFoundError(
            "the job was launched, but its cluster is gone",
            backend=client.BACKEND,
            operation="status",
        )

    def _stop(self, ref: JobRef) -> None:
        request = _request(ref)
        if request is not None and request.is_live:
            client.cancel_request(request.id)
        cluster, task, last = split_app_id(ref.where["app_id"])
        job = _find(cluster, job_name(task, last))
        if job is not None and not is_terminal(STATES.get(job.status, AppState.UNKNOWN)):
            client.cancel(cluster, job.id)
            _keep_logs(cluster, job.id, _log_dir(ref))
        if ref.where.get("own") and _is_idle(cluster):
            client.down(cluster)

    def _lines(self, ref: JobRef, query: LogQuery) -> Iterator[str]:
        cluster, task, last = split_app_id(ref.where["app_id"])
        kept = _raw_log(_log_dir(ref), query.replica)
        if kept is not None:
            yield from kept.open(errors="replace", newline="\n")
            return
        job = _find(cluster, job_name(task, last))
        if job is None:
            return
        for line in client.tail(cluster, job.id, follow=query.follow):
            if line.rank == query.replica:
                yield line.text


def create_scheduler(session_name: str, **kwargs: Any) -> SkypilotScheduler:
    """Return a scheduler for clusters of SkyPilot's."""
    return SkypilotScheduler(session_name)


def _find(cluster: str, name: str) -> client.SkyJob | None:
    """Return a job of a cluster; None where either is not there, or not yet."""
    try:
        return find_job(cluster, name)
    except JobNotFoundError:
        return None


def _request(ref: JobRef) -> client.SkyRequest | None:
    """Return the request that launches a job, if the API server knows one."""
    if ref.native_id:
        return client.find_request(ref.native_id)
    cluster, task, last = split_app_id(ref.where["app_id"])
    return next(iter(client.requests_naming(cluster, job_name(task, last))), None)


def _is_idle(cluster: str) -> bool:
    try:
        states = [STATES.get(job.status, AppState.UNKNOWN) for job in client.jobs(cluster)]
    except BackendError as err:
        log.debug("%s: %s", cluster, err)
        return True
    return all(is_terminal(state) for state in states)


# Logs that were copied from the cluster: what SkyPilot says in run.log, each node in tasks/.


def _log_dir(ref: JobRef) -> Path:
    _, _, last = split_app_id(ref.where["app_id"])
    return Path(ref.where["job_dir"], "sky_logs", last)


def _keep_logs(cluster: str, job_id: int, directory: Path) -> None:
    """Copy the logs of an ended job, so that they outlive the cluster."""
    if (directory / "run.log").exists():
        return
    try:
        client.download(cluster, job_id, directory)
    except BackendError as err:
        log.warning("The logs of job %d on %s could not be copied: %s", job_id, cluster, err)


def _raw_log(directory: Path, rank: int) -> Path | None:
    """Return what node ``rank`` wrote, where it was copied."""
    files = sorted((directory / "tasks").glob("*.log"))
    of_rank = [path for path in files if re.match(rf"{rank}\D|.*rank{rank}\D", path.name)]
    found = of_rank or (files if len(files) == 1 and rank == 0 else [])
    return found[0] if found else None


def _exit_code(directory: Path) -> int | None:
    codes = re.search(r"return code list:\S* \[([-\d, ]+)\]", _text(directory / "run.log"))
    known = [int(code) for code in codes[1].split(",")] if codes else []
    return next((code for code in known if code), None)


def _restarts(directory: Path) -> int:
    tries = re.findall(rf"{TRY} (\d+) of", _text(_raw_log(directory, 0)))
    return int(tries[-1]) - 1 if tries else 0


def _text(path: Path | None) -> str:
    try:
        return path.read_text(errors="replace") if path is not None else ""
    except FileNotFoundError:
        return ""
