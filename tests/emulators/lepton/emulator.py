"""The emulated workspace: what it has, and how it answers."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.emulators.faults import Faults
from tests.emulators.http import Refused, Request, Response, Routes, Server
from tests.emulators.lepton import storage
from tests.emulators.lepton.jobs import ENDED, Job, Pace, Replica
from tests.emulators.lepton.rayclusters import ROUTES as RAY_ROUTES
from tests.emulators.lepton.rayclusters import RayCluster
from tests.emulators.processes import PATH, ContainerSpec, Line
from tests.emulators.service import Service

TOKEN = "lepton-emulator-token"
WORKSPACE = "ws1"
PREFIX = f"/api/v2/workspaces/{WORKSPACE}"

MAX_REQUEST_BYTES = 1_500_000
"""What the store behind a cluster takes for one object."""

GROUPS = {"my-group": "my-group-x7k2"}
"""Node groups: the name that people see, and the id."""

NODES = ("node-a", "node-b")
SHAPES = ("cpu.small", "gpu.8xh100-sxm")

_JOB_ID = re.compile(r"[a-z][a-z0-9-]{0,34}[a-z0-9]")
RAY_TMP = "/ray-tmp"
_ROUTES = Routes()


class LeptonEmulator(Service):
    """A workspace on loopback, with ``directory`` for its volumes.

    ``hidden`` directories of this machine are empty for jobs. While `held`, jobs wait in the
    queue. Streams and the log store are ``log_lag_s`` late. ``path`` is the ``PATH`` of Ray.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        pace: Pace | None = None,
        hidden: tuple[Path, ...] = (),
        path: str = PATH,
    ) -> None:
        super().__init__(directory)
        self.pace = pace or Pace()
        self.hidden = hidden
        self.path = path
        self.users = {TOKEN: "me@example.com"}
        self.secrets: dict[str, str] = {}
        self.jobs: dict[str, Job] = {}
        self.rayclusters: dict[str, RayCluster] = {}
        self.refused_words: dict[str, str] = {}
        self.shapes, self.groups = SHAPES, GROUPS
        self._lock = threading.Lock()
        self.server = Server(self._answer, faults=Faults(), port=port, error_body=_error_body)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point the vendor's client here."""
        return {
            "LEPTON_WORKSPACE_ID": WORKSPACE,
            "LEPTON_WORKSPACE_URL": self.server.url + PREFIX,
            "LEPTON_WORKSPACE_TOKEN": TOKEN,
            "LEPTON_WORKSPACE_ORIGIN_URL": self.server.url,
            "LEPTON_CACHE_DIR": str(self.directory / "client-cache"),
        }

    def advice(self) -> str:
        return "\n".join(f"export {name}={value}" for name, value in self.environment.items())

    def say_state(self, job_id: str, word: str) -> None:
        """Answer with ``word`` for the state of a job from now on."""
        self.refused_words[job_id] = word

    def close(self) -> None:
        """End every job and stop answering."""
        self.server.stop()
        self.may_start.set()
        for job in list(self.jobs.values()):
            job.close()
        for cluster in list(self.rayclusters.values()):
            cluster.close()

    # Answers.

    def _answer(self, request: Request) -> Any:
        if not request.path.startswith(PREFIX):
            raise Refused(404, f"no workspace at {request.path}")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.users:
            raise Refused(401, "unauthorized: the token is invalid or has expired")
        if len(request.body) > MAX_REQUEST_BYTES:
            raise Refused(413, f"request entity too large: limit is {MAX_REQUEST_BYTES}")
        path = request.path.removeprefix(PREFIX)
        routes = RAY_ROUTES if path.startswith("/rayclusters") else _ROUTES
        handler, arguments = routes.find(request.method, path)
        return handler(self, request, **arguments)

    def user(self, request: Request) -> str:
        return self.users[request.headers["authorization"].removeprefix("Bearer ")]

    def find(self, request: Request, id: str) -> Job:
        job = self.jobs.get(id)
        mode = request.query.get("job_query_mode", "alive_only")
        if job is None or not _visible(job, self.user(request)):
            raise Refused(404, f"job {id} not found")
        if (mode == "alive_only" and job.archived) or (mode == "archive_only" and not job.archived):
            raise Refused(404, f"job {id} not found")
        return job

    def shown(self, job: Job) -> dict[str, Any]:
        answer = job.to_json()
        if job.id in self.refused_words:
            answer["status"]["state"] = self.refused_words[job.id]
        return answer

    def create(self, body: Mapping[str, Any], owner: str) -> Job:
        job_id = body.get("metadata", {}).get("id") or body.get("metadata", {}).get("name") or ""
        self._check(job_id, body.get("spec", {}))
        with self._lock:
            if job_id in self.jobs:
                raise Refused(409, f"job {job_id} already exists")
            job = Job(
                {**body, "metadata": {**body["metadata"], "id": job_id}},
                owner=owner,
                pace=self.pace,
                may_start=self.may_start,
                container=self._container,
                directory=self.directory / "replicas" / job_id,
            )
            self.jobs[job_id] = job
            return job

    def _check(self, job_id: str, spec: Mapping[str, Any]) -> None:
        if not _JOB_ID.fullmatch(job_id) or job_id.endswith("by-lepton"):
            raise Refused(400, f"invalid job name {job_id!r}")
        if spec.get("resource_shape") not in SHAPES:
            raise Refused(400, f"unknown resource shape {spec.get('resource_shape')!r}")
        affinity = spec.get("affinity") or {}
        for group in affinity.get("allowed_dedicated_node_groups") or ():
            if group not in GROUPS.values():
                raise Refused(400, f"node group {group!r} not found")
        for env in spec.get("envs") or ():
            name = (env.get("value_from") or {}).get("secret_name_ref")
            if name is not None and name not in self.secrets:
                raise Refused(400, f"secret {name!r} not found")
        for name in spec.get("image_pull_secrets") or ():
            if name not in self.secrets:
                raise Refused(400, f"image pull secret {name!r} not found")

    def _container(self, job: Job, index: int) -> ContainerSpec:
        service = f"{job.id}-job-svc"
        hosts = [f"127.0.0.1 {job.id}-{k}.{service} {job.id}-{k}" for k in range(job.size)]
        env = {
            "LEPTON_WORKSPACE_ID": WORKSPACE,
            "LEPTON_JOB_NAME": job.id,
            "LEPTON_JOB_SERVICE_PREFIX": job.id,
            "LEPTON_JOB_WORKER_PREFIX": job.id,
            "LEPTON_JOB_WORKER_HOSTNAME_PREFIX": job.id,
            "LEPTON_SUBDOMAIN": service,
            "LEPTON_JOB_TOTAL_WORKERS": str(job.size),
            "LEPTON_JOB_WORKER_INDEX": str(index),
            "LEPTON_JOB_FAILURE_COUNT": str(job.attempt),
            "LEPTON_RESOURCE_ACCELERATOR_NUM": "0",
        }
        return ContainerSpec(
            argv=tuple(job.spec["container"]["command"]),
            env={**env, **self._variables(job.spec)},
            mounts=self._mounts(job.spec),
            files={"/etc/hosts": "\n".join(["127.0.0.1 localhost", *hosts]) + "\n"},
            hidden=tuple(path for path in self.hidden if path.exists()),
        )

    def _variables(self, spec: Mapping[str, Any]) -> dict[str, str]:
        env = {}
        for variable in spec.get("envs") or ():
            source = variable.get("value_from") or {}
            value = variable.get("value") or ""
            if "secret_name_ref" in source:
                value = self.secrets[source["secret_name_ref"]]
            env[variable["name"]] = value
        return env

    def _mounts(self, spec: Mapping[str, Any]) -> dict[str, Path]:
        mounts = {}
        for mount in spec.get("mounts") or ():
            path = self.volume(mount.get("from") or storage.NAME) / mount["path"].lstrip("/")
            path.mkdir(parents=True, exist_ok=True)
            mounts[mount["mount_path"]] = path
        return mounts

    def ray_container(self, group: Mapping[str, Any], argv: tuple[str, ...]) -> ContainerSpec:
        # As in real containers, what Ray keeps for itself is in a directory that no other sees.
        own = self.directory / "ray" / secrets.token_hex(4)
        own.mkdir(parents=True)
        return ContainerSpec(
            argv=argv,
            env={"PATH": self.path, "RAY_TMPDIR": RAY_TMP, **self._variables(group)},
            mounts={**self._mounts(group), RAY_TMP: own},
            hidden=tuple(path for path in self.hidden if path.exists()),
        )


def _visible(job: Job, user: str) -> bool:
    return job.metadata.get("visibility") != "private" or job.owner == user


def _error_body(status: int, message: str) -> dict[str, str]:
    return {"code": str(status), "message": message}


@_ROUTES.on("GET", "/workspace")
def workspace(emulator: LeptonEmulator, request: Request) -> Any:
    return {
        "build_time": "2025-01-01T00:00:00",
        "git_commit": "1.0.0",
        "workspace_name": WORKSPACE,
        "workspace_state": "normal",
    }


@_ROUTES.on("GET", "/dedicated-node-groups")
def node_groups(emulator: LeptonEmulator, request: Request) -> Any:
    return [
        {"metadata": {"id": id, "name": name}, "spec": {}, "status": {"ready_nodes": len(NODES)}}
        for name, id in GROUPS.items()
    ]


@_ROUTES.on("GET", "/dedicated-node-groups/{group}/nodes")
def nodes(emulator: LeptonEmulator, request: Request, group: str) -> Any:
    if group not in GROUPS.values():
        raise Refused(404, f"node group {group!r} not found")
    return [
        {"metadata": {"id": name, "name": name}, "spec": {"unschedulable": False}, "status": {}}
        for name in NODES
    ]


@_ROUTES.on("GET", "/usersecrets")
def list_secrets(emulator: LeptonEmulator, request: Request) -> Any:
    return [{"name": name} for name in emulator.secrets]


@_ROUTES.on("POST", "/usersecrets")
def create_secrets(emulator: LeptonEmulator, request: Request) -> Any:
    for item in request.json:
        emulator.secrets[item["name"]] = item["value"]
    return {}


@_ROUTES.on("DELETE", "/usersecrets/{name}")
def delete_secret(emulator: LeptonEmulator, request: Request, name: str) -> Any:
    if emulator.secrets.pop(name, None) is None:
        raise Refused(404, f"secret {name!r} not found")
    return {}


@_ROUTES.on("GET", "/storage")
def file_systems(emulator: LeptonEmulator, request: Request) -> Any:
    return [storage.described(emulator.volume(storage.NAME))]


@_ROUTES.on("GET", "/storage/du")
def storage_usage(emulator: LeptonEmulator, request: Request) -> Any:
    return storage.described(emulator.volume(storage.NAME))


@_ROUTES.on("GET", "/storage/{system}{path*}")
@_ROUTES.on("HEAD", "/storage/{system}{path*}")
@_ROUTES.on("POST", "/storage/{system}{path*}")
@_ROUTES.on("PUT", "/storage/{system}{path*}")
@_ROUTES.on("DELETE", "/storage/{system}{path*}")
def stored_file(emulator: LeptonEmulator, request: Request, system: str, path: str) -> Any:
    if system != storage.NAME:
        raise Refused(404, f"file system {system!r} not found")
    return storage.answer(emulator.volume(system), request, path)


@_ROUTES.on("POST", "/jobs")
def create_job(emulator: LeptonEmulator, request: Request) -> Any:
    return Response(emulator.shown(emulator.create(request.json, emulator.user(request))), 201)


@_ROUTES.on("GET", "/jobs")
def list_jobs(emulator: LeptonEmulator, request: Request) -> Any:
    query = request.query
    mode = query.get("job_query_mode", "alive_only")
    wanted = [
        job
        for job in emulator.jobs.values()
        if _visible(job, emulator.user(request))
        and (mode == "alive_and_archive" or job.archived == (mode == "archive_only"))
        and query.get("q", "") in job.id
        and _labelled(job, query.get("query", ""))
    ]
    page, size = int(query.get("page", 1)), int(query.get("page_size", 500))
    return {"jobs": [emulator.shown(job) for job in wanted[(page - 1) * size : page * size]]}


def _labelled(job: Job, selector: str) -> bool:
    labels = job.metadata.get("labels") or {}
    pairs = (part.split("=", 1) for part in selector.split(",") if part)
    return all(labels.get(name) == value for name, value in pairs)


@_ROUTES.on("GET", "/jobs/{id}")
def get_job(emulator: LeptonEmulator, request: Request, id: str) -> Any:
    return emulator.shown(emulator.find(request, id))


@_ROUTES.on("PATCH", "/jobs/{id}")
def update_job(emulator: LeptonEmulator, request: Request, id: str) -> Any:
    job = emulator.find(request, id)
    if request.json.get("spec", {}).get("stopped"):
        job.spec["stopped"] = True
        job.stop()
    return emulator.shown(job)


@_ROUTES.on("DELETE", "/jobs/{id}")
def delete_job(emulator: LeptonEmulator, request: Request, id: str) -> Any:
    emulator.find(request, id).delete()
    return {}


@_ROUTES.on("GET", "/jobs/{id}/events")
def events(emulator: LeptonEmulator, request: Request, id: str) -> Any:
    return [
        {
            "type": event.kind,
            "reason": event.reason,
            "count": 1,
            "last_observed_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.time)),
        }
        for event in emulator.find(request, id).events
    ]


@_ROUTES.on("GET", "/jobs/{id}/replicas")
def replicas(emulator: LeptonEmulator, request: Request, id: str) -> Any:
    job = emulator.find(request, id)
    return [
        {
            "id": replica.id,
            "metadata": {"id": replica.id, "name": replica.id, "created_at": replica.created_at_ms},
            "status": {"node": {"id": NODES[0], "name": NODES[0]}},
        }
        for replica in list(job.replicas)
    ]


def _replica(job: Job, replica_id: str) -> Replica:
    for replica in list(job.replicas):
        if replica.id == replica_id:
            return replica
    raise Refused(404, f"replica {replica_id} not found")


@_ROUTES.on("GET", "/jobs/{id}/replicas/{replica}/log")
def stream_log(emulator: LeptonEmulator, request: Request, id: str, replica: str) -> Any:
    job = emulator.find(request, id)
    found = _replica(job, replica)
    if job.state in ENDED:
        raise Refused(404, f"replica {replica} has no container any more")
    lines = found.container.log.follow(lag_s=emulator.log_lag_s)
    return Response(_chunks(lines), headers={"Content-Type": "text/plain"})


def _chunks(lines: Iterator[Line]) -> Iterator[bytes]:
    """Cut anywhere, as networks do: also within a line, and within a character."""
    for line in lines:
        middle = len(line.data) // 2
        yield line.data[:middle]
        yield line.data[middle:]


@_ROUTES.on("GET", "/logs")
def stored_log(emulator: LeptonEmulator, request: Request) -> Any:
    query = request.query
    if not {"start", "end"} <= query.keys():
        raise Refused(400, "start and end are required")
    job = emulator.jobs.get(query.get("job", ""))
    if job is None or not _visible(job, emulator.user(request)):
        raise Refused(404, f"job {query.get('job')} not found")
    start, end = int(query["start"]), int(query["end"])
    end = min(end, time.time_ns() - int(emulator.log_lag_s * 1e9))
    result = []
    for replica in list(job.replicas):
        if query.get("replica", replica.id) != replica.id:
            continue
        lines = [
            line
            for line in replica.container.log.lines
            if start <= line.time_ns < end and query.get("q", "").encode() in line.data
        ]
        lines = lines[-int(query.get("limit", 5000)) :][::-1]
        values = [
            [str(line.time_ns), line.data.rstrip(b"\n").decode("utf-8", "replace")]
            for line in lines
        ]
        result.append({"stream": {"replica": replica.id}, "values": values})
    return {"status": "success", "data": {"resultType": "streams", "result": result}}
