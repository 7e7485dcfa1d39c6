"""The Kubernetes API of the emulated cluster: pods, their logs, and commands in them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from tests.emulators.http import Refused, Request, Response, Routes
from tests.emulators.processes import Line
from tests.emulators.runai import exec as pod_exec

ROUTES = Routes()
_POD = "/api/v1/namespaces/{namespace}/pods/{pod}"


@ROUTES.on("GET", _POD)
def _kube_pod(emulator: Any, request: Request, namespace: str, pod: str) -> Any:
    return emulator.pod(pod).to_kubernetes()


@ROUTES.on("DELETE", _POD)
def _kube_delete(emulator: Any, request: Request, namespace: str, pod: str) -> Any:
    found = emulator.pod(pod)
    if found.container is not None and request.query.get("gracePeriodSeconds") == "0":
        found.container.kill()
    return {"status": "Success"}


@ROUTES.on("GET", f"{_POD}/log")
def _kube_log(emulator: Any, request: Request, namespace: str, pod: str) -> Any:
    found = emulator.pod(pod)
    _check_container(request)
    if found.container is None:
        raise Refused(400, f'container "main" in pod "{pod}" is waiting to start')
    since = request.query.get("sinceTime", "")
    log = found.container.log
    if request.query.get("follow") != "true":
        lines = [_stamped(line) for line in log.seen(emulator.log_lag_s) if _after(line, since)]
        return Response(iter(lines[-int(request.query.get("tailLines", len(lines) + 1)) :]))

    def follow() -> Iterator[bytes]:
        with emulator.stream() as cut:
            for line in log.follow(lag_s=emulator.log_lag_s):
                if cut.is_set():
                    raise ConnectionError("the token has expired")
                if _after(line, since):
                    yield _stamped(line)

    return Response(follow())


@ROUTES.on("GET", f"{_POD}/exec")
def _kube_exec(emulator: Any, request: Request, namespace: str, pod: str) -> Any:
    found = emulator.pod(pod)
    if found.container is None or not found.container.running:
        raise Refused(500, "container not found")
    _check_container(request)
    pairs = parse_qsl(request.query_string, keep_blank_values=True)
    words = [value for key, value in pairs if key == "command"]
    return pod_exec.answer(request, found.container, words)


def _check_container(request: Request) -> None:
    # There may always be containers beside the one that counts.
    if request.query.get("container") != "main":
        raise Refused(400, "a container name must be specified, choose one of: [main sidecar]")


def _stamped(line: Line) -> bytes:
    whole, rest = divmod(line.time_ns, 10**9)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    return f"{stamp}.{rest:09d}Z ".encode() + line.data


def _after(line: Line, since: str) -> bool:
    # As in Kubernetes, exact to the second.
    return not since or _stamped(line)[:19].decode() >= since[:19]
