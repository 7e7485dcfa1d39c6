"""The half that all schedulers share: planning, recording, asking, cancelling, reading logs.

torchx fixes what a scheduler looks like from outside. `SchedulerMixin` implements all of it; a
backend fills in five hooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchx.specs import AppDef

from nemo_run._jobs.log_lines import LogQuery, line_filter
from nemo_run._jobs.records import TAG, JobPart, JobRecord, JobRef
from nemo_run._jobs.status import JobStatus
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import UnknownNameError
from nemo_run.run.torchx_backend.schedulers._hooks import (
    ExecutorT,
    PlannedRun,
    RequestT,
    SchedulerHooks,
)
from nemo_run.run.torchx_backend.schedulers._readable import ReadableLogs
from nemo_run.run.torchx_backend.schedulers._submitted import SubmittedJobs

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
    "SchedulerHooks",
    "SchedulerMixin",
    "get_executor_str",
    "line_filter",
]

CWD = "nemo_run/cwd"
"""Key of ``Role.metadata``: the directory to start in, where that is one of this machine."""


def __getattr__(name: str) -> Any:
    if name in ("EXECUTOR_MAPPING", "REVERSE_EXECUTOR_MAPPING"):
        # Every backend at once, which a job of one of them does not need.
        from nemo_run.run.torchx_backend.schedulers import _mapping

        return getattr(_mapping, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_executor_str(executor: Executor) -> str:
    """Return the name of the scheduler that runs jobs of ``executor``.

    Raises:
        UnknownNameError: its class names none.
    """
    if executor.SCHEDULER:
        return executor.SCHEDULER
    # Where programs of 0.12 put theirs.
    from nemo_run.run.torchx_backend.schedulers._mapping import EXECUTOR_MAPPING

    if type(executor) not in EXECUTOR_MAPPING:
        raise UnknownNameError(
            f"{type(executor).__name__} does not say which scheduler runs it. "
            "Set SCHEDULER to the name of its entry point in the group torchx.schedulers."
        )
    return EXECUTOR_MAPPING[type(executor)]


class SchedulerMixin(SubmittedJobs[ExecutorT, RequestT], ReadableLogs[ExecutorT, RequestT]):
    """A torchx scheduler made of five hooks. Must come before the torchx class in the bases.

    The hooks are in `SchedulerHooks`; the rest is what torchx calls, the same for all backends.
    """

    def _validate(self, app: AppDef, scheduler: str, *args: Any) -> None:
        """Accept what torchx would refuse for lack of a resource: executors say what they need."""
