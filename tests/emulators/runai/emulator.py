"""The emulated control plane and cluster: what they have, and how they answer."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.emulators.faults import Faults
from tests.emulators.http import Refused, Request, Response, Routes, Server
from tests.emulators.processes import TERMINATION_LOG, ContainerSpec
from tests.emulators.runai import kubernetes
from tests.emulators.runai.workloads import Pace, Pod, Workload
from tests.emulators.service import Service, free_port

CLIENT_ID = "emulator-client"
CLIENT_SECRET = "emulator-client-secret-51f0"
CLUSTER_ID = "71f69d83-ba66-4822-adf5-55ce55efd210"
PROJECTS = {"team-a": "28", "team-b": "29"}

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_MAX_NAME = 50
_MANDATORY = {
    "trainings": ("command", "image", "storage"),
    "workspaces": ("command", "image", "storage"),
    "distributed": ("command", "image", "storage", "distributedFramework", "numWorkers"),
}
_GRANTS = {
    "client_credentials": ("clientid", "clientsecret"),
    "app_token": ("appid", "appsecret"),  # what the vendor's own client still asks for
}
_ROUTES = Routes()


class RunaiEmulator(Service):
    """A control plane with a cluster on loopback, and ``directory`` for its volumes.

    ``hidden`` directories of this machine are empty for jobs; ``path`` comes first in the ``PATH``
    of jobs. While `held`, workloads stay pending. With ``old``, suspending is a GET, as it was.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        pace: Pace | None = None,
        hidden: tuple[Path, ...] = (),
        path: str = "",
        token_s: float = 300.0,
        old: bool = False,
    ) -> None:
        super().__init__(directory)
        self.pace = pace or Pace()
        self.hidden = hidden
        self.path = path
        self.token_s = token_s
        self.old = old
        self.tokens: dict[str, float] = {}
        self.workloads: dict[str, Workload] = {}
        self.phases: dict[str, str] = {}
        self._streams: set[threading.Event] = set()
        self._lock = threading.Lock()
        self.server = Server(self._answer, faults=Faults(), port=port)

    @property
    def base_url(self) -> str:
        return f"{self.server.url}/api/v1"

    @property
    def kube_url(self) -> str:
        return self.server.url

    def advice(self) -> str:
        return (
            f"export RUNAI_SECRET={CLIENT_SECRET}\n"
            "# and in Python:\n"
            "executor = run.DGXCloudExecutor(\n"
            f"    base_url={self.base_url!r},\n"
            f"    kube_apiserver_url={self.kube_url!r},\n"
            f"    client_id={CLIENT_ID!r},\n"
            "    client_secret='env:RUNAI_SECRET',\n"
            "    project_name='team-a',\n"
            "    container_image='any:1',\n"
            "    pvcs=[{'name': 'work', 'path': '/workspace', 'existingPvc': True, "
            "'claimName': 'work'}],\n"
            "    pvc_nemo_run_dir='/workspace/nemo_run',\n"
            ")"
        )

    def say_phase(self, workload_id: str, phase: str) -> None:
        """Answer with ``phase`` for a workload from now on."""
        self.phases[workload_id] = phase

    def expire_tokens(self) -> None:
        """Refuse every token given so far, and cut the streams they opened."""
        self.tokens.clear()
        with self._lock:
            for stream in self._streams:
                stream.set()

    def jobs(self) -> list[Workload]:
        """Return the workloads that are jobs, in the order of their creation."""
        return [w for w in self.workloads.values() if w.kind != "workspaces"]

    def close(self) -> None:
        """End every workload and stop answering."""
        self.server.stop()
        self.may_start.set()
        for workload in list(self.workloads.values()):
            workload.close()

    def container(self, workload: Workload, pod: Pod, rank: int) -> ContainerSpec:
        """Return what a pod runs."""
        spec = workload.spec
        env = {"HOSTNAME": pod.name, "RUNAI_JOB_NAME": workload.name}
        for variable in spec.get("environmentVariables", ()):
            env[variable["name"]] = _expanded(variable["value"], env)
        files = {TERMINATION_LOG: ""}
        if workload.kind == "distributed":
            peers = [f"{workload.name}-worker-{k}" for k in range(workload.replicas)]
            names = ["localhost", socket.gethostname(), *peers]
            files["/etc/hosts"] = "".join(f"127.0.0.1 {name}\n" for name in names)
            # What Kubeflow's operator tells the workers of an elastic job.
            env |= {
                "PET_RDZV_BACKEND": "c10d",
                "PET_RDZV_ENDPOINT": f"{peers[0]}:{workload.port}",
                "PET_NNODES": f"{spec['minReplicas']}:{spec['maxReplicas']}",
                # Their host names would resolve; here they are all this machine.
                "PET_LOCAL_ADDR": "127.0.0.1",
            }
        if spec["image"].startswith("busybox"):
            env["PATH"] = self.busybox()
        elif self.path:
            env["PATH"] = self.path
        return ContainerSpec(
            argv=workload.argv,
            env=env,
            mounts={
                pvc["path"]: self.volume(_claim(pvc)) for pvc in spec.get("storage", {})["pvc"]
            },
            files=files,
            hidden=tuple(path for path in self.hidden if path.is_dir()),
        )

    # Answers.

    def _answer(self, request: Request) -> Any:
        if request.path != "/api/v1/token":
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if self.tokens.get(token, 0) < time.time():
                raise Refused(401, "Unauthorized: the token is not valid or has expired")
        routes = kubernetes.ROUTES if "/namespaces/" in request.path else _ROUTES
        handler, arguments = routes.find(request.method, request.path)
        return handler(self, request, **arguments)

    def find(self, kind: str, id: str) -> Workload:
        workload = self.workloads.get(id)
        if workload is None or workload.deleted_at or kind not in ("", workload.kind):
            raise Refused(404, f"workload {id} not found")
        return workload

    def shown(self, workload: Workload) -> dict[str, Any]:
        phase = self.phases.get(workload.id, workload.phase)
        return {**workload.to_json(), "actualPhase": phase}

    def listed(self, workload: Workload) -> dict[str, Any]:
        phase = self.phases.get(workload.id, workload.phase)
        return {**workload.to_list_item(), "phase": phase}

    def create(self, kind: str, body: Any) -> Workload:
        spec = body.get("spec") or {}
        if missing := [key for key in _MANDATORY[kind] if not spec.get(key)]:
            raise Refused(400, f"mandatory in spec: {', '.join(missing)}")
        if not _NAME.fullmatch(body["name"]) or len(body["name"]) > _MAX_NAME:
            raise Refused(400, f"invalid workload name {body['name']!r}")
        if body["projectId"] not in PROJECTS.values() or body["clusterId"] != CLUSTER_ID:
            raise Refused(403, "no access to that project")
        with self._lock:
            for other in () if body.get("useGivenNameAsPrefix") else self.workloads.values():
                same = (other.name, other.body["projectId"]) == (body["name"], body["projectId"])
                if same and not other.deleted_at:
                    raise Refused(409, f"workload {body['name']} already exists")
            workload = Workload(
                kind,
                body,
                pace=self.pace,
                may_start=self.may_start,
                container=self.container,
                directory=self.directory / "pods",
                port=free_port(),
            )
            self.workloads[workload.id] = workload
        return workload

    def pod(self, name: str) -> Pod:
        for workload in list(self.workloads.values()):
            for pod in workload.pods:
                if pod.name == name and not pod.gone and not workload.deleted_at:
                    return pod
        raise Refused(404, f'pods "{name}" not found')

    @contextlib.contextmanager
    def stream(self) -> Iterator[threading.Event]:
        cut = threading.Event()
        with self._lock:
            self._streams.add(cut)
        try:
            yield cut
        finally:
            with self._lock:
                self._streams.discard(cut)


def _given(value: Any) -> Any:
    """Leave out what is null: the vendor's own client sends all that it knows of."""
    if isinstance(value, dict):
        return {key: _given(item) for key, item in value.items() if item is not None}
    return [_given(item) for item in value] if isinstance(value, list) else value


def _claim(pvc: dict[str, Any]) -> str:
    return str(pvc.get("claimName") or pvc["name"])


def _expanded(value: str, env: dict[str, str]) -> str:
    """Do to a value what Kubernetes does: ``$(NAME)`` is replaced, ``$$`` is a dollar."""

    def replace(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\((\w+)\)", replace, value)


@_ROUTES.on("POST", "/api/v1/token")
def _token(emulator: RunaiEmulator, request: Request) -> Any:
    given = {key.lower(): value for key, value in request.json.items()}
    names = _GRANTS.get(given.get("granttype", ""))
    if names is None:
        raise Refused(400, "unsupported grant type")
    if tuple(map(given.get, names)) != (CLIENT_ID, CLIENT_SECRET):
        raise Refused(401, "invalid client credentials")
    expires_at = time.time() + emulator.token_s
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires_at}).encode()).decode()
    token = f"e30.{claims.rstrip('=')}.{uuid.uuid4().hex}"
    emulator.tokens[token] = expires_at
    return {"accessToken": token, "expiresIn": int(emulator.token_s)}


@_ROUTES.on("GET", "/api/v1/org-unit/projects")
def _projects(emulator: RunaiEmulator, request: Request) -> Any:
    wanted = request.query.get("filterBy", "").partition("==")[2]
    return {
        "projects": [
            {
                "id": id,
                "name": name,
                "clusterId": CLUSTER_ID,
                "status": {"namespace": f"runai-{name}"},
            }
            for name, id in PROJECTS.items()
            if wanted in ("", name)
        ]
    }


@_ROUTES.on("GET", "/api/v1/clusters")
def _clusters(emulator: RunaiEmulator, request: Request) -> Any:
    return [{"uuid": CLUSTER_ID, "name": "emulated", "domain": emulator.kube_url}]


@_ROUTES.on("GET", "/api/v1/workloads")
def _list(emulator: RunaiEmulator, request: Request) -> Any:
    field, operator, wanted = re.split(r"(==|=\^)", request.query.get("filterBy", "name=^"))
    deleted = request.query.get("deleted") == "true"
    items = [
        emulator.listed(workload)
        for workload in emulator.workloads.values()
        if bool(workload.deleted_at) == deleted
    ]
    match = str.__eq__ if operator == "==" else str.startswith
    found = [item for item in items if match(item[field], wanted)]
    start, limit = int(request.query.get("offset", 0)), int(request.query.get("limit", 50))
    more = {"next": start + limit} if start + limit < len(found) else {}
    return {**more, "workloads": found[start : start + limit]}


@_ROUTES.on("POST", "/api/v1/workloads/{kind}")
def _create(emulator: RunaiEmulator, request: Request, kind: str) -> Any:
    if kind not in ("trainings", "distributed", "workspaces"):
        raise Refused(404, f"no workloads called {kind}")
    return Response(emulator.create(kind, _given(request.json)).to_json(), status=202)


@_ROUTES.on("GET", "/api/v1/workloads/{id}")
def _get_any(emulator: RunaiEmulator, request: Request, id: str) -> Any:
    return emulator.listed(emulator.find("", id))


@_ROUTES.on("GET", "/api/v1/workloads/{id}/pods")
def _pods(emulator: RunaiEmulator, request: Request, id: str) -> Any:
    workload = emulator.find("", id)
    return {"pods": [pod.to_json(workload) for pod in workload.pods if not pod.gone]}


@_ROUTES.on("GET", "/api/v1/workloads/{id}/events")
def _events(emulator: RunaiEmulator, request: Request, id: str) -> Any:
    return {"events": emulator.find("", id).events_json()}


@_ROUTES.on("GET", "/api/v1/workloads/{kind}/{id}")
def _get(emulator: RunaiEmulator, request: Request, kind: str, id: str) -> Any:
    return emulator.shown(emulator.find(kind, id))


@_ROUTES.on("DELETE", "/api/v1/workloads/{kind}/{id}")
def _delete(emulator: RunaiEmulator, request: Request, kind: str, id: str) -> Any:
    emulator.find(kind, id).delete()
    return Response({"code": 202}, status=202)


def _suspend(emulator: RunaiEmulator, request: Request, kind: str, id: str) -> Any:
    if (request.method == "GET") != emulator.old:
        raise Refused(405, "method not allowed")
    emulator.find(kind, id).suspend()
    return Response({"code": 202}, status=202)


_ROUTES.on("POST", "/api/v1/workloads/{kind}/{id}/suspend")(_suspend)
_ROUTES.on("GET", "/api/v1/workloads/{kind}/{id}/suspend")(_suspend)


@_ROUTES.on("POST", "/api/v1/workloads/{kind}/{id}/resume")
def _resume(emulator: RunaiEmulator, request: Request, kind: str, id: str) -> Any:
    emulator.find(kind, id).resume()
    return Response({"code": 202}, status=202)
