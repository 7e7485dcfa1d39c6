"""The emulated API server: what it has, and how it answers."""

from __future__ import annotations

import calendar
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.emulators.faults import Faults
from tests.emulators.http import Refused, Request, Response, Routes, Server
from tests.emulators.kubernetes import checks
from tests.emulators.kubernetes.operator import GROUP, Runtime, TrainJob
from tests.emulators.kubernetes.pods import Pace, Pod, rfc3339
from tests.emulators.kubernetes.ray import RayOperator
from tests.emulators.kubernetes.ray_api import RAY_ROUTES, is_for_ray
from tests.emulators.processes import PATH, Container, Line
from tests.emulators.runai import exec as pod_exec
from tests.emulators.service import Service, free_port

TOKEN = "emulator-token-9d20c4"
CONTEXT = "emulated"
_ROUTES = Routes()
_NAMESPACE = "/api/v1/namespaces/{namespace}"
_TRAINJOBS = f"/apis/{GROUP}/v1alpha1/namespaces/{{namespace}}/trainjobs"
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "AlreadyExists",
    422: "Invalid",
    503: "ServiceUnavailable",
}


def _status(code: int, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "InternalError"),
        "code": code,
    }


class KubernetesEmulator(Service):
    """A cluster on loopback, and ``directory`` for its volumes and its kubeconfig.

    ``hidden`` directories of this machine are empty for jobs; ``path`` is the ``PATH`` of jobs.
    ``denied`` are things that may not be done, such as ``create pods/exec``. Without ``kubeflow``
    the cluster does not know what a TrainJob is.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        pace: Pace | None = None,
        hidden: tuple[Path, ...] = (),
        path: str = "",
    ) -> None:
        super().__init__(directory)
        self.pace = pace or Pace()
        self.hidden = hidden
        self.path = path
        self.token = TOKEN
        self.kubeflow = True
        self.denied: set[str] = set()
        self.namespaces = {"default", "team-a"}
        self.claims = {"work"}
        self.runtimes = {"torch-distributed": Runtime()}
        self.trainjobs: dict[tuple[str, str], TrainJob] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        self.secrets: dict[tuple[str, str], dict[str, Any]] = {}
        self.created: list[TrainJob] = []
        self.movers: list[Pod] = []
        self.events: list[tuple[str, str, str]] = []
        self.ray = RayOperator(self)
        self._lock = threading.RLock()
        self.server = Server(self._answer, faults=Faults(), port=port, error_body=_status)
        self.kubeconfig = directory / "kubeconfig"
        self.write_kubeconfig()

    @property
    def url(self) -> str:
        return self.server.url

    def write_kubeconfig(self, *, token: str = TOKEN, server: str = "") -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": CONTEXT,
            "clusters": [{"name": "c", "cluster": {"server": server or self.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": "c", "user": "u"}}],
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(config))

    # What pods need.

    def claim_exists(self, claim: str) -> bool:
        return claim in self.claims

    def secret_data(self, name: str) -> Mapping[str, str] | None:
        for (_, known), body in list(self.secrets.items()):
            if known == name:
                data: Mapping[str, str] = body.get("data") or {}
                return data
        return None

    def programs(self, image: str) -> str:
        """Return the ``PATH`` of an image: that of a small one has what busybox has."""
        if not image.startswith(("alpine", "busybox")):
            return self.path or PATH
        return self.busybox()

    def tell(self, name: str, reason: str, message: str) -> None:
        self.events.append((name, reason, message))

    # What tests do to it.

    def advice(self) -> str:
        return (
            f"export KUBECONFIG={self.kubeconfig}\n"
            "# and in Python:\n"
            "executor = run.KubeflowExecutor(\n"
            "    image='any:1',\n"
            "    workdir_pvc='work',\n"
            "    workdir_pvc_path='/workspace',\n"
            ")"
        )

    def expire(self, name: str) -> None:
        """Remove a job that has ended, with its pods, as a time to live would."""
        for key in [key for key in self.trainjobs if key[1] == name]:
            self._forget(self.trainjobs[key])

    def close(self) -> None:
        """End every pod and stop answering."""
        self.server.stop()
        self.may_start.set()
        self.ray.close()
        for job in self.created:
            job.close()
        for pod in (*self.pods.values(), *self.movers):
            pod.kill()

    # What the controllers do.

    def make_pod(self, namespace: str, body: Mapping[str, Any], **told: Any) -> Pod:
        key = (namespace, body["metadata"]["name"])

        def gone(pod: Pod) -> None:
            with self._lock:
                self.pods.pop(key, None)
            pod.gone = True

        with self._lock:
            if key in self.pods:
                raise Refused(409, f'pods "{key[1]}" already exists')
            pod = self.pods[key] = Pod(body, self, on_gone=gone, **told)
        return pod

    def _forget(self, job: TrainJob) -> None:
        with self._lock:
            self.trainjobs.pop((job.namespace, job.name), None)
            for pod in job.present:
                pod.kill()
                self.pods.pop((job.namespace, pod.name), None)
        self.forget_owned(job.uid)

    def forget_owned(self, uid: str) -> None:
        """Delete what belongs to an object: it goes with it."""
        with self._lock:
            for key, body in list(self.secrets.items()):
                owners = body["metadata"].get("ownerReferences") or ()
                if any(owner["uid"] == uid for owner in owners):
                    del self.secrets[key]

    # Answers.

    def _answer(self, request: Request) -> Any:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise Refused(401, "Unauthorized")
        routes = RAY_ROUTES if is_for_ray(request.path) else _ROUTES
        handler, arguments = routes.find(request.method, request.path)
        self._authorize(request, arguments)
        if request.path.startswith(f"/apis/{GROUP}") and not self.kubeflow:
            return Response(b"404 page not found\n", status=404)
        return handler(self, request, **arguments)

    def _authorize(self, request: Request, arguments: Mapping[str, str]) -> None:
        verb = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
        parts = request.path.split("/")
        if "namespaces" not in parts:
            wanted = f"{verb[request.method]} {parts[4]}" if len(parts) > 4 else ""
        else:
            rest = parts[parts.index("namespaces") + 2 :]
            resource = rest[0] if rest else "namespaces"
            below = f"/{rest[2]}" if len(rest) > 2 else ""
            # A command is asked for by a GET, and is something that is made.
            word = "create" if below == "/exec" else verb[request.method]
            word = "list" if word == "get" and len(rest) == 1 else word
            wanted = f"{word} {resource}{below}"
        if wanted in self.denied:
            raise Refused(403, f'User "u" cannot {wanted} in the namespace')


def _found(table: Mapping[tuple[str, str], Any], kind: str, namespace: str, name: str) -> Any:
    found = table.get((namespace, name))
    if found is None:
        raise Refused(404, f'{kind} "{name}" not found')
    return found


@_ROUTES.on("GET", f"/apis/{GROUP}/v1alpha1")
def _resources(emulator: KubernetesEmulator, request: Request) -> Any:
    names = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
    items = [
        {"name": n, "singularName": "", "namespaced": True, "kind": "", "verbs": []} for n in names
    ]
    return {"kind": "APIResourceList", "groupVersion": f"{GROUP}/v1alpha1", "resources": items}


@_ROUTES.on("GET", f"/apis/{GROUP}/v1alpha1/clustertrainingruntimes/{{name}}")
def _runtime(emulator: KubernetesEmulator, request: Request, name: str) -> Any:
    if name not in emulator.runtimes:
        raise Refused(404, f'clustertrainingruntimes.trainer.kubeflow.org "{name}" not found')
    return emulator.runtimes[name].to_json()


@_ROUTES.on("POST", _TRAINJOBS)
def _create(emulator: KubernetesEmulator, request: Request, namespace: str) -> Any:
    body = request.json
    checks.trainjob(body)
    if namespace not in emulator.namespaces:
        raise Refused(404, f'namespaces "{namespace}" not found')
    name = body["metadata"]["name"]
    runtime = emulator.runtimes.get(body["spec"]["runtimeRef"]["name"])
    if runtime is None:
        raise Refused(422, f'TrainJob "{name}" is invalid: spec.runtimeRef: not found')
    with emulator._lock:
        if (namespace, name) in emulator.trainjobs:
            raise Refused(409, f'trainjobs.trainer.kubeflow.org "{name}" already exists')
        job = TrainJob(
            body,
            runtime,
            creating_s=emulator.pace.creating,
            port=free_port(),
            make_pod=lambda pod, env, hosts: emulator.make_pod(
                namespace, pod, env=env, hosts=hosts
            ),
            on_gone=emulator._forget,
        )
        emulator.trainjobs[namespace, name] = job
        emulator.created.append(job)
    return Response(job.to_json(), status=201)


@_ROUTES.on("GET", f"{_TRAINJOBS}/{{name}}")
def _get(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    return _found(emulator.trainjobs, "trainjobs", namespace, name).to_json()


@_ROUTES.on("DELETE", f"{_TRAINJOBS}/{{name}}")
def _delete(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    _found(emulator.trainjobs, "trainjobs", namespace, name).delete()
    return {"kind": "Status", "status": "Success"}


@_ROUTES.on("GET", _NAMESPACE)
def _namespace(emulator: KubernetesEmulator, request: Request, namespace: str) -> Any:
    if namespace not in emulator.namespaces:
        raise Refused(404, f'namespaces "{namespace}" not found')
    return {"kind": "Namespace", "metadata": {"name": namespace}, "status": {"phase": "Active"}}


@_ROUTES.on("GET", f"{_NAMESPACE}/persistentvolumeclaims/{{name}}")
def _claim(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    if name not in emulator.claims:
        raise Refused(404, f'persistentvolumeclaims "{name}" not found')
    return {"metadata": {"name": name}, "status": {"phase": "Bound"}}


@_ROUTES.on("GET", f"{_NAMESPACE}/events")
def _events(emulator: KubernetesEmulator, request: Request, namespace: str) -> Any:
    wanted = request.query.get("fieldSelector", "").partition("=")[2]
    items = [
        {"reason": reason, "message": message, "involvedObject": {"name": name}}
        for name, reason, message in emulator.events
        if wanted in ("", name)
    ]
    return {"kind": "EventList", "items": items}


@_ROUTES.on("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
def _review(emulator: KubernetesEmulator, request: Request) -> Any:
    asked = request.json["spec"]["resourceAttributes"]
    below = f"/{asked['subresource']}" if asked.get("subresource") else ""
    wanted = f"{asked['verb']} {asked['resource']}{below}"
    allowed = {"allowed": wanted not in emulator.denied}
    return Response({**request.json, "status": allowed}, status=201)


@_ROUTES.on("POST", f"{_NAMESPACE}/secrets")
def _new_secret(emulator: KubernetesEmulator, request: Request, namespace: str) -> Any:
    body = request.json
    checks.secret(body)
    if namespace not in emulator.namespaces:
        raise Refused(404, f'namespaces "{namespace}" not found')
    with emulator._lock:
        key = (namespace, body["metadata"]["name"])
        if key in emulator.secrets:
            raise Refused(409, f'secrets "{key[1]}" already exists')
        emulator.secrets[key] = body
    return Response(body, status=201)


@_ROUTES.on("GET", f"{_NAMESPACE}/secrets/{{name}}")
def _secret(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    return _found(emulator.secrets, "secrets", namespace, name)


@_ROUTES.on("PATCH", f"{_NAMESPACE}/secrets/{{name}}")
def _patch_secret(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    body = _found(emulator.secrets, "secrets", namespace, name)
    body["metadata"] |= request.json["metadata"]
    return body


@_ROUTES.on("DELETE", f"{_NAMESPACE}/secrets/{{name}}")
def _delete_secret(
    emulator: KubernetesEmulator, request: Request, namespace: str, name: str
) -> Any:
    _found(emulator.secrets, "secrets", namespace, name)
    del emulator.secrets[namespace, name]
    return {"kind": "Status", "status": "Success"}


@_ROUTES.on("GET", f"{_NAMESPACE}/pods")
def _pods(emulator: KubernetesEmulator, request: Request, namespace: str) -> Any:
    selector = request.query.get("labelSelector", "")
    with emulator._lock:
        pods = [
            pod
            for (where, _), pod in emulator.pods.items()
            if where == namespace and checks.matches(pod.labels, selector)
        ]
    return {"kind": "PodList", "items": [pod.to_json() for pod in pods]}


@_ROUTES.on("POST", f"{_NAMESPACE}/pods")
def _new_pod(emulator: KubernetesEmulator, request: Request, namespace: str) -> Any:
    checks.metadata(request.json, "Pod", longest=63)
    if namespace not in emulator.namespaces:
        raise Refused(404, f'namespaces "{namespace}" not found')
    pod = emulator.make_pod(namespace, request.json)
    emulator.movers.append(pod)
    return Response(pod.to_json(), status=201)


@_ROUTES.on("GET", f"{_NAMESPACE}/pods/{{name}}")
def _pod(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    return _found(emulator.pods, "pods", namespace, name).to_json()


@_ROUTES.on("DELETE", f"{_NAMESPACE}/pods/{{name}}")
def _delete_pod(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    pod = _found(emulator.pods, "pods", namespace, name)
    grace = request.query.get("gracePeriodSeconds")
    if grace is None and request.body:
        grace = (request.json or {}).get("gracePeriodSeconds")
    pod.delete(None if grace is None else float(grace))
    return pod.to_json()


@_ROUTES.on("GET", f"{_NAMESPACE}/pods/{{name}}/log")
def _log(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    pod = _found(emulator.pods, "pods", namespace, name)
    container = _container(pod, request)
    since = _since(request)
    tail = request.query.get("tailLines")
    shown = _stamped if request.query.get("timestamps", "").lower() == "true" else _plain
    if request.query.get("follow", "").lower() != "true":
        there = container.log.seen(emulator.log_lag_s)
        lines = [shown(line) for line in there if line.time >= since]
        return Response(iter(lines[-int(tail) :] if tail else lines))
    coming = container.log.follow(lag_s=emulator.log_lag_s)
    return Response(shown(line) for line in coming if line.time >= since)


def _container(pod: Pod, request: Request) -> Container:
    wanted = pod.spec["containers"][0]["name"]
    if request.query.get("container") != wanted:
        raise Refused(
            400, f"container {request.query.get('container')} is not valid for {pod.name}"
        )
    if not pod.containers:
        raise Refused(
            400, f'container "{wanted}" in pod "{pod.name}" is waiting to start: {pod.waiting}'
        )
    if request.query.get("previous", "").lower() != "true":
        return pod.containers[-1]
    # Between two starts, the one before is the last there was.
    ended = [c for c in pod.containers if not c.running]
    between = not pod.containers[-1].running and pod.phase == "Running"
    if not ended or (len(pod.containers) == 1 and not between):
        raise Refused(
            400, f'previous terminated container "{wanted}" in pod "{pod.name}" not found'
        )
    return ended[-1] if between or pod.containers[-1].running else pod.containers[-2]


def _since(request: Request) -> float:
    if seconds := request.query.get("sinceSeconds"):
        return time.time() - int(seconds)
    if moment := request.query.get("sinceTime"):
        parsed = time.strptime(moment[:19] + "UTC", "%Y-%m-%dT%H:%M:%S%Z")
        return float(calendar.timegm(parsed))
    return 0.0


def _plain(line: Line) -> bytes:
    return line.data


def _stamped(line: Line) -> bytes:
    whole, rest = divmod(line.time_ns, 10**9)
    return f"{rfc3339(whole)[:-1]}.{rest:09d}Z ".encode() + line.data


@_ROUTES.on("GET", f"{_NAMESPACE}/pods/{{name}}/exec")
def _exec(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    pod = _found(emulator.pods, "pods", namespace, name)
    container = pod.container
    if container is None or not container.running:
        raise Refused(500, "container not found")
    if request.query.get("container") != pod.spec["containers"][0]["name"]:
        raise Refused(400, f"container {request.query.get('container')} is not valid")
    pairs = parse_qsl(request.query_string, keep_blank_values=True)
    return pod_exec.answer(request, container, [v for key, v in pairs if key == "command"])
