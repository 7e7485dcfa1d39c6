"""Ray clusters of the emulated workspace: containers that run ``ray start``, and their dashboards.

All containers have the network of this machine, so heads get ports of their own, on loopback.
"""

from __future__ import annotations

import http.client
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.emulators.http import Refused, Request, Response, Routes
from tests.emulators.processes import Container, ContainerSpec
from tests.emulators.service import free_port

if TYPE_CHECKING:
    from tests.emulators.lepton.emulator import LeptonEmulator

ROUTES = Routes()
LOOPBACK = "127.0.0.1"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,34}[a-z0-9]")
_USER_SPEC = {"image", "image_pull_secrets", "ray_version", "suspend", "head_group_spec"}
_USER_SPEC |= {"worker_group_specs", "autoscaler"}


class RayCluster:
    """A head and its workers, from their creation to their end."""

    def __init__(
        self,
        body: Mapping[str, Any],
        *,
        owner: str,
        may_start: threading.Event,
        container: Callable[[Mapping[str, Any], tuple[str, ...]], ContainerSpec],
        directory: Path,
    ) -> None:
        self.body = body
        self.name: str = body["metadata"]["id"]
        self.owner = owner
        self.created_at = time.time()
        self.deleting = False
        self.gone = False
        self.port, self.dashboard_port, self.client_port = free_port(), free_port(), free_port()
        self.containers: list[Container] = []
        self._may_start = may_start
        self._container = container
        self._directory = directory
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.body["spec"]
        return spec

    def _live(self) -> None:
        while not self._may_start.wait(0.05) and not self.deleting:
            pass
        head = self.spec["head_group_spec"]
        started = (
            f"--head --port={self.port} --dashboard-host={LOOPBACK} --num-cpus=1 "
            f"--dashboard-port={self.dashboard_port} --ray-client-server-port={self.client_port} "
            f"--node-ip-address={LOOPBACK} --block"
        )
        self._start(head, f"exec ray start {started}")
        probe = f"(: </dev/tcp/{LOOPBACK}/{self.port}) 2>/dev/null"
        joins = f"until {probe}; do sleep 0.1; done; exec ray start --num-cpus=1 --block"
        for group in self.spec["worker_group_specs"] or ():
            for _ in range(group["min_replicas"] or 0):
                self._start(group, f"{joins} --address={LOOPBACK}:{self.port}")

    def _start(self, group: Mapping[str, Any], command: str) -> None:
        if not self.deleting:
            spec = self._container(group, ("/bin/bash", "-c", command))
            place = self._directory / secrets.token_hex(4)
            self.containers.append(Container(spec, place))

    def delete(self, on_gone: Callable[[], None]) -> None:
        def end() -> None:
            for container in self.containers:
                container.stop(0.5)
            on_gone()

        if not self.deleting:
            self.deleting = True
            threading.Thread(target=end, daemon=True).start()

    def close(self) -> None:
        self.deleting = True
        self._thread.join(10)
        for container in self.containers:
            container.kill()

    @property
    def state(self) -> str:
        if self.deleting:
            return "Deleting"
        if not self.containers:
            return "Starting"
        return "Ready" if self._answers() else "Not Ready"

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.dashboard_port, timeout=5)
        try:
            connection.request("GET", "/api/gcs_healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def to_json(self) -> dict[str, Any]:
        return {
            "metadata": {
                **self.body["metadata"],
                "created_at": int(self.created_at * 1000),
                "created_by": self.owner,
                "owner": self.owner,
            },
            "spec": dict(self.spec),
            "status": {"state": self.state},
        }

    def passed_on(self, request: Request, path: str) -> Response:
        """Return what the dashboard answers; the workspace's token goes no further."""
        connection = http.client.HTTPConnection(LOOPBACK, self.dashboard_port, timeout=30)
        kept = {key: v for key, v in request.headers.items() if key == "content-type"}
        url = f"/{path.lstrip('/')}" + (f"?{request.query_string}" if request.query_string else "")
        try:
            connection.request(request.method, url, body=request.body, headers=kept)
            answer = connection.getresponse()
            return Response(answer.read(), status=answer.status)
        except OSError as err:
            raise Refused(502, f"the dashboard does not answer: {err}") from err
        finally:
            connection.close()


def check(body: Mapping[str, Any], shapes: tuple[str, ...], groups: Mapping[str, str]) -> None:
    """Refuse what the workspace would."""
    spec = body.get("spec") or {}
    if unknown := set(spec) - _USER_SPEC:
        raise Refused(400, f"unknown field {sorted(unknown)[0]}")
    head, workers = spec.get("head_group_spec") or {}, spec.get("worker_group_specs") or ()
    if head.get("min_replicas") != 1:
        raise Refused(400, "the head group has one replica")
    for group in (head, *workers):
        if group.get("resource_shape") not in shapes:
            raise Refused(400, f"unknown resource shape {group.get('resource_shape')!r}")
        allowed = (group.get("affinity") or {}).get("allowed_dedicated_node_groups") or ()
        for name in allowed:
            if name not in groups.values():
                raise Refused(400, f"node group {name!r} not found")


@ROUTES.on("POST", "/rayclusters")
def create_raycluster(emulator: LeptonEmulator, request: Request) -> Any:
    body = request.json
    check(body, emulator.shapes, emulator.groups)
    name = body["metadata"].get("id") or body["metadata"].get("name") or ""
    if not _NAME.fullmatch(name):
        raise Refused(400, f"invalid name {name!r}")
    with emulator._lock:
        if name in emulator.rayclusters:
            raise Refused(409, f"raycluster {name} already exists")
        emulator.rayclusters[name] = RayCluster(
            {**body, "metadata": {**body["metadata"], "id": name}},
            owner=emulator.user(request),
            may_start=emulator.may_start,
            container=emulator.ray_container,
            directory=emulator.directory / "rayclusters" / name,
        )
    return Response({}, 201)


def _raycluster(emulator: LeptonEmulator, name: str) -> RayCluster:
    if name not in emulator.rayclusters:
        raise Refused(404, f"raycluster {name} not found")
    return emulator.rayclusters[name]


@ROUTES.on("GET", "/rayclusters/{name}")
def get_raycluster(emulator: LeptonEmulator, request: Request, name: str) -> Any:
    return _raycluster(emulator, name).to_json()


@ROUTES.on("DELETE", "/rayclusters/{name}")
def delete_raycluster(emulator: LeptonEmulator, request: Request, name: str) -> Any:
    def gone() -> None:
        emulator.rayclusters.pop(name, None)

    _raycluster(emulator, name).delete(gone)
    return {}


@ROUTES.on("GET", "/rayclusters/{name}/dashboard{path*}")
@ROUTES.on("POST", "/rayclusters/{name}/dashboard{path*}")
@ROUTES.on("PUT", "/rayclusters/{name}/dashboard{path*}")
@ROUTES.on("DELETE", "/rayclusters/{name}/dashboard{path*}")
def raycluster_dashboard(emulator: LeptonEmulator, request: Request, name: str, path: str) -> Any:
    return _raycluster(emulator, name).passed_on(request, path)
