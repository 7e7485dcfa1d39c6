"""The half that all schedulers share: planning, recording, asking, cancelling, reading logs.

torchx fixes what a scheduler looks like from outside. `SchedulerMixin` implements all of it; a
backend fills in five hooks.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Stream
from torchx.specs import (
    AppDef,
    AppDryRunInfo,
    AppState,
    Role,
    is_terminal,
)

from nemo_run._records import JobPart, JobRecord, JobRef, JobStore, RoleSize, new_tag
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    JobLostError,
    JobNotFoundError,
    RecordError,
    SubmitError,
    UnsupportedError,
)
from nemo_run.run.torchx_backend.schedulers._log_lines import LogQuery, line_filter, split_lines
from nemo_run.run.torchx_backend.schedulers._statuses import JobStatus, recorded, role_statuses

if TYPE_CHECKING:
    from nemo_run.run.torchx_backend.schedulers._mapping import (
        EXECUTOR_MAPPING,
        REVERSE_EXECUTOR_MAPPING,
    )

__all__ = [
    "CWD",
    "EXECUTOR_MAPPING",
    "REVERSE_EXECUTOR_MAPPING",
    "TAG",
    "JobPart",
    "JobRecord",
    "JobRef",
    "JobStatus",
    "LogQuery",
    "PlannedRun",
    "SchedulerMixin",
    "get_executor_str",
    "line_filter",
]

log = logging.getLogger(__name__)

ExecutorT = TypeVar("ExecutorT", bound=Executor)
RequestT = TypeVar("RequestT")

CWD = "nemo_run/cwd"
"""Key of ``Role.metadata``: the directory to start in, where that is one of this machine."""

TAG = "nemo_run/tag"
"""Key of ``AppDef.metadata``: what makes this submission unlike any other, chosen before it."""


def __getattr__(name: str) -> Any:
    if name in ("EXECUTOR_MAPPING", "REVERSE_EXECUTOR_MAPPING"):
        # Every backend at once, which a job of one of them does not need.
        from nemo_run.run.torchx_backend.schedulers import _mapping

        return getattr(_mapping, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_executor_str(executor: Executor) -> str:
    """Return the name of the scheduler that runs jobs of ``executor``.

    Raises:
        ConfigError: its class names none.
    """
    if not executor.SCHEDULER:
        raise ConfigError(
            f"{type(executor).__name__} does not say which scheduler runs it. "
            "Set SCHEDULER to the name of its entry point in the group torchx.schedulers."
        )
    return executor.SCHEDULER


class PlannedRun(AppDryRunInfo[RequestT]):
    """A request together with what it was made from."""

    def __init__(
        self, request: RequestT, fmt: Callable[[RequestT], str], app: AppDef, executor: Executor
    ) -> None:
        super().__init__(request, fmt)
        self.planned = app
        self.executor = executor


class SchedulerMixin(Generic[ExecutorT, RequestT]):
    """A torchx scheduler made of five hooks. Must come before the torchx class in the bases."""

    EXECUTOR: ClassVar[type[Executor]]
    MAX_ROLES: ClassVar[int | None] = 1
    """How many roles one submission may have; None for any number."""
    OUTLIVES_MACHINE: ClassVar[bool] = True
    """Whether jobs go on when this machine loses power, so that their records must survive it."""

    backend: str
    session_name: str

    # The five hooks.

    def _plan(self, app: AppDef, executor: ExecutorT) -> RequestT:
        """Build the request. No network, no files outside the job directory.

        ``app.metadata[TAG]`` is unique to this submission; put it on the job.
        """
        raise NotImplementedError

    def _launch(self, request: RequestT) -> JobRef:
        """Submit once. Raise SubmitError with what the backend said."""
        raise NotImplementedError

    def _poll(self, ref: JobRef) -> JobStatus:
        """Ask for the present state.

        Raises:
            BackendUnavailableError: nobody answers; what is known of the job stays.
            JobNotFoundError: the backend does not know the job now.
            JobLostError: and never will.
        """
        raise NotImplementedError

    def _stop(self, ref: JobRef) -> None:
        """Ask the job to end. Ending a job that has ended is not an error."""
        raise NotImplementedError

    def _lines(self, ref: JobRef, query: LogQuery) -> Iterator[str]:
        """Yield log text.

        1. Each item is one or more whole lines, in order, each with its newline; only the very
           last may lack one.
        2. Without ``follow`` the iterator ends at the last line there is now.
        3. With ``follow`` it ends once the job has ended and all its lines were read.
        """
        raise NotImplementedError

    # Hooks with an answer that fits most backends.

    def _bytes(self, ref: JobRef, query: LogQuery) -> Iterator[bytes]:
        """Yield what `_lines` yields, encoded."""
        return (text.encode("utf-8", "replace") for text in self._lines(ref, query))

    def _kill(self, ref: JobRef) -> None:
        """End the job at once, without giving it time to clean up."""
        self._stop(ref)

    def launching_several(self) -> AbstractContextManager[None]:
        """Return what to enter while many jobs are scheduled, where that makes each cheaper."""
        return nullcontext()

    def _planned_id(self, request: RequestT) -> str | None:
        """Return the app id, where it is known before the job is submitted."""
        return None

    def _planned_ref(self, record: JobRecord) -> JobRef | None:
        """Return how to find a job that was recorded, when its launcher died before the answer."""
        return None

    def _recover(self, request: RequestT) -> JobRef | None:
        """Return the job that carries this request's tag, where only the backend gives ids.

        Asked when a launcher died between submitting a job and writing down its id.
        """
        return None

    def _log_dir(self, request: RequestT) -> str:
        """Return the directory on this machine that logs are kept in, if there is one."""
        return ""

    def _host(self, record: JobRecord) -> str:
        """Return what to name as the host of all replicas of a job."""
        return ""

    def unused(self) -> dict[str, str]:
        """Return what was made for jobs and nothing uses any more, with how to remove it."""
        return {}

    def _legacy_record(self, app_id: str) -> JobRecord | None:
        """Return a job that only the index file of an earlier release knows."""
        return None

    # What torchx calls.

    def submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[RequestT]:
        """Return the request that would be submitted. Nothing leaves this machine.

        Raises:
            ConfigError: the executor is of another kind, or cannot do what the app asks for.
        """
        info: AppDryRunInfo[RequestT] = self._submit_dryrun(app, cfg)
        for role in app.roles:
            info = role.pre_proc(self.backend, info)
        # What was planned, not what was asked for: a backend may add replicas.
        info._app = info.planned if isinstance(info, PlannedRun) else app
        return info

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[RequestT]:
        if not isinstance(cfg, self.EXECUTOR):
            raise ConfigError(
                f"{type(self).__name__} runs jobs of {self.EXECUTOR.__name__}, "
                f"not of {type(cfg).__name__}."
            )
        if self.MAX_ROLES is not None and len(app.roles) > self.MAX_ROLES:
            raise UnsupportedError(
                f"{type(cfg).__name__} runs one task in a job, not {len(app.roles)}. "
                "Add the tasks one by one."
            )
        if cfg.retries and not cfg.CAPABILITIES.retries:
            raise UnsupportedError(
                f"{type(cfg).__name__} does not start failed jobs again, but retries={cfg.retries} "
                "was asked for. Set it to 0."
            )
        _check_texts(app)
        planned = copy.copy(app)
        planned.metadata = {TAG: new_tag(), **app.metadata}
        planned.roles = [_with_macros(role, cfg) for role in app.roles]
        request = self._plan(planned, cast("ExecutorT", cfg))
        return PlannedRun(request, self._describe_request, planned, cfg)

    def _describe_request(self, request: RequestT) -> str:
        """Return a request as text for people, without secrets."""
        return str(request)

    def schedule(self, dryrun_info: AppDryRunInfo[RequestT]) -> str:
        """Submit the job and return its app id.

        It is recorded before anything is asked of the backend, where its id is known by then,
        and otherwise as soon as the id is known.

        Raises:
            SubmitError: the backend did not accept it.
        """
        if not isinstance(dryrun_info, PlannedRun):
            raise ConfigError("Only what submit_dryrun() returned can be scheduled.")
        request = dryrun_info.request
        planned_id = self._planned_id(request)
        record = self._new_record(dryrun_info, planned_id or dryrun_info.planned.metadata[TAG])
        if planned_id:
            self._put(record)
        try:
            ref = self._launch(request)
        except SubmitError as err:
            if planned_id:
                failed = replace(
                    record, state="FAILED", message=str(err), ended_at=record.submitted_at
                )
                self._put(failed)
            raise
        app_id = planned_id or ref.native_id
        if self.OUTLIVES_MACHINE or self._planned_ref(record) != ref:
            self._put(replace(record, app_id=app_id, ref=ref, state="SUBMITTED"))
        log.debug("%s: submitted to %s as %s", app_id, record.scheduler, ref.native_id)
        return app_id

    def _new_record(self, planned: PlannedRun[RequestT], app_id: str) -> JobRecord:
        now = time.time()
        return JobRecord(
            app_id=app_id,
            scheduler=self._scheduler_name(),
            experiment_id=planned.executor.experiment_id or "",
            roles=tuple(RoleSize(role.name, role.num_replicas) for role in planned.planned.roles),
            tag=planned.planned.metadata[TAG],
            submitted_at=now,
            last_seen_at=now,
            job_dir=planned.executor.job_dir,
            log_dir=self._log_dir(planned.request),
        )

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return what is known of a job; None where nothing is.

        While the backend cannot be reached, the last known state comes back with a message that
        says so.
        """
        record = self._find(app_id)
        if record is None:
            return None
        status = self._present(record)
        return DescribeAppResponse(
            app_id=app_id,
            state=status.state,
            msg=status.message,
            ui_url=status.url or None,
            num_restarts=status.restarts,
            roles=[
                Role(name=role.name, image="", num_replicas=role.replicas) for role in record.roles
            ],
            roles_statuses=role_statuses(record, status, self._host(record)),
        )

    def submitted(self, planned: PlannedRun[RequestT]) -> str | None:
        """Return the app id of ``planned`` if it was submitted before, by whoever died then.

        Raises:
            BackendUnavailableError: nobody can say.
        """
        app_id = self._planned_id(planned.request)
        if app_id is not None:
            record = self._find(app_id)
            return app_id if record is not None and self._was_submitted(record) else None
        ref = self._recover(planned.request)
        if ref is None:
            return None
        if self._find(ref.native_id) is None:
            record = self._new_record(planned, ref.native_id)
            self._put(replace(record, ref=ref, state="SUBMITTED"))
        return ref.native_id

    def _was_submitted(self, record: JobRecord) -> bool:
        ref = self._ref(record)
        if ref is None or record.state != AppState.UNSUBMITTED.name:
            return record.state != AppState.UNSUBMITTED.name
        try:
            return self._remember(record, self._poll(ref)).state is not AppState.UNSUBMITTED
        except JobNotFoundError:
            return True  # the backend had it

    def withdraw(self, planned: PlannedRun[RequestT], *, at_once: bool = False) -> str | None:
        """End what was submitted for ``planned`` by somebody who was stopped meanwhile.

        Returns its app id, or None where nothing was submitted. What is still on its way is not
        started when it arrives.

        Raises:
            BackendError: the backend could not be asked, or the job goes on.
        """
        app_id = self._planned_id(planned.request) or self.submitted(planned)
        if app_id is None or self._find(app_id) is None:
            return None
        (self.kill if at_once else self.cancel)(app_id)
        return app_id

    def status_of(self, app_id: str) -> JobStatus | None:
        """Return the status of a job with its exit code and times; None for an unknown job."""
        record = self._find(app_id)
        return None if record is None else self._present(record)

    def statuses_of(self, app_ids: Sequence[str]) -> Mapping[str, JobStatus | None]:
        """Return the statuses of several jobs; None for those that `status_of` is to be asked for.

        These are all, unless the backend answers for many at once.
        """
        return dict.fromkeys(app_ids)

    def cancel(self, app_id: str) -> None:
        """End a job, and return when the backend says that it has ended.

        A job that is unknown or has ended is left alone.

        Raises:
            BackendError: the backend could not be asked, or the job goes on.
        """
        if self._find(app_id) is not None:
            self._cancel_existing(app_id)

    def kill(self, app_id: str) -> None:
        """End a job like `cancel`, but at once."""
        if self._find(app_id) is not None:
            self._end(app_id, self._kill)

    def _cancel_existing(self, app_id: str) -> None:
        self._end(app_id, self._stop)

    def _end(self, app_id: str, end: Callable[[JobRef], None]) -> None:
        record = self._get(app_id)
        if record.is_terminal:
            return
        ref = self._ref(record)
        if ref is None:
            self._remember(record, JobStatus(state=AppState.CANCELLED, message="never submitted"))
            return
        end(ref)
        status = self._present(record)
        if status.state is AppState.UNSUBMITTED:
            never = JobStatus(state=AppState.CANCELLED, message="cancelled before it was started")
            self._remember(record, never)
        elif not status.lost and not is_terminal(status.state):
            raise BackendError(
                f"Asked {record.scheduler} to end {app_id}, but it is still {status.state.name}. "
                "Ask for its status again, or cancel it once more.",
                backend=record.scheduler,
                operation="cancel",
                detail=status.message,
            )

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Return the log lines of one replica, each with its newline.

        Raises:
            JobNotFoundError: the job, or that role or replica of it, is unknown.
            ConfigError: ``regex`` is not a regular expression.
        """
        matches = line_filter(regex)
        text = self.log_text(
            app_id,
            LogQuery(
                role=role_name,
                replica=k,
                stream=streams or Stream.COMBINED,
                follow=should_tail,
                since=since,
                until=until,
            ),
        )
        lines = (line for block in text for line in split_lines(block))
        return filter(matches, lines) if matches else lines

    def log_text(self, app_id: str, query: LogQuery) -> Iterator[str]:
        """Return log text in blocks of whole lines; see `log_iter`, which is slower."""
        ref = self._log_ref(app_id, query)
        return iter(()) if ref is None else self._lines(ref, query)

    def log_bytes(self, app_id: str, query: LogQuery) -> Iterator[bytes]:
        """Return the same as UTF-8, for copying; where logs are files they are not decoded."""
        ref = self._log_ref(app_id, query)
        return iter(()) if ref is None else self._bytes(ref, query)

    def _log_ref(self, app_id: str, query: LogQuery) -> JobRef | None:
        record = self._get(app_id)
        role = next((role for role in record.roles if role.name == query.role), None)
        if role is None or not 0 <= query.replica < role.replicas:
            known = ", ".join(f"{role.name} (0 to {role.replicas - 1})" for role in record.roles)
            raise JobNotFoundError(
                f"Job {app_id} has no replica {query.replica} of role {query.role!r}. "
                f"It has: {known}.",
                backend=record.scheduler,
                operation="logs",
            )
        return self._ref(record)

    def tail(self, app_id: str, query: LogQuery, lines: int) -> Sequence[str]:
        """Return the last lines of a log as it is now."""
        kept: deque[str] = deque(maxlen=lines)
        for block in self.log_text(app_id, replace(query, follow=False, last_only=True)):
            kept.extend(split_lines(block)[-lines:])
        return kept

    def list(self) -> list[ListAppResponse]:
        """Return the jobs that were submitted from this home directory, the latest first."""
        return [
            ListAppResponse(app_id=record.app_id, state=self._present(record).state)
            for record in self._store.list(self._scheduler_name())
        ]

    def _validate(self, app: AppDef, scheduler: str, *args: Any) -> None:
        """Accept what torchx would refuse for lack of a resource: executors say what they need."""

    # Records.

    @property
    def _store(self) -> JobStore:
        return JobStore()

    def _put(self, record: JobRecord) -> JobRecord:
        return self._store.put(record, sync=self.OUTLIVES_MACHINE)

    def _scheduler_name(self) -> str:
        return self.EXECUTOR.SCHEDULER

    def _find(self, app_id: str) -> JobRecord | None:
        return self._store.find(app_id, self._scheduler_name()) or self._legacy_record(app_id)

    def _get(self, app_id: str) -> JobRecord:
        record = self._find(app_id)
        return self._store.get(app_id, self._scheduler_name()) if record is None else record

    def _ref(self, record: JobRecord) -> JobRef | None:
        return record.ref or self._planned_ref(record)

    def _present(self, record: JobRecord) -> JobStatus:
        """Return the status of a recorded job, asking the backend unless it has ended."""
        ref = self._ref(record)
        if record.is_terminal or ref is None:
            return recorded(record)
        try:
            status = self._poll(ref)
        except BackendUnavailableError as err:
            return replace(recorded(record), message=f"{record.scheduler} cannot be reached: {err}")
        except JobNotFoundError as err:
            return replace(
                recorded(record),
                state=AppState.UNKNOWN,
                message=f"last known as {record.state}; {record.scheduler} says: {err}",
                lost=isinstance(err, JobLostError),
            )
        return self._remember(record, status)

    def _remember(self, record: JobRecord, status: JobStatus) -> JobStatus:
        seen = self._seen(record, status)
        if seen == record or not (self.OUTLIVES_MACHINE or seen.is_terminal):
            return replace(status, restarts=seen.restarts)
        seen = replace(seen, last_seen_at=time.time())
        if seen.is_terminal or record.state == AppState.UNSUBMITTED.name:
            return recorded(self._put(seen))
        try:
            self._store.note(seen)
        except RecordError as err:
            # The job goes on all the same, and its state is known now.
            log.warning("%s", err)
        return recorded(seen)

    def _seen(self, record: JobRecord, status: JobStatus) -> JobRecord:
        """Return the record of a job with what its backend says now."""
        return replace(
            record,
            ref=self._ref(record),
            state=status.state.name,
            message=status.message,
            exit_code=status.exit_code,
            ui_url=status.url,
            # Of a job that is over a backend may know less than while it ran.
            restarts=max(record.restarts, status.restarts),
            started_at=status.started_at,
            ended_at=status.ended_at,
            parts=status.parts,
        )


def _with_macros(role: Role, executor: Executor) -> Role:
    macros = executor.macro_values()
    return macros.apply(role) if macros is not None else copy.deepcopy(role)


def _check_texts(app: AppDef) -> None:
    """Find what no process can be given, before anything is submitted."""
    for role in app.roles:
        for position, arg in enumerate(role.args):
            if not isinstance(arg, str):
                raise ConfigError(
                    f"Argument {position} of {role.name!r} is {arg!r}, which is not text. "
                    f"Write it as {str(arg)!r}."
                )
        for name, value in role.env.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise ConfigError(
                    f"Environment variable {name!r} of {role.name!r} is {value!r}, which is not "
                    f"text. Write it as {str(value)!r}."
                )
