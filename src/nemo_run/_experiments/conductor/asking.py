"""Ask backends how jobs are, each at its own pace."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Any

from torchx.specs import AppState

from nemo_run._experiments.conductor import reasons
from nemo_run._experiments.conductor.board import Board
from nemo_run._experiments.store.states import MemberState
from nemo_run._parallel import in_parallel
from nemo_run.exceptions import NemoRunError, RecordError, RecordUnavailableError
from nemo_run.run.torchx_backend.runner import Runner
from nemo_run.run.torchx_backend.schedulers.api import JobStatus

log = logging.getLogger(__name__)

IDLE_SHARE = 4
"""How many times longer than looking at the jobs the pause until the next look is, at least."""
PUNCTUAL = 0.9
"""Which part of the pause between two looks at a job has to be over: paces grow meanwhile."""
FORGOTTEN_S = 20.0
"""Seconds without a record until the conductor counts a job as lost: a home may be remounted."""


class Poller:
    """Asks for the state of every job that was submitted and has not ended."""

    def __init__(self, board: Board, runner: Runner, workers: int) -> None:
        self._board = board
        self._runner = runner
        self._workers = workers
        self._polled_at = [-math.inf] * len(board.jobs)
        self._poll_took_s = 0.0
        self._missing_since: dict[str, float] = {}
        self._said: set[str] = set()
        self.launched_at = time.monotonic()

    def poll(self, *, paced: bool = False) -> None:
        """Ask; with ``paced`` only about jobs that their backend may be asked about again."""
        began_s = time.thread_time()
        live = [i for i, s in enumerate(self._board.states) if not s.ended and s.launched]
        now = time.monotonic()
        if paced:
            live = [i for i in live if now - self._polled_at[i] >= PUNCTUAL * self._pace_s(i)]
        for index in live:
            self._polled_at[index] = now
        if all(self._board.jobs[i].executor.CAPABILITIES.local_paths for i in live):
            for index in live:
                self.poll_job(index)
        else:
            rest = self._hear(live) if len(live) > 1 else live
            in_parallel(self.poll_job, rest, workers=self.workers_for(rest))
        self._poll_took_s = time.thread_time() - began_s

    def poll_job(self, index: int) -> None:
        """Ask about one job. Whatever is wrong with it, the others go on."""
        state = self._board.states[index]
        before, told = state.state, state.message
        for member in state.members:
            if member.handle and not member.ended:
                _take(member, self._ask(member))
        if state.ended:
            self.explain(index)
            self._board.write_down(index)
        elif (state.state, state.message) != (before, told):
            self._board.tell(index)

    def explain(self, index: int) -> None:
        """Work out why a job that has ended did so without success."""
        board = self._board
        reasons.work_out(index, board.states[index], board.directory, self._runner)

    def workers_for(self, indices: Sequence[int]) -> int:
        """Return how many threads to use; those that wait for one shared call cost nothing."""
        batches = (self._board.jobs[index].executor.CAPABILITIES.batch for index in indices)
        return max(self._workers, min(batches, default=1))

    def pause_s(self) -> float:
        """Look often at young jobs, seldom at old ones; the fastest backend sets the pace.

        With very many jobs looking takes long, and most of the time belongs to the jobs.
        """
        paces = [self._pace_s(i) for i, state in enumerate(self._board.states) if not state.ended]
        return max(min(paces), IDLE_SHARE * self._poll_took_s) if paces else 0.0

    def _pace_s(self, index: int) -> float:
        """Return how long to wait between two looks at a job."""
        first, last = self._board.jobs[index].executor.CAPABILITIES.poll_s
        return min(max(first, (time.monotonic() - self.launched_at) / 50), last)

    def _hear(self, indices: Sequence[int]) -> list[int]:
        """Take over what backends say of many jobs at once; return those to ask about singly."""
        owners: dict[Any, dict[str, tuple[int, MemberState]]] = {}
        for index in indices:
            for member in self._board.states[index].members:
                if member.handle and not member.ended:
                    backend, app_id = self._runner.scheduler_of(member.handle)
                    owners.setdefault(backend, {})[app_id] = index, member
        rest = set()
        for backend, jobs in owners.items():
            try:
                statuses = backend.statuses_of(list(jobs))
            except Exception as err:  # noqa: BLE001 - each job is asked about singly, and says it
                log.debug("%s: %s", type(err).__name__, err)
                statuses = {}
            for app_id, (index, member) in jobs.items():
                status = statuses.get(app_id)
                if status is None:
                    rest.add(index)
                    continue
                before = member.state
                _take(member, status)
                if member.state is not before:
                    self._board.tell(index)
        return sorted(rest)

    def _ask(self, member: MemberState) -> JobStatus | None:
        """Return what a backend says; None where it says nothing, and the last state stays."""
        try:
            backend, app_id = self._runner.scheduler_of(member.handle)
            status: JobStatus | None = backend.status_of(app_id)
        except RecordError as err:
            if isinstance(err, RecordUnavailableError):
                self._note_trouble(member, err)
                return None
            # Read, and damaged: nothing will ever be known of the job again.
            member.lost = True
            return JobStatus(state=AppState.UNKNOWN, message=str(err))
        except Exception as err:  # noqa: BLE001 - one odd answer must not end the other jobs
            self._note_trouble(member, err)
            return None
        if status is None:
            return self._missing(member, app_id)
        self._missing_since.pop(member.handle, None)
        if status.state is AppState.UNSUBMITTED:
            # It has a handle, so it was submitted: states do not move backwards.
            member.message = f"what it left is not to be found now: {app_id}. Was it moved?"
            return None
        return status

    def _note_trouble(self, member: MemberState, err: Exception) -> None:
        """Keep the last state, with a message that says why nothing newer is known."""
        why = str(err) if isinstance(err, NemoRunError) else f"{type(err).__name__}: {err}"
        member.message = f"its state cannot be asked for now: {why}"
        if why not in self._said:
            self._said.add(why)
            unexpected = not isinstance(err, (NemoRunError, OSError))
            log.warning("%s: %s", member.handle, why, exc_info=err if unexpected else None)

    def _missing(self, member: MemberState, app_id: str) -> JobStatus | None:
        """Say that there is no record; to the conductor that is the end only if it stays so."""
        since = self._missing_since.setdefault(member.handle, time.monotonic())
        message = f"there is no record of {app_id} here: was NEMORUN_HOME moved?"
        if self._board.writes and time.monotonic() - since < FORGOTTEN_S:
            member.message = message
            return None
        member.lost = True
        return JobStatus(state=AppState.UNKNOWN, message=message)


def _take(member: MemberState, status: JobStatus | None) -> None:
    """Take over what a backend said, if it said something."""
    if status is not None:
        member.state, member.message = status.state, status.message
        member.exit_code = status.exit_code
        member.started_at, member.ended_at = status.started_at, status.ended_at
        member.parts, member.attempts = status.parts, status.attempts
        member.usage = status.usage
        member.lost = member.lost or status.lost
