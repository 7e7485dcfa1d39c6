"""What happens when an experiment is left: wait, write down, show, and tell failures."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from nemo_run._experiments import setup
from nemo_run._experiments.display import panel
from nemo_run._experiments.ending import unseen
from nemo_run._experiments.running import Running
from nemo_run.core.frontend.console.api import ERRORS
from nemo_run.exceptions import NemoRunError

log = logging.getLogger(__name__)

_current_experiment: ContextVar[Running | None] = ContextVar("experiment", default=None)


class Leaving(Running):
    """An experiment that knows what its program has seen of how the jobs ended."""

    # What `Experiment` takes from the user.
    clean_mode: bool
    enable_goodbye_message: bool
    skip_status_at_exit: bool

    _token: Token[Any] | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._launched:
                self._leave(error)
            elif error is None and self._jobs and self._should_have_run:
                self.console.print("No job was launched: call run() before leaving the experiment.")
        finally:
            if self._watch_ is not None:
                self._watch_.close()
            if self._token is not None:
                _current_experiment.reset(self._token)
                self._token = None
        if error is None and self._launched and not self._detached:
            self._tell_failures()

    @property
    def _should_have_run(self) -> bool:
        return not (self._direct or self._planned or self._reconstruct)

    def _leave(self, error: BaseException | None) -> None:
        interrupted: KeyboardInterrupt | None = None
        if isinstance(error, KeyboardInterrupt) and not self._detached:
            self._watch.end_all()
        elif self._detached:
            panel.rule(self.console, f"Detaching from Experiment {self._id}; jobs go on")
        elif error is not None:
            panel.rule(self.console, f"Leaving Experiment {self._id} with jobs running")
        elif not self._direct:
            panel.rule(self.console, f"Waiting for Experiment {self._id} to finish")
            try:
                self._watch.conduct(until_ended=True, keep_panel=self.skip_status_at_exit)
            except KeyboardInterrupt as err:
                interrupted = err  # the jobs have been ended; how they ended is still told
            self._clean_up()
        setup.save_jobs(self._directory, self._jobs)
        if self._recorder is not None:
            self._recorder.finish()
        if not self.skip_status_at_exit:
            panel.print_status(self.console, self._id, self._watch.statuses())
        self._directory.mark_done()
        if self.enable_goodbye_message:
            theme = os.environ.get("NEMO_RUN_CODE_THEME", "monokai")
            ids = [job.id for job in self._jobs]
            failed = next(iter(self._watch.causes()), None)
            chosen = 0 if failed is None else ids.index(failed)
            panel.goodbye(self.console, self._id, ids, theme, chosen=chosen)
        if interrupted is not None:
            raise interrupted

    def _clean_up(self) -> None:
        for job in self._jobs:
            if not job.executor._tidies_itself:
                job.cleanup()

    def _raise_if_failed(self) -> None:
        failure = None if self._only_planned else self._watch.failure()
        if failure is not None:
            self._looked()
            raise failure

    def _tell_failures(self) -> None:
        """Raise for a failure, or show it and expect the program to look, as ``check`` says."""
        if self.check:
            self._raise_if_failed()
        failure = self._watch.failure() if self.check is None else None
        if failure is not None:
            if self.clean_mode:
                log.error("%s: %s", self._id, str(failure).partition("\n")[0])
            else:
                panel.print_failure(ERRORS, str(failure))
            unseen.note(self._id, self._watch.causes())

    def _statuses(self) -> dict[str, dict[str, Any]]:
        statuses = self._watch.statuses()
        self._looked()
        return statuses

    def _looked(self) -> None:
        """Take note that the program knows how the jobs ended that have ended."""
        unseen.saw(self._id, self._watch.bad_ends())


@contextlib.contextmanager
def errors_as_warnings(what: str, *, check: bool) -> Iterator[None]:
    """Log our errors as warnings, or with ``check`` let them pass.

    The user has asked for something that did not happen, so ``clean_mode`` does not silence it.
    """
    try:
        yield
    except NemoRunError as err:
        if check:
            raise
        log.warning("%s: %s", what, err)
