"""Submit one application and wait for it."""

from __future__ import annotations

import sys
import threading
import time
from contextvars import copy_context
from typing import Any

from torchx.schedulers.api import Stream
from torchx.specs import AppDef, AppDryRunInfo, AppState, AppStatus

from nemo_run.core.execution.base import Executor
from nemo_run.core.frontend.console.api import CONSOLE
from nemo_run.exceptions import UnknownStatusError
from nemo_run.run.logs import get_logs
from nemo_run.run.torchx_backend.runner import Runner, get_runner


class ContextThread(threading.Thread):
    """A thread that sees the context variables of its creator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._context = copy_context()
        super().__init__(*args, **kwargs)

    def run(self) -> None:
        self._context.run(super().run)


def launch(
    executable: AppDef,
    executor_name: str,
    executor: Executor,
    dryrun: bool = False,
    wait: bool = False,
    log: bool = False,
    parent_run_id: str | None = None,
    runner: Runner | None = None,
    log_dryrun: bool = False,
    dryrun_info: AppDryRunInfo[Any] | None = None,
) -> tuple[str | None, AppStatus | AppDryRunInfo[Any] | None]:
    """Submit an application, or only plan it.

    Returns ``(None, plan)`` for a dry run, else the handle with the status: SUBMITTED, or the
    final one with ``wait``.
    """
    runner = runner or get_runner()
    if dryrun:
        info = runner.dryrun(executable, executor_name, executor)
        if log_dryrun:
            CONSOLE.print("[cyan]APPLICATION[/cyan]")
            CONSOLE.print(str(info), markup=False, highlight=False)
        return None, info
    handle = runner.run(executable, executor_name, executor, dryrun_info=dryrun_info)
    if not wait:
        return handle, AppStatus(state=AppState.SUBMITTED)
    return handle, wait_and_exit(app_handle=handle, log=log, runner=runner)


def wait_and_exit(
    *,
    app_handle: str,
    log: bool,
    runner: Runner | None = None,
    timeout: int = 10,
    log_join_timeout: int = 10,
) -> AppStatus:
    """Wait for a job to end and return its status; with ``log``, print its log meanwhile.

    A backend that cannot be reached is asked again for as long as it takes; nothing of that ends
    the job.

    Raises:
        UnknownStatusError: for ``timeout`` seconds nothing was known of the job.
    """
    runner = runner or get_runner()
    printer = None
    if log:
        printer = ContextThread(
            target=get_logs,
            args=(sys.stdout, app_handle, None, True, runner, Stream.COMBINED),
            daemon=True,
        )
        printer.start()
    scheduler, _ = runner.scheduler_of(app_handle)
    first, last = scheduler.EXECUTOR.CAPABILITIES.poll_s
    began, known_at = time.monotonic(), time.monotonic()
    while True:
        status = runner.status(app_handle)
        now = time.monotonic()
        if status is not None and status.is_terminal():
            break
        if status is not None:
            known_at = now
        elif now - known_at > timeout:
            raise UnknownStatusError(f"There is no record of {app_handle} any more.")
        time.sleep(min(max(first, (now - began) / 50), last))
    if printer is not None:
        printer.join(log_join_timeout)
    return status
