"""What one job asks of its backend by itself, outside of the order of an experiment."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchx.specs import AppState, is_terminal

from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import BackendError

if TYPE_CHECKING:
    from nemo_run.run.torchx_backend.runner import Runner

log = logging.getLogger(__name__)


def ask(handle: str, runner: Runner, otherwise: AppState) -> AppState:
    """Return the state of a job; ``otherwise`` where its backend does not say."""
    try:
        status = runner.status(handle)
    except BackendError as err:
        log.warning("%s: %s", handle, err)
        return otherwise
    return AppState.UNKNOWN if status is None else status.state


def print_logs(handles: Sequence[str], runner: Runner, regex: str | None) -> None:
    """Follow the logs of jobs to their ends, on stderr."""
    import sys

    from nemo_run.run.logs import follow_all

    follow_all(sys.stderr, [handle for handle in handles if handle], runner, regex=regex)


def print_request(info: Any) -> None:
    """Show what would be submitted."""
    from nemo_run.core.frontend.console.api import CONSOLE

    CONSOLE.print(str(info), markup=False, highlight=False)


def clean_up(executor: Executor, handles: Sequence[str], state: AppState) -> None:
    """Let an executor remove what ended jobs left behind; trouble is only logged."""
    if not is_terminal(state):
        return
    for handle in filter(None, handles):  # one that was cancelled before it began has none
        try:
            executor.cleanup(handle)
        except Exception as err:  # noqa: BLE001 - whatever an executor raises, the job has ended
            log.warning("%s: its backend did not remove all of the job: %s", handle, err)
