"""The calls we make to SkyPilot, through its public SDK.

The SDK talks to an API server, a local one that it starts by itself or a remote one. Most calls
give a request id at once, and the answer when it is asked for by that.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from requests import HTTPError, ReadTimeout, RequestException

from nemo_run._clients._skypilot_sdk import BACKEND, asking, is_about_server, muted, sdk
from nemo_run._clients._skypilot_streams import LogLine, in_time, lines, parse_line, written
from nemo_run._files import locked
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
    JobNotFoundError,
    SubmitError,
)

__all__ = ["BACKEND", "LogLine", "parse_line", "sdk"]

_T = TypeVar("_T")

_PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""Between questions to a server that is there and does not answer in time."""

_LOGS_LAG_S = 60.0
_LOGS_POLL_S = 2.0
_DOWNLOAD_TIMEOUT_S = 600.0

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class SkyJob:
    """A job in the queue of a cluster, or a managed one.

    ``status`` is a word of SkyPilot's ``JobStatus`` or ``ManagedJobStatus``.
    """

    id: int
    name: str
    status: str
    log_path: str = ""
    message: str = ""
    recoveries: int = 0
    started_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class SkyRequest:
    """A request to the API server; ``status`` is a word of its ``RequestStatus``.

    One that is ``interrupted`` ended with the server that it was sent to; another does not go on
    with it.
    """

    id: str
    status: str
    message: str = ""
    interrupted: bool = False

    @property
    def is_live(self) -> bool:
        return self.status in ("PENDING", "WAITING", "RUNNING")


# Requests.


def launch(
    task: Any,
    cluster: str,
    *,
    retry_until_up: bool,
    idle_minutes_to_autostop: int | None,
    down: bool,
    dryrun: bool = False,
) -> str:
    """Ask for a task on a cluster, which is made if there is none; return the request's id.

    Raises:
        SubmitError: SkyPilot did not take it.
        ConnectionLostError: it may have taken it, and does not say.
        BackendUnavailableError: the API server does not answer, and has not been asked.
    """
    return _submit(
        lambda: sdk().launch(
            task,
            cluster_name=cluster,
            retry_until_up=retry_until_up,
            idle_minutes_to_autostop=idle_minutes_to_autostop,
            down=down,
            dryrun=dryrun,
            # A fast launch on a cluster that is up leaves out the setup.
            fast=not task.setup,
        ),
        lambda: [] if dryrun else requests_naming(cluster, task.name),
    )


def forecast(task: Any, cluster: str | None = None) -> str:
    """Return what SkyPilot would do about a task now, with the price; nothing is created.

    An API server of this machine that is not running stays so.

    Raises:
        BackendError: it does not say.
    """
    with asking("plan"), muted():
        sdk().api_info()
        status = cluster_status(cluster) if cluster else None
        if status is not None:
            return f"Cluster {cluster} is there and {status}."
        dag = sdk().Dag()
        dag.add(task)
        said = io.StringIO()
        sdk().stream_and_get(sdk().optimize(dag), output_stream=said)
    return _COLOURS.sub("", said.getvalue()).strip()


def launch_managed(task: Any, name: str) -> str:
    """Ask for a managed job; return the request's id. Raises as `launch` does."""
    return _submit(lambda: sdk().jobs.launch(task, name=name), lambda: requests_naming(None, name))


def _submit(call: Callable[[], Any], find: Callable[[], list[SkyRequest]]) -> str:
    def launched() -> str:
        with asking("launch"), muted():
            return str(call())

    try:
        return _insisting(launched, _is_not_asked)
    except BackendUnavailableError as err:
        if not _may_be_taken(err):
            raise
        # Asked a second time the server would launch it twice.
        found = _found_later(find)
        if found is None:
            raise ConnectionLostError(
                f"The SkyPilot API server may have taken the launch, and does not say: {err}",
                backend=BACKEND,
                operation="launch",
            ) from err
        return found.id
    except AuthenticationError:
        raise
    except BackendError as err:
        raise SubmitError(
            f"SkyPilot did not accept the task: {err.detail}",
            backend=BACKEND,
            operation="launch",
            detail=err.detail,
        ) from err


def _may_be_taken(err: BackendUnavailableError) -> bool:
    """Tell whether a request may have reached the API server, which has not refused it."""
    cause = err.__cause__
    if isinstance(cause, HTTPError):
        return cause.response is None or cause.response.status_code >= 500
    return isinstance(cause, RequestException)


def _is_late(err: BackendUnavailableError) -> bool:
    """Tell whether the API server is there, and took longer than the SDK waits."""
    return isinstance(err.__cause__, ReadTimeout)


def _is_not_asked(err: BackendUnavailableError) -> bool:
    """Tell whether nothing was sent, since the SDK took an API server for one that is not there."""
    return is_about_server(err.__cause__)


def _found_later(find: Callable[[], list[SkyRequest]]) -> SkyRequest | None:
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        with contextlib.suppress(BackendUnavailableError):
            if found := find():
                return found[0]
    return None


def _insisting(
    ask: Callable[[], _T], again: Callable[[BackendUnavailableError], bool] = _is_late
) -> _T:
    """Ask a busy server again where that does no harm."""
    for pause_s in _PAUSES_S:
        try:
            return ask()
        except BackendUnavailableError as err:
            if not again(err):
                raise
        time.sleep(pause_s)
    return ask()


def is_interrupted(err: BackendError) -> bool:
    """Tell whether a request ended with the API server that it was sent to."""
    kind = getattr(sdk().exceptions, "RequestInterruptedError", ())
    return isinstance(err.__cause__, kind)


def answer(request_id: str, *, operation: str) -> Any:
    """Wait for a request and return what it gives."""
    with asking(operation):
        return sdk().get(request_id)


def find_request(request_id: str) -> SkyRequest | None:
    """Return how a request stands; None where nobody knows.

    The API server forgets requests a day after their end, and all of them when it is started. One
    on this machine may not be running; other calls start it.
    """
    with asking("ask for a request"):
        found = sdk().api_status(request_ids=[request_id])
    return _request(found[0]) if found else None


def live_launches(cluster: str) -> list[SkyRequest]:
    """Return the launches on a cluster that are going on."""
    with asking("list requests"):
        found = sdk().api_status()
    return [_request(p) for p in found if p.cluster_name == cluster and _is_launch(p)]


def requests_naming(cluster: str | None, name: str) -> list[SkyRequest]:
    """Return the launches of task ``name`` that the API server knows of, the latest first.

    On a cluster, or of managed jobs: the controller launches these on clusters of theirs.
    """
    with asking("list requests"):
        found = sdk().api_status(all_status=True)
    wanted = [
        payload
        for payload in found
        if _is_launch(payload) and _is_of(cluster, payload) and name in payload.request_body
    ]
    return [_request(p) for p in sorted(wanted, key=lambda p: p.created_at, reverse=True)]


def cancel_request(request_id: str) -> None:
    """Stop a request that is still going on, such as a launch that waits for machines."""
    answer(
        _insisting(lambda: _call("api_cancel", request_ids=[request_id], silent=True)),
        operation="cancel a request",
    )


def _is_launch(payload: Any) -> bool:
    return str(payload.name).endswith("launch")


def _is_of(cluster: str | None, payload: Any) -> bool:
    is_managed = str(payload.name).endswith("jobs.launch")
    return is_managed if cluster is None else payload.cluster_name in (None, cluster)


def _request(payload: Any) -> SkyRequest:
    return SkyRequest(
        id=payload.request_id,
        status=str(payload.status),
        message=payload.status_msg or "",
        interrupted=bool(_get(payload, "should_retry")),
    )


# Clusters and their jobs.


def cluster_status(cluster: str) -> str | None:
    """Return the word of ``ClusterStatus`` for a cluster, or None where there is no such."""
    records = answer(_call("status", cluster_names=[cluster]), operation="ask for the cluster")
    return str(_get(records[0], "status").value) if records else None


def jobs(cluster: str) -> list[SkyJob]:
    """Return the queue of a cluster.

    Raises:
        JobNotFoundError: there is no such cluster.
        BackendError: it is not up.
    """
    records = answer(_call("queue", cluster_name=cluster, all_users=True), operation="queue")
    return [
        SkyJob(
            id=_get(record, "job_id"),
            name=_get(record, "job_name"),
            status=_get(record, "status").value,
            log_path=_get(record, "log_path") or "",
            started_at=_get(record, "start_at"),
            ended_at=_get(record, "end_at"),
        )
        for record in records
    ]


def is_idle(cluster: str) -> bool:
    """Tell whether nothing runs on a cluster, nor is about to."""
    if live_launches(cluster):
        return False
    try:
        found = jobs(cluster)
    except JobNotFoundError:  # also where it did not come up
        return True
    return all(sdk().JobStatus(job.status).is_terminal() for job in found)


def cancel(cluster: str, job_id: int) -> None:
    """End a job of a cluster. Ending one that has ended is fine."""
    answer(_call("cancel", cluster_name=cluster, job_ids=[job_id]), operation="cancel")


def down(cluster: str) -> None:
    """Take a cluster down. One that is gone is fine."""
    with contextlib.suppress(JobNotFoundError):
        request = _insisting(lambda: _call("down", cluster_name=cluster))
        answer(request, operation="take down the cluster")


def tail(cluster: str, job_id: int, *, follow: bool) -> Iterator[LogLine]:
    """Yield the log of a job as SkyPilot streams it.

    SkyPilot takes a carriage return for the end of a line; `download` gives what was written.
    """
    with asking("read logs"):
        stream = sdk().tail_logs(cluster, job_id, follow=follow, preload_content=False)
    yield from lines(stream if follow else in_time(stream))


def download(cluster: str, job_id: int, directory: Path) -> None:
    """Copy the logs of a job into ``directory``, as they are on the cluster."""

    def fetch() -> str | None:
        with asking("download logs"), muted():
            path: str | None = sdk().download_logs(cluster, [str(job_id)]).get(str(job_id))
        return path

    keep(fetch, directory)


# Managed jobs.


def managed_jobs(job_ids: list[int] | None = None) -> list[SkyJob]:
    """Return managed jobs, all or some."""
    managed = sdk().jobs
    ask = getattr(managed, "queue_v2", None) or managed.queue
    with asking("queue"):
        answered = sdk().get(ask(refresh=True, all_users=True, job_ids=job_ids))
    records = answered[0] if isinstance(answered, tuple) else answered
    return [
        SkyJob(
            id=_get(record, "job_id"),
            name=_get(record, "job_name") or "",
            status=_get(record, "status").value,
            message=_get(record, "failure_reason") or _get(record, "details") or "",
            recoveries=_get(record, "recovery_count") or 0,
            started_at=_get(record, "start_at"),
            ended_at=_get(record, "end_at"),
        )
        for record in records
    ]


def managed_job_status() -> Any:
    """Return SkyPilot's enum of the states of managed jobs."""
    return sdk().jobs.ManagedJobStatus


def cancel_managed(job_id: int) -> None:
    """End a managed job. Ending one that has ended is fine."""
    with asking("cancel"):
        sdk().get(sdk().jobs.cancel(job_ids=[job_id]))


def tail_managed(job_id: int, *, follow: bool) -> Iterator[LogLine]:
    """Yield the log of a managed job; see `tail`."""
    call = functools.partial(sdk().jobs.tail_logs, job_id=job_id, follow=follow)
    with asking("read logs"):
        if "preload_content" in inspect.signature(sdk().jobs.tail_logs).parameters:
            stream = call(preload_content=False)
        else:
            stream = written(call)
    yield from lines(stream if follow else in_time(stream))


def download_managed(job_id: int, directory: Path, *, has_run: bool = False) -> None:
    """Copy the logs of a managed job into ``directory``.

    SkyPilot may say that a job has ended before it has its logs. Those of one that ``has_run``
    are waited for.
    """

    def fetch() -> str | None:
        deadline = time.monotonic() + (_LOGS_LAG_S if has_run else 0)
        while True:
            with asking("download logs"), muted():
                paths = sdk().jobs.download_logs(
                    name=None, job_id=job_id, refresh=False, controller=False
                )
            path = next(iter(paths.values()), None)
            if path is None or not is_without_logs(Path(path)) or time.monotonic() > deadline:
                return path
            time.sleep(_LOGS_POLL_S)

    keep(fetch, directory)


def is_without_logs(path: Path) -> bool:
    """Tell whether SkyPilot gave us, instead of a managed job's log, a line that there is none."""
    path = path.expanduser()
    log = path / "run.log" if path.is_dir() else path
    try:
        said = log.read_text(errors="replace")
    except FileNotFoundError:
        return True
    return "is already in terminal state" in said and not any(
        map(parse_line, said.splitlines(keepends=True))
    )


def server() -> str:
    """Return which API server answers, without starting one.

    Raises:
        BackendUnavailableError: none does.
    """
    with asking("look at the API server"), muted():
        info = sdk().api_info()
    return f"{_get(info, 'version')}, API version {_get(info, 'api_version')}"


def _call(verb: str, **arguments: Any) -> str:
    with asking(verb):
        return str(getattr(sdk(), verb)(**arguments))


def _get(record: Any, name: str) -> Any:
    """Read a record, which is a model in new versions and a dict in old ones."""
    return record.get(name) if isinstance(record, dict) else getattr(record, name, None)


def keep(fetch: Callable[[], str | None], directory: Path) -> None:
    """Copy what SkyPilot downloads, so that whoever looks sees all of it or nothing.

    One at a time, for SkyPilot unpacks the logs of a job where all of this machine do.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.with_name(f".{directory.name}.lock"), _DOWNLOAD_TIMEOUT_S):
        if not directory.is_dir() and (path := fetch()) is not None:
            _copy(Path(path).expanduser(), directory)


def _copy(source: Path, directory: Path) -> None:
    copy = directory.with_name(f".{directory.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            copy.mkdir()
            shutil.copy(source, copy)
        with contextlib.suppress(OSError):  # another was first
            copy.rename(directory)
    except OSError as err:
        raise BackendError(
            f"The logs could not be copied from {source}: {err}",
            backend=BACKEND,
            operation="download logs",
        ) from err
    finally:
        shutil.rmtree(copy, ignore_errors=True)
