"""What a backend fills in: five hooks, and some with an answer that fits most backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Generic, TypeVar

from torchx.specs import AppDef, AppDryRunInfo

from nemo_run._jobs.log_lines import LogQuery
from nemo_run._jobs.records import JobRecord, JobRef
from nemo_run._jobs.status import JobStatus
from nemo_run.core.execution.base import Executor

ExecutorT = TypeVar("ExecutorT", bound=Executor)
RequestT = TypeVar("RequestT")


class PlannedRun(AppDryRunInfo[RequestT]):
    """A request together with what it was made from."""

    def __init__(
        self, request: RequestT, fmt: Callable[[RequestT], str], app: AppDef, executor: Executor
    ) -> None:
        super().__init__(request, fmt)
        self.planned = app
        self.executor = executor


class SchedulerHooks(Generic[ExecutorT, RequestT]):
    """The side of a scheduler that its backend writes."""

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
            BackendUnavailableError: it does not answer; what is known of the job stays.
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

        A backend that reads bytes fills in `_bytes` instead, and has them decoded here.
        """
        if type(self)._bytes is SchedulerHooks._bytes:
            raise NotImplementedError
        return (block.decode("utf-8", "replace") for block in self._bytes(ref, query))

    # Hooks with an answer that fits most backends.

    def _bytes(self, ref: JobRef, query: LogQuery) -> Iterator[bytes]:
        """Yield what `_lines` yields, encoded."""
        return (text.encode("utf-8", "replace") for text in self._lines(ref, query))

    def _kill(self, ref: JobRef) -> None:
        """End the job at once, without giving it time to clean up."""
        self._stop(ref)

    def _announce_stop(self, ref: JobRef) -> None:
        """Keep a job that waits here from starting; `_stop` comes next. Most wait elsewhere."""

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

    def _describe_request(self, request: RequestT) -> str:
        """Return a request as text for people, without secrets."""
        return str(request)
