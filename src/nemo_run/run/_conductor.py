"""Launch jobs in order and see them through to their end.

The same loop runs in the launching process or in one of its own, see `_detached`. It can be killed
at any line: what it does next depends only on the experiment's directory and on what the backends
say, so another one goes on where it was. Each step is written down before the next.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from torchx.specs import AppDef, AppState, is_terminal, make_app_handle

from nemo_run._parallel import in_parallel
from nemo_run._records import new_tag
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
    NemoRunError,
    RecordError,
    SubmitError,
)
from nemo_run.run import _order
from nemo_run.run._directory import ExperimentDirectory, JobState, MemberState
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import SESSION, Runner
from nemo_run.run.torchx_backend.schedulers.api import CWD, TAG, JobStatus, get_executor_str

log = logging.getLogger(__name__)

NOT_LAUNCHED = "could not be launched"
NOT_STARTED = "cancelled before it was started"
IDLE_SHARE = 4
"""How many times longer than looking at the jobs the pause until the next look is, at least."""
PUNCTUAL = 0.9
"""Which part of the pause between two looks at a job has to be over: paces grow meanwhile."""
PATIENCE_S = 1.0
"""How long to wait for others to have looked before they count as conducting."""


class Conductor:
    """Sees the jobs of one experiment through, or only looks at them.

    ``on_change`` is told the index of each change. Only who holds the directory's lock may set
    ``writes``: two writers would undo each other's steps.
    """

    def __init__(
        self,
        jobs: Sequence[Job | JobGroup],
        directory: ExperimentDirectory,
        runner: Runner,
        *,
        workers: int = 16,
        on_change: Callable[[int], None] = lambda index: None,
    ) -> None:
        self._jobs = jobs
        self._directory = directory
        self._runner = runner
        self._workers = workers
        self.on_change = on_change
        self.writes = False
        self._positions = {job.id: index for index, job in enumerate(jobs)}
        # Executors whose backend holds a job back until those it depends on have ended.
        self._held_back: dict[int, list[Executor]] = {}
        # Held while a job is being launched: whoever cancels it then has to wait.
        self._locks = [threading.Lock() for _ in jobs]
        self._launched_at = time.monotonic()
        self._polled_at = [-math.inf] * len(jobs)
        self._poll_took_s = 0.0
        self.launch_errors: list[NemoRunError] = []
        self.states = [
            directory.read_state(index) or self._from_job(job) for index, job in enumerate(jobs)
        ]
        for index in range(len(jobs)):
            self._tell_job(index)

    @staticmethod
    def _from_job(job: Job | JobGroup) -> JobState:
        """Return what the job itself knows: nothing yet, or what 0.12 stored in it."""
        if not job.launched:
            return JobState([MemberState() for _ in job.executors_in_order])
        handles = job.handles if isinstance(job, JobGroup) else [job.handle]
        states = job.states if isinstance(job, JobGroup) else [job.state]
        return JobState(
            [
                MemberState(handle=handle, state=state)
                for handle, state in zip(handles, states, strict=False)
            ]
        )

    def refresh(self) -> None:
        """Take over what other processes have written down since."""
        for index, state in enumerate(self.states):
            if not state.ended:
                self.states[index] = self._directory.read_state(index) or state
                self._tell_job(index)

    @property
    def ended(self) -> bool:
        return all(state.ended for state in self.states)

    @property
    def launched(self) -> bool:
        """Whether nothing is left to be started."""
        return all(
            member.handle or member.ended for state in self.states for member in state.members
        )

    def run(self, *, until_ended: bool = True) -> None:
        """Launch every job when its time has come; return when all are launched, or have ended."""
        while True:
            self.round()
            if self.ended or (not until_ended and self.launched):
                return
            time.sleep(self.pause_s())

    def round(self) -> None:
        """Look once at everything, and do what can be done now."""
        while self._start_ready():
            pass  # what was started may be what a backend waits for with the next
        self.poll(paced=True)
        self._share_fate()

    def poll(self, *, paced: bool = False) -> None:
        """Ask for the state of every job that was submitted and has not ended.

        With ``paced`` only of those that their backend may be asked about again.
        """
        began_s = time.thread_time()
        live = [i for i, s in enumerate(self.states) if not s.ended and s.launched]
        now = time.monotonic()
        if paced:
            live = [i for i in live if now - self._polled_at[i] >= PUNCTUAL * self._pace_s(i)]
        for index in live:
            self._polled_at[index] = now
        if all(self._jobs[i].executor.CAPABILITIES.local_paths for i in live):
            for index in live:
                self._poll_job(index)
        else:
            rest = self._hear(live) if len(live) > 1 else live
            in_parallel(self._poll_job, rest, workers=self._workers_for(rest))
        self._poll_took_s = time.thread_time() - began_s

    def _hear(self, indices: Sequence[int]) -> list[int]:
        """Take over what backends say of many jobs at once; return those to ask about singly."""
        owners: dict[Any, dict[str, tuple[int, MemberState]]] = {}
        for index in indices:
            for member in self.states[index].members:
                if member.handle and not member.ended:
                    backend, app_id = self._runner.scheduler_of(member.handle)
                    owners.setdefault(backend, {})[app_id] = index, member
        rest = set()
        for backend, jobs in owners.items():
            try:
                statuses = backend.statuses_of(list(jobs))
            except (BackendError, RecordError) as err:
                log.debug("%s", err)  # each job will say it
                statuses = {}
            for app_id, (index, member) in jobs.items():
                status = statuses.get(app_id)
                if status is None:
                    rest.add(index)
                    continue
                before = member.state
                _take(member, status)
                if member.state is not before:
                    self._tell(index)
        return sorted(rest)

    def _workers_for(self, indices: Sequence[int]) -> int:
        """Return how many threads to use; who waits for the same call as others costs nothing."""
        batches = (self._jobs[index].executor.CAPABILITIES.batch for index in indices)
        return max(self._workers, min(batches, default=1))

    def cancel(self, indices: Sequence[int] | None = None, *, at_once: bool = False) -> None:
        """End jobs, all by default; those not started yet never will be.

        Raises:
            BackendError: a backend could not be asked, or did not end a job.
        """
        wanted = range(len(self._jobs)) if indices is None else indices
        chosen = [index for index in wanted if not self.states[index].ended]
        cancel = functools.partial(self._cancel_job, at_once=at_once)
        in_parallel(cancel, chosen, workers=self._workers)

    def _give_up(self, index: int, why: str, *, at_once: bool = False) -> None:
        """Start no more of a job, and end what was submitted without being written down.

        Raises:
            BackendError: a backend could not be asked, or did not end it.
        """
        members = self.states[index].members
        if any(member.tag and not member.handle and not member.ended for member in members):
            self._withdraw(index, at_once)
        for member in members:
            if not member.handle:
                _end(member, AppState.CANCELLED, why)
        self.write_down(index)

    def _withdraw(self, index: int, at_once: bool) -> None:
        """End members of a job whose launcher was stopped between their tag and their handle."""
        job = self._jobs[index]
        cwd, apps = self._directory.read_plan(index) or ("", [])
        for app, executor, member in zip(
            apps, job.executors_in_order, self.states[index].members, strict=True
        ):
            if member.tag and not member.handle and not member.ended:
                _mark(app, member.tag, cwd)
                scheduler = get_executor_str(executor)
                info = self._runner.dryrun(app, scheduler, executor)
                app_id = self._backend(scheduler).withdraw(info, at_once=at_once)
                if app_id is not None:
                    member.handle = make_app_handle(scheduler, SESSION, app_id)

    def _start_ready(self) -> bool:
        """Start what may be; tell whether there was something."""
        ready = []
        for index, job in enumerate(self._jobs):
            state = self.states[index]
            if all(member.handle or member.ended for member in state.members):
                continue
            if self._directory.cancel_requested(index):
                try:
                    self._give_up(index, NOT_STARTED)
                except BackendError as err:
                    log.warning("%s: %s", job.id, err)  # the next round tries again
                continue
            needed = {name: self._outcome_of(name) for name in job.dependencies}
            verdict = _order.verdict(needed, job.run_if)
            if verdict == "start" or (verdict == "wait" and self._can_wait_there(index)):
                ready.append(index)
            elif verdict == "skip":
                for member in state.members:
                    _end(member, AppState.CANCELLED, _order.reason(needed, job.run_if))
                self.write_down(index)
        if ready:
            with self._launching([self._jobs[index] for index in ready]):
                self._launch(ready)
            self._launched_at = time.monotonic()
        return any(member.handle for index in ready for member in self.states[index].members)

    def _can_wait_there(self, index: int) -> bool:
        """Tell whether a job can be submitted now, and its backend lets others end first."""
        job = self._jobs[index]
        before: list[tuple[Executor, str]] = []
        for name in job.dependencies:
            position = self._positions[name]
            members = self.states[position].members
            if not all(member.handle for member in members):
                return False
            executor = self._jobs[position].executor
            before += [(executor, member.handle) for member in members if not member.ended]
        held = [executor.held_back(before, job.run_if) for executor in job.executors_in_order]
        self._held_back[index] = [executor for executor in held if executor is not None]
        return len(self._held_back[index]) == len(held)

    def _launching(self, jobs: Sequence[Job | JobGroup]) -> ExitStack:
        """Tell the backends that get several jobs at once."""
        counts = Counter(
            get_executor_str(executor) for job in jobs for executor in job.executors_in_order
        )
        stack = ExitStack()
        for scheduler, count in counts.items():
            if count > 1:
                stack.enter_context(self._backend(scheduler).launching_several())
        return stack

    def _backend(self, scheduler: str) -> Any:
        return self._runner.scheduler_of(make_app_handle(scheduler, SESSION, "-"))[0]

    def _outcome_of(self, name: str) -> AppState:
        """Return the state of a job; one that was lost counts as failed for those after it."""
        state = self.states[self._positions[name]]
        return AppState.FAILED if state.ended and not is_terminal(state.state) else state.state

    def _launch(self, indices: Sequence[int]) -> None:
        """Launch jobs, and see meanwhile how those of them do that are on this machine."""
        launched: list[int] = []

        def launch(index: int) -> None:
            with self._locks[index]:
                self._launch_job(index)
            if self._jobs[index].executor.CAPABILITIES.local_paths:
                launched.append(index)

        def look() -> None:
            for index in launched[:]:
                self._poll_job(index)
                if self.states[index].ended:
                    launched.remove(index)

        in_parallel(launch, indices, workers=self._workers_for(indices), meanwhile=look)

    def _launch_job(self, index: int) -> None:
        job, state = self._jobs[index], self.states[index]
        plan = self._directory.read_plan(index)
        if plan is None:
            raise NemoRunError(f"Job {job.id!r} was never prepared, so it cannot be launched.")
        cwd, apps = plan
        executors = self._held_back.pop(index, None) or job.executors_in_order
        for app, executor, member in zip(apps, executors, state.members, strict=True):
            if member.handle or member.ended:
                continue
            recovering = bool(member.tag)
            if not recovering:
                member.tag = new_tag()
                self.write_down(index)
            _mark(app, member.tag, cwd)
            try:
                member.handle = self._submit(app, executor, recovering)
                member.state = AppState.SUBMITTED
            except (AuthenticationError, BackendUnavailableError) as err:
                if recovering or isinstance(err, ConnectionLostError):
                    # It may have been submitted: the next round asks again.
                    log.warning("%s: %s", job.id, err)
                    continue
                _end(member, AppState.FAILED, f"{NOT_LAUNCHED}: {err}")
                self.launch_errors.append(err)
            except NemoRunError as err:
                _end(member, AppState.FAILED, f"{NOT_LAUNCHED}: {err}")
                self.launch_errors.append(err)
            except (OSError, TypeError, ValueError, LookupError) as err:
                # A defect of a backend's: the other jobs go on all the same.
                log.exception("%s could not be launched", job.id)
                why = f"{NOT_LAUNCHED}: {type(err).__name__}: {err}"
                _end(member, AppState.FAILED, why)
                self.launch_errors.append(SubmitError(f"Job {job.id} {why}"))
            self.write_down(index)

    def _submit(self, app: Any, executor: Any, recovering: bool) -> str:
        scheduler = get_executor_str(executor)
        info = self._runner.dryrun(app, scheduler, executor)
        if recovering:
            # Whoever chose the tag was killed; the job may be there already.
            app_id = self._backend(scheduler).submitted(info)
            if app_id is not None:
                return make_app_handle(scheduler, SESSION, app_id)
        return self._runner.schedule(info)

    def _poll_job(self, index: int) -> None:
        state = self.states[index]
        before = state.state
        for member in state.members:
            if member.handle and not member.ended:
                _take(member, self._ask(member))
        if state.ended:
            self.write_down(index)
        elif state.state is not before:
            # Whoever wants to know asks the backend, as we did.
            self._tell(index)

    def _ask(self, member: MemberState) -> JobStatus | None:
        try:
            backend, app_id = self._runner.scheduler_of(member.handle)
            status: JobStatus | None = backend.status_of(app_id)
        except BackendError as err:
            log.warning("%s: %s", member.handle, err)
            return None
        except RecordError as err:
            member.lost = True
            return JobStatus(state=AppState.UNKNOWN, message=str(err))
        if status is None:
            member.lost = True
            message = f"nothing is known of {app_id} here: was the home directory moved?"
            return JobStatus(state=AppState.UNKNOWN, message=message)
        return status

    def _cancel_job(self, index: int, at_once: bool, why: str = NOT_STARTED) -> None:
        with self._locks[index]:
            self._give_up(index, why, at_once=at_once)
        for member in self.states[index].members:
            if member.handle and not member.ended:
                backend, app_id = self._runner.scheduler_of(member.handle)
                (backend.kill if at_once else backend.cancel)(app_id)
        self._poll_job(index)

    def _share_fate(self) -> None:
        """End the other members of a group of which one did not succeed."""
        for index, state in enumerate(self.states):
            bad = [m for m in state.members if m.ended and m.state is not AppState.SUCCEEDED]
            if bad and not state.ended:
                self._cancel_job(index, at_once=False, why="another task of the group failed")

    def write_down(self, index: int) -> None:
        """Make a change to the state of a job known."""
        if self.writes:
            # A job on this machine ends with its power; others go on and must be found again.
            remote = not self._jobs[index].executor.CAPABILITIES.local_paths
            self._directory.write_state(index, self.states[index], sync=remote)
        self._tell(index)

    def _tell(self, index: int) -> None:
        self._tell_job(index)
        self.on_change(index)

    def _tell_job(self, index: int) -> None:
        members = self.states[index].members
        self._jobs[index].take(
            [member.handle for member in members], [member.state for member in members]
        )

    def pause_s(self) -> float:
        """Look often at young jobs, seldom at old ones; the fastest backend sets the pace.

        With very many jobs looking takes long, and most of the time belongs to the jobs.
        """
        paces = [self._pace_s(i) for i, state in enumerate(self.states) if not state.ended]
        return max(min(paces), IDLE_SHARE * self._poll_took_s) if paces else 0.0

    def _pace_s(self, index: int) -> float:
        """Return how long to wait between two looks at a job."""
        first, last = self._jobs[index].executor.CAPABILITIES.poll_s
        return min(max(first, (time.monotonic() - self._launched_at) / 50), last)


def _mark(app: AppDef, tag: str, cwd: str) -> None:
    """Tell an application what it is found again by, and where it starts."""
    app.metadata = {**app.metadata, TAG: tag}
    for role in app.roles:
        role.metadata = {**role.metadata, CWD: cwd}


def _end(member: MemberState, state: AppState, message: str) -> None:
    if not member.ended:
        member.state, member.message, member.ended_at = state, message, time.time()


def _take(member: MemberState, status: JobStatus | None) -> None:
    """Take over what a backend said, if it said something."""
    if status is not None:
        member.state, member.message = status.state, status.message
        member.exit_code = status.exit_code
        member.started_at, member.ended_at = status.started_at, status.ended_at
        member.parts = status.parts
        member.lost = member.lost or status.lost
