"""Start jobs when those they depend on have ended.

A job's tag is written down before anything is asked of its backend, and its handle as soon as the
backend has answered. A conductor that finds a tag without a handle looks for the tag first: the
process that chose it was killed in between, and the job may be there already.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

from torchx.specs import AppDef, AppState, is_terminal, make_app_handle

from nemo_run import _order
from nemo_run._experiments.conductor.asking import Poller
from nemo_run._experiments.conductor.board import Board
from nemo_run._experiments.store.states import MemberState
from nemo_run._files import is_passing
from nemo_run._jobs.records import new_tag
from nemo_run._parallel import in_parallel
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
    NemoRunError,
    RecordUnavailableError,
    SubmitError,
)
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import SESSION, Runner
from nemo_run.run.torchx_backend.schedulers.api import CWD, TAG, PlannedRun, get_executor_str

log = logging.getLogger(__name__)

NOT_LAUNCHED = "could not be launched"
NOT_STARTED = "cancelled before it was started"
RETRY_S = (2.0, 60.0)
"""Seconds until a job whose backend could not be asked is launched again: at first, and at most."""


@dataclass
class _Retry:
    """When to try a launch again that an outage kept from its backend."""

    not_before: float
    pause_s: float


class Launcher:
    """Launches jobs in order; see the top of this module for what survives a kill.

    ``checked`` holds the requests of jobs that were planned, and found right, by this process.
    """

    def __init__(self, board: Board, poller: Poller, runner: Runner) -> None:
        self._board = board
        self._poller = poller
        self._runner = runner
        self._positions = {job.id: index for index, job in enumerate(board.jobs)}
        # Executors whose backend holds a job back until those it depends on have ended.
        self._held_back: dict[int, list[Executor]] = {}
        self._retries: dict[int, _Retry] = {}
        # Held while a job is being launched: a cancel waits for it.
        self._locks = [threading.Lock() for _ in board.jobs]
        self.checked: dict[int, Sequence[PlannedRun[Any]]] = {}
        self.errors: list[NemoRunError] = []

    def start_ready(self) -> bool:
        """Start what may be; tell whether there was something."""
        ready = []
        for index, state in enumerate(self._board.states):
            if all(member.handle or member.ended for member in state.members):
                continue
            # Asked right before a launch: any process may have requested it, and none but this
            # one can still keep the job from starting.
            if self._board.directory.cancel_requested(index):
                try:
                    self.give_up(index, NOT_STARTED)
                except BackendError as err:
                    log.warning("%s: %s", self._board.jobs[index].id, err)  # tried again later
            elif self._is_ready(index):
                ready.append(index)
        if ready:
            with self._launching([self._board.jobs[index] for index in ready]):
                self._launch(ready)
            self._poller.launched_at = time.monotonic()
        return any(member.handle for index in ready for member in self._board.states[index].members)

    def give_up(self, index: int, why: str, *, at_once: bool = False) -> None:
        """Start no more of a job, and end what was submitted without being written down.

        Raises:
            BackendError: a backend could not be asked, or did not end it.
        """
        # A launch under way ends first: its handle is then known, and its job can be ended.
        with self._locks[index]:
            members = self._board.states[index].members
            # Before the end is written: a member that is written down as ended is never looked for.
            if any(member.tag and not member.handle and not member.ended for member in members):
                self._withdraw(index, at_once)
            for member in members:
                if not member.handle:
                    end(member, AppState.CANCELLED, why)
            self._board.write_down(index)

    def backend(self, scheduler: str) -> Any:
        """Return the scheduler of that name."""
        return self._runner.scheduler_of(make_app_handle(scheduler, SESSION, "-"))[0]

    def _is_ready(self, index: int) -> bool:
        """Tell whether a job may be launched now; one that never may is ended."""
        retry = self._retries.get(index)
        if retry is not None and time.monotonic() < retry.not_before:
            return False
        job = self._board.jobs[index]
        needed = {name: self._outcome_of(name) for name in job.dependencies}
        verdict = _order.verdict(needed, job.run_if)
        if verdict == "skip":
            for member in self._board.states[index].members:
                end(member, AppState.CANCELLED, _order.reason(needed, job.run_if))
            self._board.write_down(index)
        return verdict == "start" or (verdict == "wait" and self._can_wait_there(index))

    def _outcome_of(self, name: str) -> AppState:
        """Return the state of a job; one that was lost counts as failed for those after it."""
        state = self._board.states[self._positions[name]]
        return AppState.FAILED if state.ended and not is_terminal(state.state) else state.state

    def _can_wait_there(self, index: int) -> bool:
        """Tell whether a job can be submitted now, and its backend lets others end first."""
        job = self._board.jobs[index]
        before: list[tuple[Executor, str]] = []
        for name in job.dependencies:
            position = self._positions[name]
            members = self._board.states[position].members
            if not all(member.handle for member in members):
                return False
            executor = self._board.jobs[position].executor
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
                stack.enter_context(self.backend(scheduler).launching_several())
        return stack

    def _launch(self, indices: Sequence[int]) -> None:
        """Launch jobs, and see meanwhile how those of them do that are on this machine.

        Jobs that wait for slots are launched one after the other: the first added is served first.
        """
        launched: list[int] = []
        interrupted = threading.Event()

        def launch(lane: Sequence[int]) -> None:
            for index in lane:
                if interrupted.is_set():
                    return
                with self._locks[index]:
                    self._launch_job(index)
                if self._board.jobs[index].executor.CAPABILITIES.local_paths:
                    launched.append(index)

        def look() -> None:
            for index in launched[:]:
                self._poller.poll_job(index)
                if self._board.states[index].ended:
                    launched.remove(index)

        workers = self._poller.workers_for(indices)
        try:
            in_parallel(launch, self._lanes(indices), workers=workers, meanwhile=look)
        except BaseException:
            interrupted.set()
            raise

    def _lanes(self, indices: Sequence[int]) -> list[list[int]]:
        """Return which jobs are launched one after the other, and which beside each other."""
        queueing = [index for index in indices if self._queues(index)]
        others = [[index] for index in indices if index not in queueing]
        # An empty lane keeps several jobs out of the main thread, which looks at them meanwhile.
        return [queueing, *others, *([[]] if len(queueing) > 1 else [])] if queueing else others

    def _queues(self, index: int) -> bool:
        return any(executor.queues() for executor in self._board.jobs[index].executors_in_order)

    def _launch_job(self, index: int) -> None:
        """Launch what was not launched of a job. Whatever is wrong with it, the others go on."""
        members = self._board.states[index].members
        try:
            planned = self._planned(index)
        except Exception as err:  # noqa: BLE001 - see above
            for member in members:
                self._settle(index, member, err)
            return
        for member, info in zip(members, planned, strict=True):
            if member.handle or member.ended:
                continue
            in_doubt = bool(member.tag)
            try:
                self._launch_member(index, member, info)
                self._retries.pop(index, None)
                # Before the next member: a crash in between leaves one member in doubt, not two.
                self._board.write_down(index)
            except Exception as err:  # noqa: BLE001 - see above
                in_doubt = in_doubt or isinstance(err, ConnectionLostError)
                self._settle(index, member, err, in_doubt=in_doubt)

    def _planned(self, index: int) -> Sequence[PlannedRun[Any]]:
        """Return the requests of a job: as they were checked, or made for the tags they have."""
        job, members = self._board.jobs[index], self._board.states[index].members
        checked, held_back = self.checked.pop(index, None), self._held_back.pop(index, None)
        if checked is not None and not held_back and not any(member.tag for member in members):
            return checked
        plan = self._board.directory.read_plan(index)
        if plan is None:
            raise NemoRunError(f"Job {job.id!r} was never prepared, so it cannot be launched.")
        executors = held_back or job.executors_in_order
        return [
            plan_with_tag(self._runner, app, executor, plan.cwd, member.tag or new_tag())
            for app, executor, member in zip(plan.apps, executors, members, strict=True)
        ]

    def _launch_member(self, index: int, member: MemberState, info: PlannedRun[Any]) -> None:
        scheduler = get_executor_str(info.executor)
        app_id = None
        if member.tag:
            # The process that chose the tag was killed, or got no answer: is the job there?
            app_id = self.backend(scheduler).submitted(info)
        else:
            member.tag = info.planned.metadata[TAG]
            try:
                # Before the job is submitted: after a crash in between, the tag finds it.
                self._board.record(index)
            except RecordUnavailableError:
                member.tag = ""  # not on disk: a crash after submitting would lose the job
                raise
        if app_id is None:
            self._check_code(index)
            member.handle = self._runner.schedule(info)
        else:
            member.handle = make_app_handle(scheduler, SESSION, app_id)
        member.state, member.message = AppState.SUBMITTED, ""

    def _check_code(self, index: int) -> None:
        plan = self._board.directory.read_plan(index)
        if plan is not None:
            plan.check_staged(self._board.jobs[index].id)

    def _settle(
        self, index: int, member: MemberState, err: Exception, *, in_doubt: bool = False
    ) -> None:
        """Decide what a failed launch means: to try again later, or the end of the job.

        ``in_doubt`` says that the job may have been submitted.
        """
        job = self._board.jobs[index]
        if member.handle or member.ended:
            return
        if is_passing(err) or (_is_outage(err) and (in_doubt or job.dependencies)):
            self._board.say(f"{job.id} waits to be launched: {err}")
            self._put_off(index, member, err)
            return
        if not isinstance(err, NemoRunError):
            log.error("%s %s", job.id, NOT_LAUNCHED, exc_info=err)
            err = SubmitError(f"{type(err).__name__}: {err}")
        end(member, AppState.FAILED, f"{NOT_LAUNCHED}: {err}")
        self.errors.append(err)
        self._board.write_down(index)

    def _put_off(self, index: int, member: MemberState, err: Exception) -> None:
        """Try a launch again after a pause, which grows."""
        first_s, most_s = RETRY_S
        before = self._retries.get(index)
        pause_s = first_s if before is None else min(before.pause_s * 2, most_s)
        self._retries[index] = _Retry(time.monotonic() + pause_s, pause_s)
        member.message = f"waits to be launched: {err}"
        self._board.write_down(index)

    def _withdraw(self, index: int, at_once: bool) -> None:
        """End members of a job whose launcher was stopped between their tag and their handle."""
        job = self._board.jobs[index]
        plan = self._board.directory.read_plan(index)
        members = self._board.states[index].members
        for app, executor, member in zip(
            plan.apps if plan else (), job.executors_in_order, members, strict=True
        ):
            if plan and member.tag and not member.handle and not member.ended:
                info = plan_with_tag(self._runner, app, executor, plan.cwd, member.tag)
                scheduler = get_executor_str(executor)
                app_id = self.backend(scheduler).withdraw(info, at_once=at_once)
                if app_id is not None:
                    member.handle = make_app_handle(scheduler, SESSION, app_id)


def plan_with_tag(
    runner: Runner, app: AppDef, executor: Executor, cwd: str, tag: str
) -> PlannedRun[Any]:
    """Return the request of an application that is found again by its tag and starts in ``cwd``.

    Raises:
        ConfigError: the executor cannot do what the application asks for.
    """
    app.metadata = {**app.metadata, TAG: tag}
    for role in app.roles:
        role.metadata = {**role.metadata, CWD: cwd}
    return cast("PlannedRun[Any]", runner.dryrun(app, get_executor_str(executor), executor))


def end(member: MemberState, state: AppState, message: str) -> None:
    """Note the end of a task that its backend never had, or has no more."""
    if not member.ended:
        member.state, member.message, member.ended_at = state, message, time.time()


def _is_outage(err: Exception) -> bool:
    """Tell whether a backend could not be asked, or did not let us in: it may, later."""
    kinds = (AuthenticationError, BackendUnavailableError)
    return isinstance(err, kinds) or isinstance(err.__cause__, kinds)
