"""Requests to SkyPilot's API server: launches, and the answers to everything else.

The server, a local one that the SDK starts by itself or a remote one, gives most requests an id at
once, and the answer when it is asked for by that.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from requests import HTTPError, ReadTimeout, RequestException

from nemo_run._backends.skypilot.sdk import (
    BACKEND,
    asking,
    is_about_server,
    is_unreadable,
    muted,
    sdk,
    value_of,
)
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConnectionLostError,
    SubmitError,
)

_T = TypeVar("_T")

_PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""Between questions to a server that is there and does not answer in time."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


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


def launch_managed(task: Any, name: str) -> str:
    """Ask for a managed job; return the request's id. Raises as `launch` does."""
    return _submit(lambda: sdk().jobs.launch(task, name=name), lambda: requests_naming(None, name))


def _submit(call: Callable[[], Any], find: Callable[[], list[SkyRequest]]) -> str:
    """Launch once: after an error that says nothing, the launch is looked for before all else."""
    for pause_s in (*_PAUSES_S, None):
        try:
            with asking("launch"), muted():
                return _given_id(call())
        except AuthenticationError:
            raise
        except BackendUnavailableError as err:
            if not _may_be_taken(err):
                raise
            found = _found_later(find)
            if found:
                return found[0].id
            # Only a server that was asked, and does not know it, may be sent it a second time.
            if found is None or pause_s is None or not is_about_server(err.__cause__):
                raise ConnectionLostError(
                    f"The SkyPilot API server may have taken the launch, and does not say: {err}",
                    backend=BACKEND,
                    operation="launch",
                ) from err
            time.sleep(pause_s)
        except BackendError as err:
            raise SubmitError(
                f"SkyPilot did not accept the task: {err.detail}",
                backend=BACKEND,
                operation="launch",
                detail=err.detail,
            ) from err
    raise AssertionError("the last try returns or raises")


def _given_id(answered: Any) -> str:
    if not isinstance(answered, str) or not answered:
        raise TypeError(f"the answer to a launch is {answered!r}, not the id of a request")
    return str(answered)


def _may_be_taken(err: BackendUnavailableError) -> bool:
    """Tell whether a request may have reached the API server, which has not refused it."""
    cause = err.__cause__
    if isinstance(cause, HTTPError):
        return cause.response is None or cause.response.status_code >= 500
    return isinstance(cause, RequestException) or is_about_server(cause) or is_unreadable(cause)


def _is_late(err: BackendUnavailableError) -> bool:
    """Tell whether the API server is there, and took longer than the SDK waits."""
    return isinstance(err.__cause__, ReadTimeout)


def _found_later(find: Callable[[], list[SkyRequest]]) -> list[SkyRequest] | None:
    """Look for a launch for a while; None where the server never said whether it has it."""
    found = None
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        try:
            found = find()
        except BackendUnavailableError:
            continue
        if found:
            break
    return found


def insisting(ask: Callable[[], _T]) -> _T:
    """Ask a busy server again where that does no harm."""
    for pause_s in _PAUSES_S:
        try:
            return ask()
        except BackendUnavailableError as err:
            if not _is_late(err):
                raise
        time.sleep(pause_s)
    return ask()


def is_interrupted(err: BackendError) -> bool:
    """Tell whether a request ended with the API server that it was sent to."""
    kind = getattr(sdk().exceptions, "RequestInterruptedError", ())
    return isinstance(err.__cause__, kind)


def answer(
    request_id: str, *, operation: str, read: Callable[[Any], _T] = lambda answered: answered
) -> _T:
    """Wait for a request and return what ``read`` makes of what it gives."""
    with asking(operation):
        return read(sdk().get(request_id))


def request(verb: str, **arguments: Any) -> str:
    """Ask the SDK for what gives a request; return its id."""
    with asking(verb):
        return str(getattr(sdk(), verb)(**arguments))


def find_request(request_id: str) -> SkyRequest | None:
    """Return how a request stands; None where the API server does not know.

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
        wanted = [
            payload
            for payload in sdk().api_status(all_status=True)
            if _is_launch(payload) and _is_of(cluster, payload) and name in payload.request_body
        ]
        return [_request(p) for p in sorted(wanted, key=lambda p: p.created_at, reverse=True)]


def cancel_request(request_id: str) -> None:
    """Stop a request that is still going on, such as a launch that waits for machines."""
    answer(
        insisting(lambda: request("api_cancel", request_ids=[request_id], silent=True)),
        operation="cancel a request",
    )


def optimized(task: Any) -> str:
    """Return where SkyPilot would run a task now, with the price; nothing is created.

    Raises:
        BackendError: it does not say.
    """
    with asking("plan"), muted():
        dag = sdk().Dag()
        dag.add(task)
        said = io.StringIO()
        asked = sdk().optimize(dag)
        # The API server ends the stream of a request that ends between its last look into the log
        # and its look at the state, without the lines of that moment: read it after the end.
        sdk().get(asked)
        sdk().stream_and_get(asked, output_stream=said)
        return _COLOURS.sub("", said.getvalue()).strip()


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
        interrupted=bool(value_of(payload, "should_retry")),
    )
