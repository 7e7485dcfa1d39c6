"""What became of jobs and of their tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchx.specs import AppState, is_terminal

from nemo_run._jobs.cause import Cause
from nemo_run._jobs.records import JobAttempt, JobPart, JobUsage
from nemo_run._jobs.wording import told
from nemo_run._order import combined


@dataclass
class MemberState:
    """What became of one task: of the only one of a job, or of one in a group.

    ``tag`` is chosen and written before the task is submitted, ``handle`` when it was.
    """

    tag: str = ""
    handle: str = ""
    state: AppState = AppState.UNSUBMITTED
    message: str = ""
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    parts: Sequence[JobPart] = ()
    attempts: Sequence[JobAttempt] = ()
    lost: bool = False
    """Submitted, and its backend will never say how it ended: there is nothing to wait for."""

    usage: JobUsage | None = None
    cause: Cause | None = None
    """Why it ended without success; None where that has not been worked out, or it did not."""

    @property
    def ended(self) -> bool:
        return self.lost or is_terminal(self.state)

    @property
    def reason(self) -> str:
        """What is said of it, and why it failed."""
        return told(self.message, self.cause.summary if self.cause else "")


@dataclass
class JobState:
    """What became of a job."""

    members: list[MemberState] = field(default_factory=lambda: [MemberState()])

    @property
    def state(self) -> AppState:
        return combined([member.state for member in self.members])

    @property
    def ended(self) -> bool:
        return all(member.ended for member in self.members)

    @property
    def launched(self) -> bool:
        return any(member.handle for member in self.members) or self.ended

    @property
    def message(self) -> str:
        """What is said of the members; of a group that failed, by whom."""
        return self._of_members([member.message for member in self.members])

    @property
    def reason(self) -> str:
        """The same, and why those failed that did."""
        failed = self.first_failed
        others = [m.message if m is not failed else m.reason for m in self.members]
        return self._of_members(others)

    def _of_members(self, words: Sequence[str]) -> str:
        said = [word for word in words if word]
        failed = [i for i, m in enumerate(self.members) if m.state is AppState.FAILED]
        if len(self.members) > 1 and failed:
            codes = [f"task {i} ended with {self.members[i].exit_code}" for i in failed]
            said = [*codes, *(m for m in said if m != "cancelled")]
        return "; ".join(dict.fromkeys(said))

    @property
    def first_failed(self) -> MemberState | None:
        """The task that failed before the others did; else one that ended without success."""
        bad = [m for m in self.members if m.ended and m.state is not AppState.SUCCEEDED]
        return min(
            bad,
            key=lambda m: (m.state is not AppState.FAILED, m.ended_at or float("inf")),
            default=None,
        )

    @property
    def cause(self) -> Cause | None:
        """Why the task failed that failed first."""
        return None if self.first_failed is None else self.first_failed.cause

    @property
    def parts(self) -> list[JobPart]:
        return [part for member in self.members for part in member.parts]

    @property
    def attempts(self) -> list[JobAttempt]:
        return [attempt for member in self.members for attempt in member.attempts]

    @property
    def usage(self) -> JobUsage:
        """The processor time of all members, and the most memory that one process had."""
        known = [member.usage for member in self.members if member.usage]
        times = [usage.cpu_s for usage in known if usage.cpu_s is not None]
        peaks = [u.peak_memory_bytes for u in known if u.peak_memory_bytes is not None]
        return JobUsage(sum(times) if times else None, max(peaks, default=None))

    @property
    def exit_code(self) -> int | None:
        """Of the first member that failed, else of any that is known."""
        known = [m for m in self.members if m.exit_code is not None]
        known.sort(key=lambda member: member.state is not AppState.FAILED)
        return known[0].exit_code if known else None

    @property
    def duration_s(self) -> float | None:
        """How long the job ran, or has been running; None if it has not started."""
        starts = [m.started_at for m in self.members if m.started_at is not None]
        if not starts:
            return None
        ends = [m.ended_at for m in self.members if m.ended_at is not None]
        end = max(ends) if self.ended and ends else time.time()
        return max(0.0, end - min(starts))
