"""What the schedulers for SkyPilot's clusters and for its managed jobs share."""

from __future__ import annotations

import contextlib
import json
import logging
import textwrap
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from torchx.specs import AppState, is_terminal, runopts

from nemo_run._backends.skypilot import client, launches
from nemo_run._backends.skypilot.kept import KeptJob
from nemo_run._backends.skypilot.streams import LogLine
from nemo_run._backends.skypilot.task import (
    SkypilotTask,
    log_directory,
    shown,
    task_name,
)
from nemo_run._files import read_regular
from nemo_run._home import get_nemorun_home
from nemo_run._jobs.records import JobRecord, JobRef, RoleSize
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    JobLostError,
    JobNotFoundError,
    UnsupportedError,
)
from nemo_run.run.torchx_backend.schedulers.api import (
    JobStatus,
    LogQuery,
    SchedulerMixin,
)

log = logging.getLogger(__name__)

FOLLOW_POLL_S = 1.0

INDEX = ".skypilot_jobs.json"
"""The index file of 0.12, for both kinds of jobs, below the home directory. Only read."""


class NotListedNowError(JobNotFoundError):
    """The job is not listed now, and may be again: its cluster is being made, or is in trouble."""


class Planned(Protocol):
    """A request of either kind."""

    @property
    def task(self) -> object: ...
    @property
    def app_id(self) -> str: ...
    @property
    def executor(self) -> SkypilotTask: ...


TaskT = TypeVar("TaskT", bound=SkypilotTask)
PlannedT = TypeVar("PlannedT", bound=Planned)


class SkypilotSchedulerMixin(SchedulerMixin[TaskT, PlannedT]):
    """Launches each job by a request that goes on at the API server when the launcher ends.

    A job is found again by its name, which ends with its tag. A backend says how it asks for a
    job, its request and its logs.
    """

    STATES: ClassVar[Mapping[str, AppState]]

    def _job(self, app_id: str) -> client.SkyJob | None:
        """Return a job; None where SkyPilot does not know it, or not yet."""
        raise NotImplementedError

    def _launch_request(self, ref: JobRef) -> launches.SkyRequest | None:
        """Return the request that launches a job, if the API server knows one."""
        raise NotImplementedError

    def _missing(self, app_id: str) -> JobNotFoundError:
        """Return what is to be said of a job that was launched, and that SkyPilot does not know.

        A `JobLostError` where it never will again.
        """
        raise NotImplementedError

    def _stream(self, app_id: str, job: client.SkyJob, *, follow: bool) -> Iterator[LogLine]:
        raise NotImplementedError

    def _download(self, app_id: str, job: client.SkyJob, directory: Path) -> None:
        raise NotImplementedError

    def _forecast(self, request: PlannedT) -> str:
        """Return what SkyPilot would do now, without doing it."""
        return client.forecast(request.task)

    def _run_opts(self) -> runopts:
        options = runopts()
        options.add("job_dir", type_=str, help="where the files of the job are", default=None)
        return options

    def _describe_request(self, request: PlannedT) -> str:
        import yaml

        text = yaml.safe_dump(shown(request.task), sort_keys=False)
        try:
            forecast = self._forecast(request)
        except BackendUnavailableError as err:
            log.debug("%s: %s", request.app_id, err)
            return text
        except BackendError as err:
            forecast = err.detail or str(err)
        return text + textwrap.indent(f"\nSkyPilot says:\n{forecast}\n", "# ", lambda line: True)

    def _launch(self, request: PlannedT) -> JobRef:
        executor = request.executor
        return ref_of(executor.submit(request.task), request.app_id, executor.job_dir)

    def _planned_id(self, request: PlannedT) -> str:
        return request.app_id

    def _planned_ref(self, record: JobRecord) -> JobRef:
        """Return how to find a job whose launcher died before it had the request's id."""
        return ref_of("", record.app_id, record.job_dir)

    def _poll(self, ref: JobRef) -> JobStatus:
        kept = _kept(ref)
        if kept.job is not None:
            return self._status(kept.job, kept)
        request = self._launch_request(ref)
        if request is not None and request.is_live:
            return _waits(request)
        job = self._job(ref.where["app_id"])
        if job is None:
            # Asking for a job starts an API server of this machine that was not running.
            return self._not_launched(ref, request or self._launch_request(ref))
        if is_terminal(self._state(job)):
            self._keep(ref, job)
        return self._status(job, kept)

    def _not_launched(self, ref: JobRef, request: launches.SkyRequest | None) -> JobStatus:
        """Say why SkyPilot does not have a job."""
        # What ends with a number is of 0.12, which waited for its requests.
        last = ref.where["app_id"].rpartition("___")[2]
        if request is None and not ref.native_id and not last.isdecimal():
            return JobStatus(state=AppState.UNSUBMITTED)
        if request is not None:
            if request.is_live:
                return _waits(request)
            failed = _failed_launch(request)
            if failed is not None:
                return failed
        raise self._missing(ref.where["app_id"])

    def _lines(self, ref: JobRef, query: LogQuery) -> Iterator[str]:
        if query.since is not None or query.until is not None:
            raise UnsupportedError(
                "SkyPilot does not record when a line was written, so logs cannot be chosen by "
                "time. Leave out since and until."
            )
        seen = 0
        while not _kept(ref).is_whole:
            try:
                for line in islice(self._running_lines(ref, query), seen, None):
                    if query.follow and not line.endswith("\n"):
                        break  # its rest may come with the next stream, or is kept
                    seen += 1
                    yield line
                # A stream also ends when the API server is restarted.
                if not query.follow or is_terminal(self._poll(ref).state):
                    break
            except (BackendUnavailableError, NotListedNowError) as err:
                if not query.follow:
                    raise
                log.debug("%s: %s", ref.where["app_id"], err)
            except JobLostError:
                break
            time.sleep(FOLLOW_POLL_S)
        kept = _kept(ref)
        if seen:
            # What came after a stream broke, in lines as SkyPilot streams them.
            yield from islice(kept.streamed_lines(query.replica), seen, None)
        else:
            yield from kept.lines(query.replica)

    def _running_lines(self, ref: JobRef, query: LogQuery) -> Iterator[str]:
        app_id = ref.where["app_id"]
        job = self._job(app_id)
        if job is None:
            return
        with contextlib.suppress(JobNotFoundError):  # not any more, as above
            for line in self._stream(app_id, job, follow=query.follow):
                if line.rank == query.replica:
                    yield line.text

    def _keep(self, ref: JobRef, job: client.SkyJob) -> None:
        """Copy the logs of an ended job, and how it ended."""
        app_id = ref.where["app_id"]
        _kept(ref).keep(job, lambda directory: self._download(app_id, job, directory))

    def _state(self, job: client.SkyJob) -> AppState:
        state = self.STATES.get(job.status)
        if state is None:
            log.warning("%s: SkyPilot reported the unknown state %s", job.name, job.status)
            return AppState.UNKNOWN
        return state

    def _status(self, job: client.SkyJob, kept: KeptJob) -> JobStatus:
        state = self._state(job)
        if state is AppState.SUBMITTED:
            # It was pending while its request was; SkyPilot's words go back and forth.
            state = AppState.PENDING
        said = job.message or f"SkyPilot says {job.status}"
        return JobStatus(
            state=state,
            message=said if state is AppState.FAILED else "",
            exit_code=0 if state is AppState.SUCCEEDED else kept.exit_code,
            url=job.log_path,
            restarts=job.recoveries or kept.restarts,
            started_at=job.started_at,
            ended_at=job.ended_at,
        )

    def _legacy_task(self, app_id: str) -> str:
        """Return the task that an id of 0.12 names.

        Raises:
            ConfigError: it is no id of this backend's.
        """
        raise NotImplementedError

    def _legacy_record(self, app_id: str) -> JobRecord | None:
        """Return a job that 0.12 launched; its number is part of its id."""
        home = Path(get_nemorun_home())
        try:
            entry = json.loads(read_regular(home / INDEX))[app_id]
            word = str(entry["job_status"])
            task = self._legacy_task(app_id)
            written_at = (home / INDEX).stat().st_mtime
        except (OSError, ValueError, KeyError, TypeError, ConfigError):
            return None
        return JobRecord(
            app_id=app_id,
            scheduler=self._scheduler_name(),
            roles=(RoleSize(task, 1),),
            state=self.STATES.get(word, AppState.UNKNOWN).name,
            submitted_at=written_at,
            last_seen_at=written_at,
            job_dir=str(home / "skypilot" / task_name(app_id, max_length=150)),
            ui_url=str(entry.get("log_dir") or ""),
        )


def ref_of(request_id: str, app_id: str, job_dir: str) -> JobRef:
    return JobRef(native_id=request_id, where={"app_id": app_id, "job_dir": job_dir})


def _kept(ref: JobRef) -> KeptJob:
    return KeptJob(log_directory(ref.where["job_dir"], ref.where["app_id"]))


def _failed_launch(request: launches.SkyRequest) -> JobStatus | None:
    """Return how a launch that has ended made its job end; None where it went well."""
    interrupted = JobStatus(
        state=AppState.FAILED,
        message="the SkyPilot API server was stopped while it launched the job, and does not go on",
    )
    if request.interrupted:
        return interrupted
    try:
        launches.answer(request.id, operation="launch")
    except BackendUnavailableError as err:
        if launches.is_interrupted(err):
            return interrupted
        raise
    except BackendError as err:
        if request.status == "CANCELLED":
            return JobStatus(state=AppState.CANCELLED, message="cancelled before it was started")
        return JobStatus(state=AppState.FAILED, message=str(err))
    return None


def _waits(request: launches.SkyRequest) -> JobStatus:
    return JobStatus(state=AppState.PENDING, message=request.message or "waits for its cluster")
