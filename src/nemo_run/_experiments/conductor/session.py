"""What one process does with the jobs of an experiment: launch, wait, ask, cancel."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.console import Console
from torchx.specs import AppState

from nemo_run._experiments.conductor import loop, outcome, reasons
from nemo_run._experiments.conductor.direct import is_direct
from nemo_run._experiments.conductor.log_tail import LogTail
from nemo_run._experiments.display import panel
from nemo_run._experiments.display.progress import Progress
from nemo_run._experiments.provenance.record import known_provenance
from nemo_run._experiments.setup import save_jobs
from nemo_run._experiments.store import launcher
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.states import JobState
from nemo_run.exceptions import (
    JobFailedError,
    JobNotFoundError,
    NemoRunError,
    RecordUnavailableError,
    SubmitError,
)
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.torchx_backend.runner import Runner


class Watch:
    """Looks at the jobs of one experiment, and changes things while it is their conductor.

    Any number of processes may look; only one conducts at a time, see `conducting`.
    """

    def __init__(
        self,
        id: str,
        jobs: Sequence[Job | JobGroup],
        directory: ExperimentDirectory,
        runner: Runner,
        console: Console,
        *,
        workers: int,
    ) -> None:
        self._id = id
        self._jobs = jobs
        self._directory = directory
        self._runner = runner
        self._console = console
        self.conductor = loop.Conductor(jobs, directory, runner, workers=workers)
        # Whether this process conducts until `close`; None until it was asked for.
        self._alone: bool | None = None
        self._held = contextlib.ExitStack()
        self._tail: LogTail | None = None

    def conduct(self, *, until_ended: bool, keep_panel: bool = False) -> None:
        """Launch every job when its time has come, and wait, showing how it goes.

        Returns when all are launched or, with ``until_ended``, have ended. Stays the conductor
        until `close`. Where another process conducts, waits for the end.

        Raises:
            NemoRunError: a job could not be launched.
        """
        if self._alone is None:
            self._alone = self._held.enter_context(self.conducting())
        if not self._alone:
            self.wait()
            return
        conductor = self.conductor
        tailed = any(job.tail_logs for job in self._jobs)
        progress = Progress(
            self._console,
            self._id,
            self._jobs,
            lambda: conductor.states,
            self._last_line,
            live=self._console.is_terminal and not tailed,
            keep=keep_panel,
        )
        if tailed:
            self._tail_logs()
        else:
            conductor.board.on_change = progress.changed
        try:
            with progress:
                conductor.run(until_ended=until_ended)
        except KeyboardInterrupt:
            self.end_all()
            raise
        if conductor.ended and self._tail is not None:
            self._tail.finish()
        if conductor.launch_errors and not until_ended:
            save_jobs(self._directory, self._jobs)
            raise conductor.launch_errors[0]

    def resume(self) -> None:
        """Start what was not started and wait for all; only wait where another conducts."""
        while not all(state.ended for state in self.states(paced=True)):
            with self.conducting() as alone:
                if alone:
                    self.conductor.run()
                    save_jobs(self._directory, self._jobs)
            time.sleep(self.conductor.pause_s())

    @contextlib.contextmanager
    def conducting(self) -> Iterator[bool]:
        """Be the one process that changes things; gives False where another is."""
        with self._directory.conducting(loop.PATIENCE_S) as alone:
            self.conductor.board.writes = alone
            if alone:
                # With the lock in hand: the conductor before us can write no more.
                self.conductor.refresh()
            try:
                yield alone
            finally:
                # Before the lock is released: the next conductor may write from then on.
                self.conductor.board.writes = False

    def close(self) -> None:
        """Conduct no longer."""
        self._held.close()
        self._alone = self._tail = None

    def states(self, *, paced: bool = False) -> list[JobState]:
        """Return the present states: as written by the conductor, then asked for.

        With ``paced`` backends are not asked more often than they like.
        """
        self.conductor.refresh()
        self.conductor.poll(paced=paced)
        return self.conductor.states

    def write_down_the_end(self) -> None:
        """Write down how the jobs ended, all of them, so that the backends need not be asked again.

        Does nothing while another process conducts, which writes it down itself.
        """
        states = self.conductor.states
        known = [not member.lost and member.ended for state in states for member in state.members]
        # 0.12 wrote no states, and its directories stay as they are.
        if not all(known) or self._directory.read_state(0) is None:
            return
        # Where the home can only be read, the next process that looks asks again.
        unwritable = contextlib.suppress(RecordUnavailableError)
        self._explain()
        with self._directory.conducting() as alone, unwritable:
            for index, state in enumerate(states if alone else ()):
                self._directory.write_state(index, state, sync=False)

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return what a status shows, by job id."""
        provenance = known_provenance(self._directory.path)
        states = self.states()
        self._explain()
        told = {
            job.id: panel.describe(job, state, self._directory.path, provenance, waits_for)
            for job, state, waits_for in zip(
                self._jobs, states, panel.waiting_for(self._jobs, states), strict=True
            )
        }
        trouble = self._directory.said()
        orphaned = launcher.is_gone(str(self._directory.path))
        for job, state in zip(self._jobs, self.conductor.states, strict=True):
            if not state.ended and not state.message and trouble:
                told[job.id]["message"] = f"its conductor waits: {trouble}"
            elif orphaned and not state.launched:
                told[job.id]["message"] = launcher.WAITS
        return told

    def wait(self, ids: Collection[str] | None = None) -> None:
        """Wait until these jobs, or all, have ended; say so where no process can start some."""
        wanted = [ids is None or job.id in ids for job in self.conductor.board.jobs]
        while waiting := [
            state
            for state, is_wanted in zip(self.states(paced=True), wanted, strict=True)
            if is_wanted and not state.ended
        ]:
            if not any(state.launched for state in waiting) and self.is_abandoned():
                self._console.print(
                    f"{len(waiting)} jobs were never started: their launcher is gone. "
                    "Call resume()."
                )
                return
            time.sleep(self.conductor.pause_s())

    def is_abandoned(self) -> bool:
        """Tell whether jobs wait to be started and no process conducts."""
        with self._directory.conducting() as unattended:
            # Looked at again with the lock in hand: the last conductor may have ended well since.
            return unattended and any(not state.ended for state in self.states())

    def cancel(self, job_id: str) -> None:
        """End a job, also one that has not been started; returns when it has ended.

        Raises:
            JobNotFoundError: there is no such job.
            BackendError: it could not be ended.
        """
        index = self._index(job_id)
        if not self.conductor.states[index].ended:
            self._directory.note_canceller(index, reasons.this_user())
        # Written before the first look: a conductor that has not launched the job finds the
        # request, and the look shows the handle of one that has.
        self._directory.request_cancel(index)
        while not self.states()[index].ended:
            if any(member.handle for member in self.conductor.states[index].members):
                self.conductor.cancel([index])
                continue
            with self.conducting() as alone:
                if alone:
                    self.conductor.cancel([index])
            time.sleep(0.05)

    def print_log(self, job_id: str, regex: str | None) -> None:
        """Print the log of a job to stderr, following it until the job ends.

        Raises:
            JobNotFoundError: there is no such job, or it has not been started.
        """
        index = self._index(job_id)
        job, state = self._jobs[index], self.states()[index]
        if is_direct(job.handle):
            where = job.executor.job_dir
            self._console.print(f"The log of a direct run is in {where}", markup=False)
        elif not any(member.handle for member in state.members):
            raise JobNotFoundError(f"Job {job_id} has not been started.", operation="logs")
        else:
            job.logs(self._runner, regex=regex)

    def _index(self, job_id: str) -> int:
        for index, job in enumerate(self._jobs):
            if job.id == job_id:
                return index
        known = ", ".join(job.id for job in self._jobs) or "none"
        raise JobNotFoundError(f"There is no job {job_id!r} in {self._id}. Jobs: {known}.")

    def end_all(self) -> None:
        """Ask all jobs to end; being interrupted again, kill them."""
        if self.conductor.ended:
            return
        try:
            self._console.print("Ending all jobs; press Ctrl-C again to kill them at once.")
            for index, state in enumerate(self.conductor.states):
                if not state.ended:
                    self._directory.note_canceller(index, f"Ctrl-C of {reasons.this_user()}")
            self.conductor.cancel()
        except KeyboardInterrupt:
            self._console.print("Killing all jobs.")
            self.conductor.cancel(at_once=True)

    def raise_if_not_launched(self) -> None:
        """Raise for a job that its conductor could not launch."""
        for state in self.states():
            if state.message.startswith(loop.NOT_LAUNCHED):
                raise SubmitError(f"A job {state.message}", operation="submit")

    def failure(self) -> JobFailedError | None:
        """Return the error for the first job that did not succeed, if there is one."""
        states = self.states()
        self._explain()
        return outcome.failure(self._jobs, states, self._runner)

    def _explain(self) -> None:
        """Work out why jobs ended that another process, or another release, saw end.

        Not of jobs elsewhere: their backend would be asked again and again for an old log.
        """
        for index, (job, state) in enumerate(zip(self._jobs, self.conductor.states, strict=True)):
            if job.executor.CAPABILITIES.local_paths or state.state is AppState.CANCELLED:
                self.conductor.explain(index)

    def causes(self) -> dict[str, str]:
        """Return the jobs that failed by themselves, each with the reason, as known here."""
        failed = outcome.causes(self._jobs, self.conductor.states)
        return {job.id: outcome.reason(job, state, shows_log=True) for job, state in failed}

    def bad_ends(self) -> list[str]:
        """Return the jobs that ended without success, as known here."""
        return [job.id for job, _ in outcome.without_success(self._jobs, self.conductor.states)]

    def _tail_logs(self) -> None:
        if self._tail is None:
            self._tail = LogTail(self._runner, self._tailed_handles)
        self._tail.start()

    def _tailed_handles(self) -> list[str]:
        tailed = [job for job in self._jobs if job.tail_logs]
        return [
            h
            for job in tailed
            for h in (job.handles if isinstance(job, JobGroup) else [job.handle])
        ]

    def _last_line(self, index: int) -> str:
        if not self._jobs[index].executor.CAPABILITIES.local_paths:
            return ""  # several times a second is too often to ask a cluster
        started = [m for m in self.conductor.states[index].members if m.handle]
        try:
            tail = reasons.last_lines(started[0], self._runner, 1) if started else ()
        except NemoRunError:
            return ""
        return tail[-1].rstrip() if tail else ""
