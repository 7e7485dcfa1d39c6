"""The calls we make to a Kubernetes cluster, through the vendor's client.

Objects are plain JSON both ways, so that no release of the client leaves out what it does not know.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import quote

from nemo_run._clients import _k8s_exec
from nemo_run._clients._k8s_site import Site, connection, vendor
from nemo_run._clients.http import Conflict, attempts
from nemo_run._clients.kube import NotStartedError, exec_query, talk
from nemo_run._clients.websocket import HandshakeError, WebSocket
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    JobNotFoundError,
)

log = logging.getLogger(__name__)

BACKEND = "kubeflow"
GROUP, VERSION, TRAINJOBS = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
RUNTIMES = "clustertrainingruntimes"

_TIMEOUT_S = (10.0, 60.0)
_STREAM_TIMEOUT_S = (10.0, 120.0)
_CHUNK = 1 << 16
_SKEW_S = 120
"""By how much the clocks of this machine and of a node may differ."""
_BUSY = frozenset({0, 429, 500, 502, 503, 504})
_WAITING = ("waiting to start", "ContainerCreating", "PodInitializing")
_NO_SUCH_PREVIOUS = "previous terminated container"


class LogStream(Iterator[bytes]):
    """What comes of a log; to be closed, also if nothing of it was read."""

    def __init__(self, response: Any, lost: Callable[[Exception], BackendUnavailableError]) -> None:
        self._response = response
        self._blocks = response.stream(_CHUNK, decode_content=False)
        self._lost = lost

    def __next__(self) -> bytes:
        try:
            block: bytes = next(self._blocks)
        except _transport_errors() as err:
            raise self._lost(err) from err
        return block

    def close(self) -> None:
        self._response.close()
        self._response.release_conn()


class Cluster:
    """One namespace of a cluster. Safe to use from several threads, and after a fork."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.namespace = site.namespace

    # TrainJobs.

    def trainjob(self, name: str) -> dict[str, Any]:
        """Return a TrainJob.

        Raises:
            JobNotFoundError: there is none.
        """
        return self._trainjob("get_namespaced_custom_object", name)

    def create_trainjob(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a TrainJob.

        Raises:
            Conflict: there is one of that name.
        """
        return self._custom("create_namespaced_custom_object", self.namespace, TRAINJOBS, body)

    def delete_trainjob(self, name: str) -> None:
        """Remove a TrainJob; it is there until all that belongs to it is gone."""
        self._trainjob("delete_namespaced_custom_object", name, propagation_policy="Foreground")

    def _trainjob(self, verb: str, name: str, **options: Any) -> dict[str, Any]:
        try:
            return self._custom(verb, self.namespace, TRAINJOBS, name, **options)
        except JobNotFoundError as err:
            if self.is_served():
                raise
            # Kubeflow is being upgraded, or something is in the way: no word about the job.
            raise self._lost(f"{verb} {name}", f"{err.detail}: no TrainJobs are known") from err

    def runtime(self, name: str) -> dict[str, Any]:
        return self._custom("get_cluster_custom_object", RUNTIMES, name)

    def is_served(self) -> bool:
        """Tell whether the cluster knows what a TrainJob is."""
        try:
            found = self._custom("get_api_resources")
        except JobNotFoundError:
            return False
        return any(item["name"] == TRAINJOBS for item in found["resources"])

    def _custom(self, verb: str, *args: Any, **options: Any) -> dict[str, Any]:
        def call(client: Any, api: Any) -> Any:
            method = getattr(client.CustomObjectsApi(api), verb)
            return method(
                GROUP,
                VERSION,
                *args,
                _preload_content=False,
                _request_timeout=_TIMEOUT_S,
                **options,
            )

        return _json(self._ask(f"{verb} {_subject(args)}", call))

    # What every cluster has.

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Return the pods with these labels, the oldest first."""
        found = self._core("list_namespaced_pod", self.namespace, label_selector=selector)
        return sorted(found["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def pod(self, name: str) -> dict[str, Any]:
        return self._core("read_namespaced_pod", name, self.namespace)

    def create_pod(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._core("create_namespaced_pod", self.namespace, body)

    def delete_pod(self, name: str, *, grace_s: int) -> None:
        """Remove a pod; removing what is gone is fine."""
        try:
            self._core("delete_namespaced_pod", name, self.namespace, grace_period_seconds=grace_s)
        except JobNotFoundError:
            return

    def secret(self, name: str) -> dict[str, Any]:
        return self._core("read_namespaced_secret", name, self.namespace)

    def create_secret(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._core("create_namespaced_secret", self.namespace, body)

    def patch_secret(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        return self._core("patch_namespaced_secret", name, self.namespace, changes)

    def delete_secret(self, name: str) -> None:
        """Remove a secret; removing what is gone is fine."""
        try:
            self._core("delete_namespaced_secret", name, self.namespace)
        except JobNotFoundError:
            return

    def claim(self, name: str) -> dict[str, Any]:
        return self._core("read_namespaced_persistent_volume_claim", name, self.namespace)

    def own_namespace(self) -> dict[str, Any]:
        return self._core("read_namespace", self.namespace)

    def events(self, name: str) -> list[str]:
        """Return what the cluster said of an object, the latest last."""
        selector = f"involvedObject.name={name}"
        found = self._core("list_namespaced_event", self.namespace, field_selector=selector)
        return [f"{item.get('reason')}: {item.get('message')}" for item in found["items"]]

    def allows(self, verb: str, resource: str, *, group: str = "", subresource: str = "") -> bool:
        """Tell whether we may do something in this namespace."""
        wanted = {
            "namespace": self.namespace,
            "verb": verb,
            "group": group,
            "resource": resource,
            **({"subresource": subresource} if subresource else {}),
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }

        def call(client: Any, api: Any) -> Any:
            return client.AuthorizationV1Api(api).create_self_subject_access_review(
                body, _preload_content=False, _request_timeout=_TIMEOUT_S
            )

        return bool(_json(self._ask(f"ask for {verb} {resource}", call))["status"].get("allowed"))

    def _core(self, verb: str, *args: Any, **options: Any) -> dict[str, Any]:
        def call(client: Any, api: Any) -> Any:
            method = getattr(client.CoreV1Api(api), verb)
            return method(*args, _preload_content=False, _request_timeout=_TIMEOUT_S, **options)

        return _json(self._ask(f"{verb} {_subject(args)}", call))

    # Streams.

    def log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool,
        since_ns: int = 0,
        tail_lines: int | None = None,
        previous: bool = False,
    ) -> LogStream:
        """Return the log of a container as it comes, each line after its time and a blank.

        Whichever container it is by then, it is the log of one: not of one that is started later.
        With ``since_ns``, of nanoseconds since the epoch, what is long before may be left out;
        with ``previous`` it is that of the container before the present one.

        Raises:
            NotStartedError: the container is still being made, or there was none before.
            JobNotFoundError: the pod is gone.
            BackendUnavailableError: the stream was cut, or silent for two minutes.
        """
        options: dict[str, Any] = {}
        if since_ns:
            options["since_seconds"] = max(1, int(time.time() - since_ns / 1e9) + _SKEW_S)
        if tail_lines is not None:
            options["tail_lines"] = tail_lines

        def call(client: Any, api: Any) -> Any:
            return client.CoreV1Api(api).read_namespaced_pod_log(
                pod,
                self.namespace,
                container=container,
                follow=follow,
                previous=previous,
                timestamps=True,
                _preload_content=False,
                _request_timeout=_STREAM_TIMEOUT_S,
                **options,
            )

        try:
            response = self._ask(f"the log of {pod}", call)
        except BackendError as err:
            if not any(word in err.detail for word in (*_WAITING, _NO_SUCH_PREVIOUS)):
                raise
            raise NotStartedError(
                str(err), backend=BACKEND, operation="logs", detail=err.detail
            ) from err
        return LogStream(response, lambda err: self._lost(f"the log of {pod}", str(err)))

    def run(
        self, pod: str, container: str, argv: Sequence[str], *, stdin: Iterable[bytes] = ()
    ) -> Iterator[bytes]:
        """Run a command in a container and yield its output; ``stdin`` is sent meanwhile.

        This protocol cannot say that the input has ended: the command must know.

        Raises:
            CommandError: it failed; says what it wrote to stderr.
            BackendUnavailableError: the connection was lost; it may have been run.
        """
        path = f"/api/v1/namespaces/{quote(self.namespace)}/pods/{quote(pod)}/exec"
        what = f"a command in pod {pod}"

        def call(client: Any, api: Any) -> WebSocket:
            return _k8s_exec.connect(api.configuration, f"{path}?{exec_query(container, argv)}")

        connection: WebSocket = self._ask(what, call)
        try:
            yield from talk(connection, stdin, backend=BACKEND, silence_s=_k8s_exec.SILENCE_S)
        except OSError as err:
            raise self._lost(what, str(err)) from err

    # Calls and what may come of them.

    def _ask(self, what: str, call: Callable[[Any, Any], Any]) -> Any:
        """Make a call, again through an outage, and once more with new credentials after a 401."""
        client = vendor("client")
        renewed = False
        for attempt in attempts(self.site.patience_s):
            try:
                return call(client, self._api(renewed))
            except (client.ApiException, HandshakeError) as err:
                refusal = self._refusal(what, err)
                if err.status == 401 and not renewed:
                    renewed = True
                    continue
                if not isinstance(refusal, BackendUnavailableError):
                    raise refusal from err
                attempt.failed(refusal)
            except _transport_errors() as err:
                attempt.failed(self._lost(what, str(err)))
        raise AssertionError("unreachable")

    def _api(self, renewed: bool) -> Any:
        try:
            return connection(self.site, renewed=renewed).api
        except ConfigError as err:
            # The way there was lost since it was written down, which says nothing about the job.
            raise BackendUnavailableError(str(err), backend=BACKEND, operation="connect") from err

    def _refusal(self, what: str, err: Any) -> BackendError:
        said, status = _said(err), err.status or 0
        if status in _BUSY:
            return self._lost(what, f"{status} {said}" if status else said)
        kinds = {
            401: AuthenticationError,
            403: AuthenticationError,
            404: JobNotFoundError,
            409: Conflict,
        }
        return kinds.get(status, BackendError)(
            f"The cluster at {self.site.server} did not do {what}: {status} {said}",
            backend=BACKEND,
            operation=what,
            detail=f"{status} {said}",
        )

    def _lost(self, what: str, why: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"The cluster at {self.site.server} did not do {what}: {why}",
            backend=BACKEND,
            operation=what,
            detail=why,
        )


def _subject(args: Sequence[Any]) -> str:
    """Return what a call is about, without what an object holds."""
    words = [
        str(arg.get("metadata", {}).get("name", "")) if isinstance(arg, Mapping) else arg
        for arg in args
    ]
    return " ".join(word for word in words if isinstance(word, str))


def _json(response: Any) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(response.data)
    finally:
        response.release_conn()
    return answer


def _said(err: Any) -> str:
    """Return the server's message, out of its JSON where that is what it sent."""
    body = err.body.decode("utf-8", "replace") if isinstance(err.body, bytes) else err.body
    try:
        return str(json.loads(body)["message"])[:1000]
    except (ValueError, TypeError, KeyError):
        return str(body or getattr(err, "reason", ""))[:1000]


def _transport_errors() -> tuple[type[Exception], ...]:
    return (OSError, import_module("urllib3.exceptions").HTTPError)
