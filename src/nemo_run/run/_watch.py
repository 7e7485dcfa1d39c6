"""What one process does with the jobs of an experiment: launch, wait, ask, cancel."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from nemo_run.exceptions import JobNotFoundError, SubmitError
from nemo_run.run import _conductor, _display, _outcome
from nemo_run.run._direct import is_direct
from nemo_run.run._directory import ExperimentDirectory, JobState
from nemo_run.run._preparing import save_jobs
from nemo_run.run._provenance import known_provenance
from nemo_run.run._tailing import LogTail
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
        self.conductor = _conductor.Conductor(jobs, directory, runner, workers=workers)
        # Whether this process conducts until `close`; None as long as nobody asked.
        self._alone: bool | None = None
        self._held = contextlib.ExitStack()
        self._tail: LogTail | None = None

    def conduct(self, *, until_ended: bool) -> None:
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
        progress = _display.Progress(
            self._console,
            self._id,
            self._jobs,
            lambda: conductor.states,
            self._last_line,
            live=self._console.is_terminal and not tailed,
        )
        if tailed:
            self._tail_logs()
        else:
            conductor.on_change = progress.changed
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
        with self._directory.conducting(_conductor.PATIENCE_S) as alone:
            self.conductor.writes = alone
            if alone:
                self.conductor.refresh()
            try:
                yield alone
            finally:
                self.conductor.writes = False

    def close(self) -> None:
        """Conduct no longer."""
        self._held.close()
        self._alone = self._tail = None

    def states(self, *, paced: bool = False) -> list[JobState]:
        """Return the present states: as written by whoever conducts, then asked for.

        With ``paced`` backends are not asked more often than they like.
        """
        self.conductor.refresh()
        self.conductor.poll(paced=paced)
        return self.conductor.states

    def write_down_the_end(self) -> None:
        """Write down how the jobs ended, all of them, so that nobody has to ask again.

        Does nothing while another process conducts, which writes it down itself.
        """
        states = self.conductor.states
        known = [not member.lost and member.ended for state in states for member in state.members]
        # 0.12 wrote no states, and its directories stay as they are.
        if not all(known) or self._directory.read_state(0) is None:
            return
        with self._directory.conducting() as alone:
            for index, state in enumerate(states if alone else ()):
                self._directory.write_state(index, state, sync=False)

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return what a status shows, by job id."""
        provenance = known_provenance(self._directory.path)
        return {
            job.id: _display.describe(job, state, self._directory.path, provenance)
            for job, state in zip(self._jobs, self.states(), strict=True)
        }

    def wait(self) -> None:
        """Wait until every job has ended; where nobody is left to start some, say so and return."""
        while waiting := [state for state in self.states(paced=True) if not state.ended]:
            if not any(state.launched for state in waiting) and self.is_abandoned():
                self._console.print(
                    f"{len(waiting)} jobs were never started, and nobody is left to start them. "
                    "Call resume()."
                )
                return
            time.sleep(self.conductor.pause_s())

    def is_abandoned(self) -> bool:
        """Tell whether jobs wait to be started and nobody is there to do it."""
        with self._directory.conducting() as nobody_conducts:
            # Looked at again: the last conductor may have ended well since.
            return nobody_conducts and any(not state.ended for state in self.states())

    def cancel(self, job_id: str) -> None:
        """End a job, also one that has not been started; returns when it has ended.

        Raises:
            JobNotFoundError: there is no such job.
            BackendError: it could not be ended.
        """
        index = self._index(job_id)
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
            self.conductor.cancel()
        except KeyboardInterrupt:
            self._console.print("Killing all jobs.")
            self.conductor.cancel(at_once=True)

    def raise_if_not_launched(self) -> None:
        """Raise for a job that its conductor could not launch."""
        for state in self.states():
            if state.message.startswith(_conductor.NOT_LAUNCHED):
                raise SubmitError(f"A job {state.message}", operation="submit")

    def raise_if_failed(self) -> None:
        """Raise for the first job that did not succeed."""
        error = _outcome.failure(self._jobs, self.states(), self._runner)
        if error is not None:
            raise error

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
        tail = _outcome.last_lines(self.conductor.states[index], self._runner, 1)
        return tail[-1].rstrip() if tail else ""
