"""The calls we make to a Kubernetes API server: pods, their logs, and commands in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nemo_run._backends.kubernetes.exec import PROTOCOL, exec_query, talk
from nemo_run._backends.kubernetes.pods import Pod, Said
from nemo_run._transport.answers import Answer, expect
from nemo_run._transport.http import Http, Stream, Way, printable, retries
from nemo_run._transport.websocket import HandshakeError, WebSocket
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
)

_NO_LOG_YET = (
    "waiting to start",
    "ContainerCreating",
    "PodInitializing",
    "previous terminated container",
)
"""What Kubernetes says of a container that is still being made, or was not made before."""


class NotStartedError(BackendError):
    """A container has no log yet, since it does not run yet."""


class Kube:
    """One namespace of a cluster. Safe to use from several threads, and after a fork."""

    def __init__(self, http: Http, namespace: str) -> None:
        self.http = http
        self.namespace = namespace

    def path(self, resource: str, name: str = "", *, below: str = "", group: str = "") -> str:
        """Return where something of the namespace is."""
        start = f"/apis/{group}" if group else "/api/v1"
        parts = [start, "namespaces", self.namespace, resource, *filter(None, (name, below))]
        return "/".join([parts[0], *(quote(part, safe="") for part in parts[1:])])

    def pod(self, name: str) -> Pod:
        """Return how a pod is.

        Raises:
            JobNotFoundError: it is gone.
        """
        return self.http.ask("GET", self.path("pods", name), lambda a: _pod_called(name, a))

    def pods(self, selector: str) -> list[Pod]:
        """Return the pods with these labels, the oldest first."""

        def read(answer: Answer) -> list[Pod]:
            return [Pod.read(item) for item in answer.items("items", required=True)]

        found = self.http.ask("GET", self.path("pods"), read, query={"labelSelector": selector})
        return sorted(found, key=lambda pod: pod.created_at)

    def create_pod(self, body: Mapping[str, Any]) -> None:
        """Create a pod.

        Raises:
            Conflict: there is one of that name.
        """
        name = body["metadata"]["name"]
        self.http.ask("POST", self.path("pods"), lambda a: _pod_called(name, a), body=body)

    def delete_pod(self, name: str, *, grace_s: int) -> None:
        """Remove a pod; removing what is gone is fine."""
        query = {"gracePeriodSeconds": str(grace_s)}
        self.delete(self.path("pods", name), query=query)

    def delete(self, path: str, *, query: Mapping[str, str] | None = None) -> None:
        """Remove something; removing what is gone is fine."""
        try:
            self.http.do("DELETE", path, query=query)
        except JobNotFoundError:
            return

    def events(self, name: str) -> list[str]:
        """Return what the cluster said of an object, the latest last."""

        def read(answer: Answer) -> list[str]:
            return [str(Said.read(item)) for item in answer.items("items", required=True)]

        query = {"fieldSelector": f"involvedObject.name={name}"}
        return self.http.ask("GET", self.path("events"), read, query=query)

    def log(
        self,
        name: str,
        container: str,
        *,
        follow: bool,
        since: str = "",
        tail_lines: int | None = None,
        previous: bool = False,
    ) -> Stream:
        """Return the log of a container as it comes, each line after its time and a blank.

        Whichever container it is by then, it is the log of one: not of one that is started later.
        With ``since``, a time, lines before that second are left out; with ``previous`` it is the
        log of the container before the present one.

        Raises:
            NotStartedError: the container is still being made, or there was none before.
            JobNotFoundError: the pod is gone.
            BackendUnavailableError: the stream was cut, or silent for a minute.
        """
        query = {"timestamps": "true", "follow": "true" if follow else "false"}
        query |= {"container": container} if container else {}
        query |= {"sinceTime": since} if since else {}
        query |= {} if tail_lines is None else {"tailLines": str(tail_lines)}
        query |= {"previous": "true"} if previous else {}
        waiting = retries(self.http.patience_s)
        while True:
            try:
                return self.http.stream(self.path("pods", name, below="log"), query=query)
            except BackendUnavailableError as err:
                waiting.tolerate(err)
            except BackendError as err:
                if not any(words in err.detail for words in _NO_LOG_YET):
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
        url = f"{self.path('pods', name, below='exec')}?{exec_query(container, argv)}"
        connection = self._connected(name, url)
        try:
            yield from talk(connection, stdin, backend=self.http.backend)
        except OSError as err:
            raise self._lost(name, str(err)) from err

    def _connected(self, pod: str, url: str) -> WebSocket:
        """Connect, again through an outage, and once more with another token after a 401."""
        refused: Way | None = None
        waiting = retries(self.http.patience_s)
        while True:
            way = self.http.way(refused)
            try:
                return WebSocket(
                    f"{way.url}{url}", protocol=PROTOCOL, headers=way.headers, route=way.route
                )
            except HandshakeError as err:
                if err.status == 401 and refused is None:
                    refused = way
                    continue
                refusal = self._refusal(pod, err)
                if not isinstance(refusal, BackendUnavailableError):
                    raise refusal from err
                waiting.tolerate(refusal)
            except OSError as err:
                waiting.tolerate(self._lost(pod, str(err)))

    def _refusal(self, pod: str, err: HandshakeError) -> BackendError:
        kinds = {401: AuthenticationError, 403: AuthenticationError, 404: JobNotFoundError}
        later = err.status < 400 or err.status == 429 or err.status >= 500
        kind = BackendUnavailableError if later else kinds.get(err.status, BackendError)
        said = f"{err.status} {printable(err.body)}"
        return kind(
            f"{self.http.server} does not run commands in pod {pod}: {said}",
            backend=self.http.backend,
            operation="exec",
            detail=said,
        )

    def _lost(self, pod: str, why: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"The connection to pod {pod} at {self.http.server} was lost: {why}",
            backend=self.http.backend,
            operation="exec",
            detail=why,
        )


def _pod_called(name: str, answer: Answer) -> Pod:
    pod = Pod.read(answer)
    expect("pod", name, pod.name)
    return pod
