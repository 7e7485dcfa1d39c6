"""Logs of jobs, printed as they come."""

from __future__ import annotations

import io
import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from torchx.schedulers.api import Stream
from torchx.specs import AppState, parse_app_handle
from torchx.specs.api import is_started

from nemo_run.core.execution.base import LogSupportedExecutor
from nemo_run.exceptions import ConfigError, JobNotFoundError
from nemo_run.run.torchx_backend.schedulers.api import LogQuery, line_filter

if TYPE_CHECKING:
    from nemo_run.run.torchx_backend.runner import Runner

log = logging.getLogger(__name__)

GREEN, RESET = "\033[32m", "\033[0m"

# Several logs are followed at once, each by a thread of its own.
_printing = threading.Lock()


def get_logs(
    file: TextIO,
    identifier: str,
    regex: str | None,
    should_tail: bool = False,
    runner: Runner | None = None,
    streams: Stream | None = None,
    wait_timeout: int = 10,
) -> None:
    """Print the logs of all replicas of a job, each line prefixed by role and replica.

    ``identifier`` is a handle, to which ``/role`` may be added. Waits up to ``wait_timeout``
    seconds for the job to start.

    Raises:
        ConfigError: ``identifier`` is not a handle.
        JobNotFoundError: there is no such job or role.
    """
    from nemo_run.run.torchx_backend.runner import get_runner

    runner = runner or get_runner()
    handle, wanted = _parse(identifier)
    _await_start(handle, runner, wait_timeout)
    app = runner.describe(handle)
    if app is None:
        raise JobNotFoundError(f"There is no job {handle}.", operation="logs")
    roles = [role for role in app.roles if wanted in (None, role.name)]
    if not roles:
        known = ", ".join(role.name for role in app.roles)
        raise JobNotFoundError(f"{handle} has no role {wanted!r}. It has: {known}.")

    errors: list[Exception] = []
    replicas = [(role.name, k) for role in roles for k in range(role.num_replicas)]
    if len(replicas) == 1:
        role, k = replicas[0]
        print_log_lines(file, runner, handle, role, k, regex, should_tail, errors, streams)
    else:
        threads = [
            threading.Thread(
                target=print_log_lines,
                args=(file, runner, handle, role, k, regex, should_tail, errors, streams),
                daemon=True,
            )
            for role, k in replicas
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in errors[1:]:
        log.error("%s: %s", handle, error)
    if errors:
        raise errors[0]


def print_log_lines(
    file: TextIO,
    runner: Runner,
    app_handle: str,
    role_name: str,
    replica_id: int,
    regex: str | None,
    should_tail: bool,
    exceptions: list[Exception],
    streams: Stream | None,
    log_path: str | None = None,
) -> None:
    """Print the log of one replica; what goes wrong is added to ``exceptions``."""
    try:
        scheduler, app_id = runner.scheduler_of(app_handle)
        if isinstance(scheduler.EXECUTOR, LogSupportedExecutor) and not regex:
            scheduler.EXECUTOR.logs(app_id, fallback_path=log_path)
            return
        prefix = _prefix(file, f"{role_name[-10:]}/{replica_id} ")
        if regex:
            for line in scheduler.log_iter(
                app_id, role_name, replica_id, regex, should_tail=should_tail, streams=streams
            ):
                with _printing:
                    file.write(prefix + line)
        else:
            _copy(file, scheduler, app_id, role_name, replica_id, should_tail, streams, prefix)
        file.flush()
    except BrokenPipeError:
        _discard_from_now_on(file)
    except Exception as err:  # noqa: BLE001 - handed over to the thread that waits for us
        exceptions.append(err)


def follow_all(
    file: TextIO, handles: Sequence[str], runner: Runner, *, regex: str | None = None
) -> None:
    """Print the logs of several jobs at once, following them to their ends.

    Raises:
        ConfigError: ``regex`` is not a regular expression.
    """
    line_filter(regex)
    if len(handles) == 1:
        get_logs(file, handles[0], regex, should_tail=True, runner=runner)
        return
    threads = [
        threading.Thread(
            target=get_logs,
            args=(file, handle, regex),
            kwargs={"should_tail": True, "runner": runner},
            daemon=True,
        )
        for handle in handles
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _copy(
    file: TextIO,
    scheduler: Any,
    app_id: str,
    role: str,
    replica: int,
    follow: bool,
    streams: Stream | None,
    prefix: str,
) -> None:
    query = LogQuery(role=role, replica=replica, stream=streams or Stream.COMBINED, follow=follow)
    out = getattr(file, "buffer", None)
    if out is None:
        for text in scheduler.log_text(app_id, query):
            lines = prefix + text.replace("\n", "\n" + prefix)
            with _printing:
                file.write(lines.removesuffix(prefix) if text.endswith("\n") else lines)
                file.flush()
        return
    # Bytes, in blocks of many lines and copied as little as possible: logs can be long.
    with _printing:
        file.flush()
    start = prefix.encode()
    for block in scheduler.log_bytes(app_id, query):
        lines_after = block.replace(b"\n", b"\n" + start)
        end = len(lines_after) - (len(start) if block.endswith(b"\n") else 0)
        with _printing:
            out.write(start)
            out.write(memoryview(lines_after)[:end])
            out.flush()


def _discard_from_now_on(file: TextIO) -> None:
    """Let what is still printed go nowhere: whoever read it, say ``head``, has seen enough."""
    with suppress(io.UnsupportedOperation), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), file.fileno())


def _prefix(file: TextIO, text: str) -> str:
    coloured = file.isatty() and not os.environ.get("NO_COLOR")
    return f"{GREEN}{text}{RESET}" if coloured else text


def _parse(identifier: str) -> tuple[str, str | None]:
    try:
        scheduler, session, rest = parse_app_handle(identifier)
    except ValueError as err:
        raise ConfigError(
            f"{identifier!r} is not a handle. They look like local_persistent://nemo_run/job-id."
        ) from err
    app_id, _, role = rest.partition("/")
    return f"{scheduler}://{session}/{app_id}", role or None


def _await_start(handle: str, runner: Runner, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        status = runner.status(handle)
        if status is None or is_started(status.state) or status.state is AppState.UNKNOWN:
            return
        time.sleep(0.05)
