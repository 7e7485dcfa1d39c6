"""The calls we make to a Kubernetes API server: pods, their logs, and commands in them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from nemo_run._clients.http import Http, bearer
from nemo_run._clients.websocket import HandshakeError, WebSocket
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
)

PROTOCOL = "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
_CHUNK = 1 << 16
_WAITING = "waiting to start"
"""What Kubernetes says of a container that is still being made."""
_SILENCE_S = 120.0
_PING_S = 20.0


@dataclass(frozen=True, kw_only=True)
class PodState:
    """How a pod is.

    Attributes:
        phase: Kubernetes' word: Pending, Running, Succeeded, Failed or Unknown.
        exit_code: of its container that failed, else of its first; None where none has ended.
        reason: why a container ended or does not start, such as ``OOMKilled``.
    """

    phase: str
    exit_code: int | None
    reason: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PodState:
        status = data.get("status") or {}
        states = [item.get("state") or {} for item in status.get("containerStatuses") or ()]
        ended = [state["terminated"] for state in states if state.get("terminated")]
        codes = [int(end["exitCode"]) for end in ended]
        waiting = [state["waiting"] for state in states if state.get("waiting")]
        reasons = [str(item.get("reason") or "") for item in (*ended, *waiting)]
        return cls(
            phase=str(status.get("phase") or "Unknown"),
            exit_code=next((code for code in codes if code), codes[0] if codes else None),
            reason=next(filter(None, reasons), ""),
        )


class NotStartedError(BackendError):
    """A container has no log yet, since it does not run yet."""


class CommandError(BackendError):
    """A command in a pod failed; ``detail`` is what it said."""


class Kube:
    """One namespace of a cluster."""

    def __init__(
        self,
        url: str,
        namespace: str,
        *,
        backend: str,
        token: Callable[[str | None], str],
        patience_s: float = 5.0,
    ) -> None:
        self._http = Http(url, backend=backend, token=token, patience_s=patience_s)
        self._token = token
        self._pods = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"

    def pod(self, name: str) -> PodState:
        """Return how a pod is.

        Raises:
            JobNotFoundError: it is gone.
        """
        return PodState.from_json(self._http.json("GET", self._path(name)))

    def delete(self, name: str, *, grace_s: int) -> None:
        """Remove a pod; removing what is gone is fine."""
        try:
            self._http.json("DELETE", self._path(name), query={"gracePeriodSeconds": str(grace_s)})
        except JobNotFoundError:
            return

    def log(
        self,
        name: str,
        container: str,
        *,
        follow: bool,
        since: str = "",
        tail_lines: int | None = None,
    ) -> Iterator[bytes]:
        """Yield the log of a container as it comes, each line after its time and a blank.

        Raises:
            NotStartedError: the container is still being made.
            JobNotFoundError: the pod is gone.
            BackendUnavailableError: the stream was cut, or silent for a minute.
        """
        query = {"timestamps": "true", "follow": "true" if follow else "false"}
        if container:
            query["container"] = container
        if since:
            query["sinceTime"] = since
        if tail_lines is not None:
            query["tailLines"] = str(tail_lines)
        try:
            yield from self._http.stream(f"{self._path(name)}/log", query=query)
        except BackendError as err:
            if _WAITING not in err.detail:
                raise
            raise NotStartedError(
                str(err), backend=err.backend, operation="logs", detail=err.detail
            ) from err

    def run(
        self, name: str, container: str, argv: Sequence[str], *, stdin: Iterable[bytes] = ()
    ) -> Iterator[bytes]:
        """Run a command in a container and yield its output; ``stdin`` is sent meanwhile.

        This protocol cannot say that the input has ended: the command must know.

        Raises:
            CommandError: it failed; says what it wrote to stderr.
            BackendUnavailableError: the connection was lost; it may have been run.
        """
        connection = self._connect(name, container, argv)
        try:
            yield from talk(connection, stdin, backend=self._http.backend)
        except OSError as err:
            raise self._lost(name, str(err)) from err

    def _connect(self, name: str, container: str, argv: Sequence[str]) -> WebSocket:
        url = f"{self._http.url}{self._path(name)}/exec?{exec_query(container, argv)}"
        refused: str | None = None
        while True:
            token = self._token(refused)
            try:
                return WebSocket(
                    url, protocol=PROTOCOL, headers=bearer(token), timeout_s=_SILENCE_S
                )
            except HandshakeError as err:
                if err.status == 401 and refused is None:
                    refused = token
                    continue
                raise self._refusal(name, err) from err
            except OSError as err:
                raise self._lost(name, str(err)) from err

    def _refusal(self, pod: str, err: HandshakeError) -> BackendError:
        kinds = {401: AuthenticationError, 403: AuthenticationError, 404: JobNotFoundError}
        kind = BackendUnavailableError if err.status >= 500 or err.status == 429 else None
        return (kind or kinds.get(err.status, BackendError))(
            f"{self._http.url} does not run commands in pod {pod}: {err}",
            backend=self._http.backend,
            operation="exec",
            detail=str(err),
        )

    def _lost(self, pod: str, why: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"The connection to pod {pod} at {self._http.url} was lost: {why}",
            backend=self._http.backend,
            operation="exec",
            detail=why,
        )

    def _path(self, name: str) -> str:
        return f"{self._pods}/{quote(name, safe='')}"


def exec_query(container: str, argv: Sequence[str]) -> str:
    """Return the query that asks for a command in a container."""
    options = [("stdin", "true"), ("stdout", "true"), ("stderr", "true"), ("tty", "false")]
    if container:
        options.append(("container", container))
    return urlencode([*(("command", word) for word in argv), *options], quote_via=quote)


def talk(
    connection: WebSocket,
    stdin: Iterable[bytes],
    *,
    backend: str,
    silence_s: float = _SILENCE_S,
) -> Iterator[bytes]:
    """Yield the output of the command behind a connection; ``stdin`` is sent meanwhile.

    Raises:
        CommandError: it failed; says what it wrote to stderr.
        OSError: the connection was lost, or the command silent for too long.
    """
    sender = threading.Thread(target=_send, args=(connection, stdin), daemon=True)
    sender.start()
    errors = b""
    try:
        while (message := _next_message(connection, sender, silence_s)) is not None:
            channel, data = message[0], message[1:]
            if channel == _STDOUT and data:
                yield data
            elif channel == _STDERR:
                errors = (errors + data)[-4000:]
            elif channel == _STATUS:
                _check(data, errors, backend)
                return
    finally:
        connection.close()
        # Nobody reads ``stdin`` any more when the caller goes on.
        sender.join()
    raise ConnectionError("no status came")


def _check(status: bytes, errors: bytes, backend: str) -> None:
    answer = json.loads(status)
    if answer.get("status") == "Success":
        return
    said = errors.decode("utf-8", "replace").strip() or str(answer.get("message"))
    raise CommandError(
        f"A command in a pod failed: {said}", backend=backend, operation="exec", detail=said
    )


def _next_message(
    connection: WebSocket, sender: threading.Thread, silence_s: float
) -> bytes | None:
    began = time.monotonic()
    while True:
        if connection.wait(_PING_S):
            message = connection.receive()
            if message != b"":
                return message
        else:
            connection.ping()
        # A command that reads may say nothing for as long as we send.
        if time.monotonic() - began > silence_s and not sender.is_alive():
            raise TimeoutError(f"nothing came for {silence_s:.0f} s")


def _send(connection: WebSocket, stdin: Iterable[bytes]) -> None:
    try:
        for block in stdin:
            for start in range(0, len(block), _CHUNK):
                connection.send(bytes([_STDIN]) + block[start : start + _CHUNK])
    except OSError:
        return  # whoever reads the answer finds out why
