"""Jobs of a DGX Cloud Lepton workspace."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torchx.schedulers.api import (
    AppDryRunInfo,
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
)
from torchx.specs import AppDef, AppState, runopts

from nemo_run import _later
from nemo_run._backends.lepton.logs import ENDED, JobLog, exit_code
from nemo_run._backends.lepton.script import job_name
from nemo_run._home import get_nemorun_home
from nemo_run._jobs import legacy
from nemo_run._jobs.records import JobRecord, JobRef
from nemo_run._names import slug
from nemo_run._secrets.masking import mask_environment
from nemo_run._shell import render
from nemo_run._transport.waiting import Waiting
from nemo_run._values import literal
from nemo_run.core.execution.base import Executor, ExecutorMacros
from nemo_run.core.execution.lepton import LeptonExecutor, shown_state
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
    SubmitError,
)
from nemo_run.run.torchx_backend.schedulers.api import (
    TAG,
    JobStatus,
    LogQuery,
    SchedulerMixin,
)

if TYPE_CHECKING:
    from nemo_run._backends.lepton.client import Job, Lepton

log = logging.getLogger(__name__)

STOPPING_S = 120.0
"""How long a job may take to stop before that is reported."""

_STATES: dict[str, AppState] = {
    "Queueing": AppState.PENDING,
    "Awaiting": AppState.PENDING,
    "Starting": AppState.PENDING,
    "Restarting": AppState.PENDING,
    "PendingRetry": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
    # Shown while containers are given time to end; a job does not come back from it.
    "Stopping": AppState.CANCELLED,
    "Stopped": AppState.CANCELLED,
    # Containers may still run.
    "Deleting": AppState.RUNNING,
    "Terminating": AppState.RUNNING,
    "Deleted": AppState.CANCELLED,
    # Of any end; the numbers of replicas tell which, see `_outcome`.
    "Archived": AppState.SUCCEEDED,
    # What the workspace says when it cannot tell, and what its client makes of a word it does not
    # know. Nothing follows from it.
    "Unknown": AppState.UNKNOWN,
}
"""By the names of the vendor's enum, all generations of it."""

LEGACY_INDEX = ".lepton_jobs.json"
"""The index file of 0.12, below the home directory. Only read."""

_unclear: set[str] = set()


def __getattr__(name: str) -> Any:
    if name == "LEPTON_STATES":
        from nemo_run._backends.lepton.client import job_states

        return {state: _STATES.get(state.name, AppState.UNKNOWN) for state in job_states()}
    return _later.file_at_home(__name__, name, {"LEPTON_JOB_DIRS": LEGACY_INDEX})


@dataclass
class LeptonRequest:
    """A job to be created: ``name`` is its id in the workspace."""

    app: AppDef = field(repr=False)  # has the environment in it
    executor: LeptonExecutor
    cmd: list[str]
    name: str


class LeptonScheduler(
    SchedulerMixin[LeptonExecutor, LeptonRequest],
    Scheduler[dict[str, str]],
):
    """Runs each role as one job of the workspace, with a replica on each node."""

    EXECUTOR: ClassVar[type[Executor]] = LeptonExecutor

    def __init__(self, session_name: str) -> None:
        super().__init__("lepton", session_name)
        self._connection: Lepton | None = None
        # Jobs that were to be ended, and that the workspace does not have any more.
        self._gone: set[str] = set()

    @property
    def _client(self) -> Lepton:
        if self._connection is None:
            from nemo_run._backends.lepton.client import Lepton

            self._connection = Lepton()
        return self._connection

    def _run_opts(self) -> runopts:
        options = runopts()
        options.add("job_dir", type_=str, help="where the files of the job are")
        return options

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return what is known of a job; None where nothing is."""
        return super().describe(app_id)

    def schedule(self, dryrun_info: AppDryRunInfo[LeptonRequest]) -> str:
        """Move the job's files, create the job and return its app id."""
        return super().schedule(dryrun_info)

    def list(self) -> list[ListAppResponse]:
        """Return the jobs that were submitted from this home directory, the latest first."""
        return super().list()

    def _plan(self, app: AppDef, executor: LeptonExecutor) -> LeptonRequest:
        executor.check()
        role = app.roles[0]
        role.num_replicas = executor.nodes
        # Launchers that meet where their arguments say do so by the variables of the job.
        role.args = [
            arg
            if isinstance(arg, literal)
            else arg.replace(ExecutorMacros.HEAD_NODE_IP_VAR, "$MASTER_ADDR").replace(
                ExecutorMacros.NODE_RANK_VAR, "$NODE_RANK"
            )
            for arg in role.args
        ]
        return LeptonRequest(
            app=app,
            executor=executor,
            cmd=[role.entrypoint, *role.args],
            name=job_name(role.name, app.metadata[TAG]),
        )

    def _describe_request(self, request: LeptonRequest) -> str:
        executor, role = request.executor, request.app.roles[0]
        spec = executor.job_spec(mask_environment(role.env))
        shown = {
            "job": role.name,
            "tag": request.app.metadata[TAG],
            "node_group": executor.node_group,
            "files": executor.place,
            "command": render(request.cmd),
            "spec": spec,
        }
        return json.dumps(shown, indent=2, ensure_ascii=False)

    def _planned_id(self, request: LeptonRequest) -> str:
        experiment = slug(request.executor.experiment_id or "nemo_run")
        return f"{experiment}___{slug(request.app.roles[0].name)}___{request.name}"

    def _planned_ref(self, record: JobRecord) -> JobRef | None:
        job_id = record.app_id.rpartition("___")[2]
        try:
            found = self._client.find_job(job_id)
        except BackendUnavailableError:
            return self._ref_of(job_id)  # it may be there
        return None if found is None else self._ref_of(found.id)

    def _ref_of(self, job_id: str) -> JobRef:
        return JobRef(native_id=job_id, where={"workspace": self._client.workspace})

    def _legacy_record(self, app_id: str) -> JobRecord | None:
        return legacy.find_cloud_job(
            Path(get_nemorun_home()) / LEGACY_INDEX, app_id, self._scheduler_name()
        )

    def _launch(self, request: LeptonRequest) -> JobRef:
        environment = request.app.roles[0].env
        tag = request.app.metadata[TAG]
        try:
            job = request.executor.submit(request.name, request.cmd, environment, tag=tag)
        except TimeoutError as err:
            raise SubmitError(str(err), backend=self.backend, operation="submit") from err
        ref = self._ref_of(job.id)
        record = self._find(self._planned_id(request))
        if record is not None and record.is_terminal:
            # While files were moved there was no job yet that could have been stopped.
            self._kill(ref)
            raise SubmitError(
                f"Job {record.app_id} was cancelled while it was being submitted.",
                backend=self.backend,
                operation="submit",
            )
        return ref

    def _poll(self, ref: JobRef) -> JobStatus:
        try:
            job = self._client.job(ref.native_id)
        except JobNotFoundError:
            self._check_workspace(ref)
            if ref.native_id in self._gone:
                return JobStatus(state=AppState.CANCELLED)
            raise
        state, message = _outcome(job)
        code = None
        if state is AppState.SUCCEEDED:
            code = 0
        elif state is AppState.FAILED:
            code = self._exit_code(job)
            message = message or ("" if code is not None else self._what_happened(job))
        return JobStatus(
            state=state,
            message=message,
            exit_code=code,
            url=self._client.job_url(job.id),
            restarts=job.restarts,
            started_at=job.created_at,
            ended_at=job.ended_at,
        )

    def _exit_code(self, job: Job) -> int | None:
        try:
            return exit_code(self._client, job)
        except BackendError as err:
            log.debug("%s: no exit code: %s", job.id, err)
            return None

    def _what_happened(self, job: Job) -> str:
        try:
            return "; ".join(self._client.events(job.id)[-3:])
        except BackendError:
            return ""

    def _stop(self, ref: JobRef) -> None:
        self._end_job(ref, lambda: self._client.stop_job(ref.native_id))

    def _kill(self, ref: JobRef) -> None:
        self._end_job(ref, lambda: self._client.delete_job(ref.native_id))
        self._gone.add(ref.native_id)

    def _end_job(self, ref: JobRef, ask: Callable[[], object]) -> None:
        """Ask until the workspace has heard it, and wait until nothing runs any more."""
        client = self._client
        try:
            if client.patiently(lambda: client.job(ref.native_id)).state in ENDED:
                return
            client.patiently(ask)
            waiting = Waiting(0.05, 5, timeout_s=STOPPING_S)
            while (job := client.patiently(lambda: client.job(ref.native_id))).state not in ENDED:
                if waiting.is_over:
                    raise BackendError(
                        f"Asked Lepton to end {job.id}, but it is still {job.state} after "
                        f"{STOPPING_S:.0f} s. Cancel it once more, or look at "
                        f"{client.job_url(job.id)}.",
                        backend=self.backend,
                        operation="cancel",
                    )
                waiting.pause()
        except JobNotFoundError:
            self._check_workspace(ref)
            if ref.where.get("workspace"):
                self._gone.add(ref.native_id)

    def _check_workspace(self, ref: JobRef) -> None:
        """Raise JobNotFoundError for a job that another workspace may well have."""
        there, here = ref.where.get("workspace"), self._client.workspace
        if there and there != here:
            raise JobNotFoundError(
                f"Job {ref.native_id} was submitted to Lepton workspace {there!r}, and this is "
                f"{here!r}. Log in to the other one with 'lep login'.",
                backend=self.backend,
            )

    def _lines(self, ref: JobRef, query: LogQuery) -> Iterator[str]:
        lines = JobLog(self._client, ref.native_id, query.replica)
        if query.follow:
            return lines.follow(query.since, query.until)
        return lines.read(query.since, query.until)


def _outcome(job: Job) -> tuple[AppState, str]:
    """Return the state of a job in the words of torchx, and what to say about it."""
    state = _STATES.get(shown_state(job), AppState.UNKNOWN)
    if job.state == "Archived" and job.succeeded < job.size:
        if job.failed:
            return AppState.FAILED, "archived"
        return AppState.CANCELLED, "archived before it had ended"
    if state is AppState.UNKNOWN and job.id not in _unclear:
        _unclear.add(job.id)
        log.warning("%s: Lepton reported a state that its client does not know", job.id)
    return state, ""


def create_scheduler(session_name: str, **kwargs: Any) -> LeptonScheduler:
    return LeptonScheduler(session_name)
