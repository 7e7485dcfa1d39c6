"""Logs of jobs, printed as they come."""

from __future__ import annotations

import functools
import io
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from torchx.schedulers.api import Stream
from torchx.specs import AppState, parse_app_handle
from torchx.specs.api import MalformedAppHandleException, is_started

from nemo_run._jobs.shown_text import for_terminal, in_message
from nemo_run._transport.waiting import Waiting
from nemo_run.core.execution.base import LogSupportedExecutor
from nemo_run.exceptions import ConfigError, JobNotFoundError
from nemo_run.run.torchx_backend.schedulers.api import LogQuery, SchedulerMixin, line_filter

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
    """Print the logs of all replicas of a job; if there are several, each line with its own name.

    ``identifier`` is a handle, to which ``/role`` and ``/replica`` may be added. Waits up to
    ``wait_timeout`` seconds for the job to start.

    Raises:
        ConfigError: ``identifier`` is not a handle.
        JobNotFoundError: there is no such job or role.
    """
    from nemo_run.run.torchx_backend.runner import get_runner

    runner = runner or get_runner()
    print_job(file, identifier, runner, regex, should_tail, streams, wait_timeout)


def print_job(
    file: TextIO,
    identifier: str,
    runner: Runner,
    regex: str | None = None,
    should_tail: bool = False,
    streams: Stream | None = None,
    wait_timeout: float = 10,
    *,
    alone: bool = True,
) -> None:
    """Do what `get_logs` does; not ``alone``, other jobs are printed to the same file."""
    handle, wanted, number = _parse(identifier)
    _await_start(handle, runner, wait_timeout)
    app = runner.describe(handle)
    if app is None:
        raise JobNotFoundError(f"There is no job {handle}.", operation="logs")
    roles = [role for role in app.roles if wanted in (None, role.name)]
    if not roles:
        known = ", ".join(role.name for role in app.roles)
        raise JobNotFoundError(f"{handle} has no role {wanted!r}. It has: {known}.")

    queries = [
        LogQuery(role=role.name, replica=k, stream=streams or Stream.COMBINED, follow=should_tail)
        for role in roles
        for k in range(role.num_replicas)
        if number in (None, k)
    ]
    if not queries:
        counts = ", ".join(f"{role.name} has {role.num_replicas}" for role in roles)
        raise JobNotFoundError(f"{handle} has no replica {number}: {counts}, the first is 0.")
    named = not alone or len(queries) > 1
    _do_at_once(
        [
            functools.partial(_print_replica, file, runner, handle, query, regex, named=named)
            for query in queries
        ]
    )


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
    """Print the log of one replica of several, each line with the names of role and replica.

    What goes wrong is added to ``exceptions``.
    """
    query = LogQuery(
        role=role_name,
        replica=replica_id,
        stream=streams or Stream.COMBINED,
        follow=should_tail,
    )
    try:
        _print_replica(file, runner, app_handle, query, regex, log_path, named=True)
    except Exception as err:  # noqa: BLE001 - handed over to the thread that waits for us
        exceptions.append(err)


def _prints_itself(scheduler: SchedulerMixin[Any, Any]) -> bool:
    """Tell whether an executor prints logs because its scheduler does not read them."""
    reads = type(scheduler)._lines is not SchedulerMixin._lines
    return isinstance(scheduler.EXECUTOR, LogSupportedExecutor) and not reads


def follow_all(
    file: TextIO, handles: Sequence[str], runner: Runner, *, regex: str | None = None
) -> None:
    """Print the logs of several jobs at once, following them to their ends.

    Raises:
        ConfigError: ``regex`` is not a regular expression.
        JobNotFoundError: one of them is unknown; the others were printed all the same.
    """
    line_filter(regex)
    alone = len(handles) == 1
    _do_at_once(
        [
            functools.partial(print_job, file, handle, runner, regex, should_tail=True, alone=alone)
            for handle in handles
        ]
    )


def _do_at_once(actions: Sequence[Callable[[], None]]) -> None:
    """Do several things in threads that end with the process; raise the first error of all."""
    if len(actions) == 1:
        actions[0]()
        return
    errors: list[Exception] = []

    def do(action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as err:  # noqa: BLE001 - handed over to the thread that waits for us
            errors.append(err)

    threads = [threading.Thread(target=do, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors[1:]:
        log.error("%s", error)
    if errors:
        raise errors[0]


def _print_replica(
    file: TextIO,
    runner: Runner,
    handle: str,
    query: LogQuery,
    regex: str | None,
    log_path: str | None = None,
    *,
    named: bool,
) -> None:
    scheduler, app_id = runner.scheduler_of(handle)
    if _prints_itself(scheduler) and not regex:
        scheduler.EXECUTOR.logs(app_id, fallback_path=log_path)
        return
    prefix = _prefix(file, f"{query.role}/{query.replica} ") if named else ""
    try:
        if regex:
            _copy_matching(file, scheduler, app_id, query, prefix, regex)
        else:
            _copy(file, scheduler, app_id, query, prefix)
        file.flush()
    except BrokenPipeError:
        _discard_from_now_on(file)


def _copy_matching(
    file: TextIO, scheduler: Any, app_id: str, query: LogQuery, prefix: str, regex: str
) -> None:
    for line in scheduler.log_iter(
        app_id,
        query.role,
        query.replica,
        regex,
        should_tail=query.follow,
        streams=query.stream,
    ):
        with _printing:
            file.write(prefix + (for_terminal(line) if file.isatty() else line))


def _copy(file: TextIO, scheduler: Any, app_id: str, query: LogQuery, prefix: str) -> None:
    out = getattr(file, "buffer", None)
    if out is None or file.isatty():
        for text in scheduler.log_text(app_id, query):
            text = for_terminal(text) if file.isatty() else text
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
        lines = start + block.replace(b"\n", b"\n" + start) if start else block
        end = len(lines) - (len(start) if block.endswith(b"\n") else 0)
        with _printing:
            # In one piece: what the console prints does not ask for our lock.
            out.write(memoryview(lines)[:end])
            out.flush()


def _discard_from_now_on(file: TextIO) -> None:
    """Let what is still printed go nowhere: its reader, say ``head``, has gone."""
    with suppress(io.UnsupportedOperation), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), file.fileno())


def _prefix(file: TextIO, text: str) -> str:
    text = in_message(text) if file.isatty() else text
    coloured = file.isatty() and not os.environ.get("NO_COLOR")
    return f"{GREEN}{text}{RESET}" if coloured else text


def _parse(identifier: str) -> tuple[str, str | None, int | None]:
    """Return the handle, the role and the replica that are meant; None for all of them."""
    try:
        parse_app_handle(identifier)
    except MalformedAppHandleException as err:
        raise ConfigError(
            f"{identifier!r} is not a handle. They look like local_persistent://nemo_run/job-id."
        ) from err
    # torchx takes all but the last word for the session.
    scheduler, _, rest = identifier.partition("://")
    session, app_id, role, replica, *_ = [*rest.split("/"), "", "", ""]
    if replica and not replica.isdecimal():
        raise ConfigError(f"{identifier!r} ends with {replica!r}, which is not a replica's number.")
    return f"{scheduler}://{session}/{app_id}", role or None, int(replica) if replica else None


def _await_start(handle: str, runner: Runner, timeout_s: float) -> None:
    waiting = Waiting(0.05, 0.05, timeout_s=timeout_s)
    while not waiting.is_over:
        status = runner.status(handle)
        if status is None or is_started(status.state) or status.state is AppState.UNKNOWN:
            return
        waiting.pause()
