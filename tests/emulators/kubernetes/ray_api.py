"""How the emulated API server answers for KubeRay's objects, and passes calls on to heads."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import struct
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.emulators.http import Refused, Request, Response, Routes
from tests.emulators.kubernetes import ray_checks
from tests.emulators.kubernetes.ray import LOOPBACK, RayCluster
from tests.emulators.kubernetes.ray_job import RayJob
from tests.emulators.runai.exec import Frames, accepted

if TYPE_CHECKING:
    from tests.emulators.kubernetes.emulator import KubernetesEmulator

RAY_ROUTES = Routes()
_OBJECTS = "/apis/ray.io/{version}/namespaces/{namespace}/{plural}"
_NAMESPACE = "/api/v1/namespaces/{namespace}"
_OURS = re.compile(r"/apis/ray\.io(/.*)?|.*/services/.*|.*/pods/[^/]+/portforward")


def is_for_ray(path: str) -> bool:
    return _OURS.fullmatch(path) is not None


@RAY_ROUTES.on("GET", "/apis/ray.io")
def _group(emulator: KubernetesEmulator, request: Request) -> Any:
    if not emulator.ray.installed:
        return Response(b"404 page not found\n", status=404)
    version = emulator.ray.version
    versions = [{"groupVersion": f"ray.io/{version}", "version": version}]
    return {"kind": "APIGroup", "name": "ray.io", "versions": versions}


def _table(emulator: KubernetesEmulator, version: str, plural: str) -> dict[tuple[str, str], Any]:
    tables: Mapping[str, Any] = {
        "rayclusters": emulator.ray.clusters,
        "rayjobs": emulator.ray.jobs,
    }
    if not emulator.ray.installed or version != emulator.ray.version or plural not in tables:
        raise Refused(404, "the server could not find the requested resource")
    found: dict[tuple[str, str], Any] = tables[plural]
    return found


def _there(
    emulator: KubernetesEmulator, version: str, namespace: str, plural: str, name: str
) -> Any:
    found = _table(emulator, version, plural).get((namespace, name))
    if found is None:
        raise Refused(404, f'{plural}.ray.io "{name}" not found')
    return found


@RAY_ROUTES.on("POST", _OBJECTS)
def _create(
    emulator: KubernetesEmulator, request: Request, version: str, namespace: str, plural: str
) -> Any:
    table, body = _table(emulator, version, plural), request.json
    (ray_checks.raycluster if plural == "rayclusters" else ray_checks.rayjob)(body)
    if namespace not in emulator.namespaces:
        raise Refused(404, f'namespaces "{namespace}" not found')
    if emulator.ray.drops_auth:
        body["spec"].pop("authOptions", None)
        body["spec"].get("rayClusterSpec", {}).pop("authOptions", None)
    with emulator._lock:
        key = (namespace, body["metadata"]["name"])
        if key in table:
            raise Refused(409, f'{plural}.ray.io "{key[1]}" already exists')
        made = (RayCluster if plural == "rayclusters" else RayJob)(emulator.ray, body)
        table[key] = made
        emulator.ray.created.append(made)
    return Response(made.to_json(), status=201)


@RAY_ROUTES.on("GET", f"{_OBJECTS}/{{name}}")
def _get(emulator: KubernetesEmulator, request: Request, **where: str) -> Any:
    return _there(emulator, **where).to_json()


@RAY_ROUTES.on("PATCH", f"{_OBJECTS}/{{name}}")
def _patch(emulator: KubernetesEmulator, request: Request, **where: str) -> Any:
    found = _there(emulator, **where)
    _merge(found.body, request.json)
    return found.to_json()


def _merge(target: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = value


@RAY_ROUTES.on("DELETE", f"{_OBJECTS}/{{name}}")
def _delete(emulator: KubernetesEmulator, request: Request, **where: str) -> Any:
    _there(emulator, **where).delete()
    return {"kind": "Status", "status": "Success"}


def _of_service(emulator: KubernetesEmulator, namespace: str, service: str) -> RayCluster:
    name = service.partition(":")[0].removesuffix("-head-svc")
    cluster = emulator.ray.clusters.get((namespace, name))
    if cluster is None or not cluster.service or not service.startswith(f"{name}-head-svc"):
        raise Refused(404, f'services "{service.partition(":")[0]}" not found')
    return cluster


@RAY_ROUTES.on("GET", f"{_NAMESPACE}/services/{{service}}")
def _service(emulator: KubernetesEmulator, request: Request, namespace: str, service: str) -> Any:
    _of_service(emulator, namespace, service)
    return {"kind": "Service", "metadata": {"name": service}, "spec": {"clusterIP": LOOPBACK}}


@RAY_ROUTES.on("GET", f"{_NAMESPACE}/services/{{service}}/proxy/{{path*}}")
def _proxy(
    emulator: KubernetesEmulator, request: Request, namespace: str, service: str, path: str
) -> Any:
    cluster = _of_service(emulator, namespace, service)
    connection = http.client.HTTPConnection(LOOPBACK, cluster.dashboard_port, timeout=10)
    # The header that lets a client in here goes no further.
    kept = {key: v for key, v in request.headers.items() if key == "x-ray-authorization"}
    try:
        connection.request("GET", f"/{path}", headers=kept)
        answer = connection.getresponse()
        return Response(answer.read(), status=answer.status)
    except OSError as err:
        raise Refused(503, f"error trying to reach service: {err}") from err
    finally:
        connection.close()


@RAY_ROUTES.on("GET", f"{_NAMESPACE}/pods/{{name}}/portforward")
def _portforward(emulator: KubernetesEmulator, request: Request, namespace: str, name: str) -> Any:
    if (namespace, name) not in emulator.pods:
        raise Refused(404, f'pods "{name}" not found')
    cluster = emulator.ray.cluster_of(name)
    port = int(request.query["ports"])
    # Pods have the network of this machine, so their ports are others than they would be.
    places = {8265: "dashboard_port", 10001: "client_port", 6379: "port"}
    target = getattr(cluster, places[port]) if cluster and port in places else port
    return accepted(request, lambda connection: _relay(connection, port, target))


def _relay(connection: socket.socket, port: int, target: int) -> None:
    frames = Frames(connection)
    number = struct.pack("<H", port)
    with contextlib.suppress(OSError):
        frames.send(bytes([0]) + number)
        frames.send(bytes([1]) + number)
        try:
            far = socket.create_connection((LOOPBACK, target), timeout=10)
        except OSError as err:
            frames.send(bytes([1]) + f"an error occurred forwarding {port}: {err}".encode())
            return
        far.settimeout(None)
        threading.Thread(target=_back, args=(far, frames), daemon=True).start()
        with far, contextlib.suppress(OSError):
            while (message := frames.receive()) is not None:
                if message[:1] == bytes([0]):
                    far.sendall(message[1:])
            far.shutdown(socket.SHUT_RDWR)


def _back(far: socket.socket, frames: Frames) -> None:
    with contextlib.suppress(OSError):
        while data := far.recv(1 << 16):
            frames.send(bytes([0]) + data)
        frames.close()
