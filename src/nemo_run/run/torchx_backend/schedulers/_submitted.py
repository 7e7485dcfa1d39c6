"""Submit jobs once, find those that a killed launcher submitted, and end them."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from torchx.specs import AppDef, AppDryRunInfo, AppState, Role, is_terminal

from nemo_run import _shell
from nemo_run._files import is_passing
from nemo_run._jobs.records import TAG, JobRecord, JobRef, RoleSize, new_tag
from nemo_run._jobs.status import JobStatus
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    JobNotFoundError,
    SubmitError,
    UnsupportedError,
)
from nemo_run.run.torchx_backend.schedulers._hooks import ExecutorT, PlannedRun, RequestT
from nemo_run.run.torchx_backend.schedulers._recorded import RecordedJobs

log = logging.getLogger(__name__)


class SubmittedJobs(RecordedJobs[ExecutorT, RequestT]):
    """Plans, submits and ends jobs, each step recorded before the next."""

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
        if not cfg.CAPABILITIES.local_paths:
            for role in app.roles:
                # Shells start jobs there, and drop or refuse other names.
                _shell.check_names(role.env)
        planned = copy.copy(app)
        planned.metadata = {TAG: new_tag(), **app.metadata}
        planned.roles = [_with_macros(role, cfg) for role in app.roles]
        request = self._plan(planned, cast("ExecutorT", cfg))
        return PlannedRun(request, self._describe_request, planned, cfg)

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
            # Before the launch: a launcher that is killed meanwhile leaves what finds the job.
            self._put(record)
        try:
            ref = self._launch(request)
        except SubmitError as err:
            # After an outage the conductor may try again, and finds it as not submitted.
            later = isinstance(err.__cause__, BackendUnavailableError) or is_passing(err)
            if planned_id and not later:
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

    def submitted(self, planned: PlannedRun[RequestT]) -> str | None:
        """Return the app id of ``planned`` if it was submitted before, by a launcher that died.

        Raises:
            BackendUnavailableError: the backend cannot be asked.
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
        """End what was submitted for ``planned`` by a launcher that was stopped meanwhile.

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

    def cancel(self, app_id: str) -> None:
        """End a job, and return when the backend says that it has ended.

        A job that is unknown or has ended is left alone.

        Raises:
            BackendError: the backend could not be asked, or the job goes on.
        """
        if self._find(app_id) is not None:
            self._cancel_existing(app_id)

    def announce_cancel(self, app_id: str) -> None:
        """Tell a job that it will be cancelled, so that it does not start meanwhile."""
        record = self._find(app_id)
        ref = None if record is None or record.is_terminal else self._ref(record)
        if ref is not None:
            self._announce_stop(ref)

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
        # After the request, which a backend may have accepted without ending the job.
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
