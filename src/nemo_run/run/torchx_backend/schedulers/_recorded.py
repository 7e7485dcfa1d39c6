"""Records of jobs, and what backends say of them now."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse
from torchx.specs import AppState, Role

from nemo_run._jobs.records import JobRecord, JobRef, advance
from nemo_run._jobs.status import JobStatus, recorded, role_statuses
from nemo_run._jobs.store import JobStore
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    JobLostError,
    JobNotFoundError,
    RecordUnavailableError,
)
from nemo_run.run.torchx_backend.schedulers._hooks import ExecutorT, RequestT, SchedulerHooks

log = logging.getLogger(__name__)


class RecordedJobs(SchedulerHooks[ExecutorT, RequestT]):
    """Answers from a job's record, asking the backend where the job has not ended."""

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

    def status_of(self, app_id: str) -> JobStatus | None:
        """Return the status of a job with its exit code and times; None for an unknown job."""
        record = self._find(app_id)
        return None if record is None else self._present(record)

    def statuses_of(self, app_ids: Sequence[str]) -> Mapping[str, JobStatus | None]:
        """Return the statuses of several jobs; None for those that `status_of` is to be asked for.

        These are all, unless the backend answers for many at once.
        """
        return dict.fromkeys(app_ids)

    def list(self) -> list[ListAppResponse]:
        """Return the jobs that were submitted from this home directory, the latest first."""
        return [
            ListAppResponse(app_id=record.app_id, state=self._present(record).state)
            for record in self._store.list(self._scheduler_name())
        ]

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
        except JobNotFoundError as err:
            return replace(
                recorded(record),
                state=AppState.UNKNOWN,
                message=f"last known as {record.state}; {record.scheduler} says: {err}",
                lost=isinstance(err, JobLostError),
            )
        except BackendUnavailableError as err:
            return replace(recorded(record), message=f"{record.scheduler} cannot be reached: {err}")
        except (BackendError, ConfigError) as err:
            # Refused, or not even asked for want of a credential: no news of the job either.
            return replace(recorded(record), message=f"{record.scheduler} cannot be asked: {err}")
        return self._remember(record, status)

    def _remember(self, record: JobRecord, status: JobStatus) -> JobStatus:
        seen = self._seen(record, status)
        if seen == record or not (self.OUTLIVES_MACHINE or seen.is_terminal):
            return replace(status, restarts=seen.restarts)
        seen = replace(seen, last_seen_at=time.time())
        try:
            if seen.is_terminal or record.state == AppState.UNSUBMITTED.name:
                return recorded(self._put(seen))
            self._store.note(seen)
        except RecordUnavailableError as err:
            # Looking needs no writing: the state is known now, and the backend can be asked again.
            log.debug("%s", err)
        return recorded(advance(record, seen))

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
            attempts=status.attempts,
            usage=status.usage,
        )
