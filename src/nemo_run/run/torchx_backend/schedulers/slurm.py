"""Jobs on Slurm clusters, reached over ssh or from a login node."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torchx.schedulers.api import Scheduler
from torchx.specs import AppDef, AppState, is_terminal

from nemo_run import _later
from nemo_run._backends.ray.slurm_batch import RayBatch
from nemo_run._backends.slurm import legacy
from nemo_run._backends.slurm import request as slurm_request
from nemo_run._backends.slurm.job import SubmittedJob, client_for, look, submit_once
from nemo_run._backends.slurm.status import SLURM_STATES, job_status
from nemo_run._files import write_whole
from nemo_run._home import get_nemorun_home
from nemo_run._jobs.records import JobRecord, JobRef
from nemo_run._transport.waiting import Waiting
from nemo_run.config import USE_WITH_RAY_CLUSTER_KEY
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.slurm import SlurmBatchRequest, SlurmExecutor
from nemo_run.exceptions import (
    BackendUnavailableError,
    JobNotFoundError,
    RecordError,
)
from nemo_run.run.torchx_backend.schedulers.api import JobStatus, LogQuery, SchedulerMixin

if TYPE_CHECKING:
    from nemo_run.run.experiment import Experiment

__all__ = [
    "MAX_CONSECUTIVE_SACCT_FAILURES",
    "SLURM_JOB_DIRS",  # noqa: F822 - by __getattr__, since the home may change
    "SLURM_STATES",
    "SlurmTunnelScheduler",
    "create_scheduler",
]

log = logging.getLogger(__name__)

MAX_CONSECUTIVE_SACCT_FAILURES = 30
"""Kept for scripts that read it: no number of failed questions ends a job."""

CANCEL_PATIENCE_S = 120.0


def __getattr__(name: str) -> Any:
    return _later.file_at_home(__name__, name, {"SLURM_JOB_DIRS": legacy.INDEX})


class SlurmTunnelScheduler(
    SchedulerMixin[SlurmExecutor, SlurmBatchRequest], Scheduler[dict[str, Any]]
):
    """Submits with ``sbatch``, asks with ``squeue``, and keeps nothing in memory only.

    ``experiment`` is accepted for compatibility: connections belong to the process.
    """

    EXECUTOR: ClassVar[type[Executor]] = SlurmExecutor
    MAX_ROLES = None

    def __init__(self, session_name: str, experiment: Experiment | None = None) -> None:
        super().__init__("slurm_tunnel", session_name)

    def close(self) -> None:
        """Do nothing: jobs go on, and the connection serves others of this process."""

    # Planning.

    def _plan(self, app: AppDef, executor: SlurmExecutor) -> SlurmBatchRequest:
        request = slurm_request.plan(app, executor)
        if app.metadata.get(USE_WITH_RAY_CLUSTER_KEY):
            request = RayBatch.around(request)
        if executor.rank_logs:
            for position, role in enumerate(app.roles):
                role.num_replicas = request.tasks_of(position)
        request.materialize()  # says what is wrong with it
        request.environment_files()
        return request

    def _describe_request(self, request: SlurmBatchRequest) -> str:
        return repr(request)

    # Submitting.

    def _launch(self, request: SlurmBatchRequest) -> JobRef:
        script = request.materialize().encode()
        _leave_copy(request.executor, script)
        client = client_for(request.executor.tunnel)
        job_id = submit_once(client, slurm_request.submission(request, script))
        return slurm_request.reference(request, self._own_id(job_id, request), job_id)

    def _own_id(self, job_id: str, request: SlurmBatchRequest) -> str:
        """Return the number, made unlike that of another cluster's job which we know already."""
        known = self._store.find(job_id, self._scheduler_name())
        if known is None or known.tag == request.tag:
            return job_id
        return f"{job_id}@{request.tag.removeprefix('nr-')[:8]}"

    def _recover(self, request: SlurmBatchRequest) -> JobRef | None:
        job_id = client_for(request.executor.tunnel).find(request.state_dir)
        if job_id is None:
            return None
        return slurm_request.reference(request, self._own_id(job_id, request), job_id)

    # Asking.

    def _poll(self, ref: JobRef) -> JobStatus:
        job = SubmittedJob(ref)
        status = job_status(job.report())
        if is_terminal(status.state):
            job.client.unwatch(job.id)
            status = job.with_cause(status)
            job.settle(status.state)
        return status

    def statuses_of(self, app_ids: Sequence[str]) -> Mapping[str, JobStatus | None]:
        """Return the statuses of those of several jobs that go on, with one question to Slurm."""
        awaited = {app_id: record for app_id in app_ids if (record := self._awaited(app_id))}
        refs = [record.ref for record in awaited.values() if record.ref is not None]
        reports = look([SubmittedJob(ref) for ref in refs])
        statuses: dict[str, JobStatus | None] = dict.fromkeys(app_ids)
        for (app_id, record), report in zip(awaited.items(), reports, strict=True):
            status = None if report is None else job_status(report)
            # There is more to do for a job that has ended.
            if status is not None and not is_terminal(status.state):
                statuses[app_id] = self._remember(record, status)
        return statuses

    def _awaited(self, app_id: str) -> JobRecord | None:
        """Return the record of a job that may go on; None where it has to be looked at singly."""
        try:
            record = self._find(app_id)
        except RecordError:
            return None
        return None if record is None or record.is_terminal or record.ref is None else record

    def _stop(self, ref: JobRef) -> None:
        self._cancel(SubmittedJob(ref), kill=False)

    def _kill(self, ref: JobRef) -> None:
        self._cancel(SubmittedJob(ref), kill=True)

    def _cancel(self, job: SubmittedJob, *, kill: bool) -> None:
        """Ask Slurm to end a job and wait until it says that all its processes are gone."""
        job.client.cancel(job.id, job.state_dir, kill=kill, array=bool(job.array))
        waiting = Waiting(0.1, 1.0, timeout_s=CANCEL_PATIENCE_S)
        while not waiting.is_over:
            try:
                if is_terminal(job_status(job.report()).state):
                    return
            except JobNotFoundError:
                return
            except BackendUnavailableError as err:
                log.warning("%s", err)
            waiting.pause()

    # Reading.

    def _bytes(self, ref: JobRef, query: LogQuery) -> Iterator[bytes]:
        job = SubmittedJob(ref)
        record = self._find(ref.native_id)
        if record is not None and record.is_terminal and not job.is_settled:
            # There was trouble when it was seen to end.
            job.settle(AppState[record.state])
        return job.logs(query.role, query.replica).read(query, job.has_ended)

    def tail(self, app_id: str, query: LogQuery, lines: int) -> Sequence[str]:
        """Return the last lines of a log; of a failed job, those of the task that failed first."""
        record = self._find(app_id)
        if record is not None and record.ref is not None and record.state == "FAILED":
            query = SubmittedJob(record.ref).failed_first(query)
        return super().tail(app_id, query, lines)

    def _legacy_record(self, app_id: str) -> JobRecord | None:
        return legacy.find_slurm_job(Path(get_nemorun_home()) / legacy.INDEX, app_id)


def create_scheduler(session_name: str, **kwargs: Any) -> SlurmTunnelScheduler:
    """Return a scheduler for all clusters that executors name."""
    return SlurmTunnelScheduler(session_name, experiment=kwargs.get("experiment"))


def _leave_copy(executor: SlurmExecutor, script: bytes) -> None:
    """Leave the script beside the experiment's other files, for people to look at."""
    directory = Path(executor.experiment_dir or executor.job_dir)
    directory.mkdir(parents=True, exist_ok=True)
    name = executor.job_name.replace("/", "_")
    write_whole(directory / f"{name}_sbatch.sh", script, sync=False)
