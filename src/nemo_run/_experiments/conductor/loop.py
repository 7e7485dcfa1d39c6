"""Launch jobs in order and see them through to their end.

The same loop runs in the launching process or in one of its own, see `detached`. It can be killed
at any line: what it does next depends only on the experiment's directory and on what the backends
say, so another one goes on where it was. Each step is written down before the next.

Trouble of one job is that job's, see `asking` and `launching`. Trouble of this machine, such as a
full disk, makes the loop wait and say for what.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchx.specs import AppState

from nemo_run._experiments.conductor.asking import Poller
from nemo_run._experiments.conductor.board import Board
from nemo_run._experiments.conductor.launching import NOT_LAUNCHED, NOT_STARTED, Launcher
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.states import JobState
from nemo_run._parallel import in_parallel
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import NemoRunError, RecordUnavailableError
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import Runner
from nemo_run.run.torchx_backend.schedulers.api import PlannedRun

__all__ = ["NOT_LAUNCHED", "NOT_STARTED", "PATIENCE_S", "Conductor"]

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""How long to wait for others to have looked before they count as conducting."""
TROUBLE_S = (0.5, 60.0)
"""Seconds until the next round after trouble of this machine: at first, and at most."""


class Conductor:
    """Sees the jobs of one experiment through, or only looks at them."""

    def __init__(
        self,
        jobs: Sequence[Job | JobGroup],
        directory: ExperimentDirectory,
        runner: Runner,
        *,
        workers: int = 16,
    ) -> None:
        self.board = Board(jobs, directory)
        self._runner = runner
        self._workers = workers
        self._poller = Poller(self.board, runner, workers)
        self._launcher = Launcher(self.board, self._poller, runner)
        self.refresh = self.board.refresh
        self.write_down = self.board.write_down
        self.poll = self._poller.poll
        self.explain = self._poller.explain
        self.pause_s = self._poller.pause_s

    @property
    def states(self) -> list[JobState]:
        """What is known of each job."""
        return self.board.states

    @property
    def ended(self) -> bool:
        """Whether all jobs have ended."""
        return self.board.ended

    @property
    def launch_errors(self) -> Sequence[NemoRunError]:
        """Why jobs could not be launched."""
        return self._launcher.errors

    def take_checked(self, requests: Mapping[int, Sequence[PlannedRun[Any]]]) -> None:
        """Launch these requests, which were planned and checked before, and plan no others."""
        self._launcher.checked = dict(requests)

    def run(
        self, *, until_ended: bool = True, after_round: Callable[[], None] = lambda: None
    ) -> None:
        """Launch every job when its time has come; return when all are launched, or have ended."""
        trouble = Waiting(*TROUBLE_S, growth=2)
        while True:
            try:
                self.round()
            except Exception as err:
                if not _is_trouble(err):
                    raise
                self.board.say(f"{type(err).__name__}: {err}")
                trouble.pause()
                continue
            trouble.restart()
            after_round()
            if self.ended or (not until_ended and self.board.launched):
                return
            time.sleep(self.pause_s())

    def round(self) -> None:
        """Look once at everything, and do what can be done now."""
        self.board.directory.say("")
        # Before anything new is begun: what only this process knows would be lost with it.
        self.board.catch_up()
        while self._launcher.start_ready():
            pass  # a job can now be submitted whose backend waits for the one just started
        # After the launches, so that a job which ends at once is seen in the same round.
        self.poll(paced=True)
        # After the poll, which tells of failed members.
        self._share_fate()

    def cancel(self, indices: Sequence[int] | None = None, *, at_once: bool = False) -> None:
        """End jobs, all by default; those not started yet never will be.

        Raises:
            BackendError: a backend could not be asked, or did not end a job.
        """
        wanted = range(len(self.states)) if indices is None else indices
        chosen = [index for index in wanted if not self.states[index].ended]
        # Before the first is ended: a job that waits for a slot would take the one it frees.
        for index in chosen:
            self._announce_end(index)
        cancel = functools.partial(self._cancel_job, at_once=at_once)
        in_parallel(cancel, chosen, workers=self._workers)

    def _announce_end(self, index: int) -> None:
        for member in self.states[index].members:
            if member.handle and not member.ended:
                backend, app_id = self._runner.scheduler_of(member.handle)
                backend.announce_cancel(app_id)

    def _cancel_job(self, index: int, at_once: bool, why: str = NOT_STARTED) -> None:
        # First what was not started: no member may start while the others are being ended.
        self._launcher.give_up(index, why, at_once=at_once)
        for member in self.states[index].members:
            if member.handle and not member.ended:
                backend, app_id = self._runner.scheduler_of(member.handle)
                (backend.kill if at_once else backend.cancel)(app_id)
        self._poller.poll_job(index)

    def _share_fate(self) -> None:
        """End the other members of a group of which one did not succeed."""
        for index, state in enumerate(self.states):
            bad = [m for m in state.members if m.ended and m.state is not AppState.SUCCEEDED]
            if bad and not state.ended:
                try:
                    self._cancel_job(index, at_once=False, why="another task of the group failed")
                except NemoRunError as err:
                    log.warning("%s: %s", self.board.jobs[index].id, err)  # tried again


def _is_trouble(err: Exception) -> bool:
    """Tell whether this machine is in trouble, rather than this program wrong."""
    if isinstance(err, RuntimeError):
        return "can't start new thread" in str(err)
    return isinstance(err, (OSError, MemoryError, RecordUnavailableError))
