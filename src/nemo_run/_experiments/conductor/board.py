"""What is known of the jobs of an experiment, and writing it down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from torchx.specs import AppState

from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.states import JobState, MemberState
from nemo_run.exceptions import RecordError, RecordUnavailableError
from nemo_run.run.job import Job, JobGroup

log = logging.getLogger(__name__)


class Board:
    """The states of all jobs, in memory and in the experiment's directory.

    ``on_change`` is told the index of each change. Only the process that holds the directory's
    lock may set ``writes``: two writers would undo each other's steps.
    """

    def __init__(self, jobs: Sequence[Job | JobGroup], directory: ExperimentDirectory) -> None:
        self.jobs = jobs
        self.directory = directory
        self.on_change: Callable[[int], None] = lambda index: None
        self.writes = False
        self._unwritten: set[int] = set()
        self.states = [
            directory.read_state(index) or _from_job(job) for index, job in enumerate(jobs)
        ]
        for index in range(len(jobs)):
            self._tell_job(index)

    @property
    def ended(self) -> bool:
        """Whether all jobs have ended, and that is written down."""
        return all(state.ended for state in self.states) and not self._unwritten

    @property
    def launched(self) -> bool:
        """Whether nothing is left to be started."""
        return all(
            member.handle or member.ended for state in self.states for member in state.members
        )

    def refresh(self) -> None:
        """Take over what other processes have written down since."""
        for index, state in enumerate(self.states):
            if state.ended or index in self._unwritten:
                continue
            try:
                found = self.directory.read_state(index)
                if found is not None and not _is_older(found, state):
                    self.states[index] = found
            except (OSError, RecordError) as err:
                log.warning("%s: %s", self.jobs[index].id, err)  # what was known stays
            self._tell_job(index)

    def record(self, index: int) -> None:
        """Write down the state of a job before the next step is taken.

        Raises:
            RecordUnavailableError: it could not be written, so that step must wait.
        """
        if self.writes:
            # A job on this machine ends with its power; others go on and must be found again.
            remote = not self.jobs[index].executor.CAPABILITIES.local_paths
            self.directory.write_state(index, self.states[index], sync=remote)
            self._unwritten.discard(index)
        self.tell(index)

    def write_down(self, index: int) -> None:
        """Make a change known; where the disk does not take it, `catch_up` tries again."""
        try:
            self.record(index)
        except RecordUnavailableError as err:
            # The job goes on; its tag, written before it was submitted, finds it after a crash.
            self._unwritten.add(index)
            self.say(str(err))
            self.tell(index)

    def catch_up(self) -> None:
        """Write down what could not be written before."""
        for index in sorted(self._unwritten):
            self.write_down(index)

    def say(self, trouble: str) -> None:
        """Say what keeps this process from going on, in its log and in the status."""
        if self.writes and self.directory.say(trouble):
            log.warning("%s; trying again", trouble)

    def tell(self, index: int) -> None:
        """Pass on a change that need not be written down: the backend tells it to any process."""
        self._tell_job(index)
        self.on_change(index)

    def _tell_job(self, index: int) -> None:
        members = self.states[index].members
        self.jobs[index].take(
            [member.handle for member in members], [member.state for member in members]
        )


def _is_older(found: JobState, known: JobState) -> bool:
    """Tell whether a stored state only says that a job was submitted, whose backend we asked since.

    Passing states are not written down, so that taking it over would be a step back.
    """
    handles = [member.handle for member in found.members]
    return (
        not found.ended and any(handles) and handles == [member.handle for member in known.members]
    )


def _from_job(job: Job | JobGroup) -> JobState:
    """Return what the job itself knows: nothing yet, or what 0.12 stored in it."""
    if not job.launched:
        return JobState([MemberState() for _ in job.executors_in_order])
    handles = job.handles if isinstance(job, JobGroup) else [job.handle]
    states = job.states if isinstance(job, JobGroup) else [job.known_state]
    return JobState(
        [
            MemberState(handle=handle, state=AppState(state))
            for handle, state in zip(handles, states, strict=False)
        ]
    )
