"""The KubeRay operator: it makes the pods of RayClusters and submits RayJobs.

All pods have the network of this machine, so heads get ports of their own, on loopback.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import random
import secrets
import string
import threading
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.emulators.kubernetes.pods import Pod, rfc3339
from tests.emulators.service import free_port

if TYPE_CHECKING:
    from tests.emulators.kubernetes.emulator import KubernetesEmulator

LOOPBACK = "127.0.0.1"


def suffix() -> str:
    return "".join(random.choices(string.ascii_lowercase + string.digits, k=5))


class RayOperator:
    """All RayClusters and RayJobs of an emulated cluster.

    Attributes:
        installed: whether the cluster knows what a RayCluster is.
        version: of its objects.
        drops_auth: whether it is older than tokens, which it then does not know the field of.
        paused: is set while it does nothing.
    """

    def __init__(self, emulator: KubernetesEmulator) -> None:
        self.emulator = emulator
        self.installed = True
        self.version = "v1"
        self.drops_auth = False
        self.paused = threading.Event()
        self.clusters: dict[tuple[str, str], RayCluster] = {}
        self.jobs: dict[tuple[str, str], OperatedObject] = {}
        self.created: list[OperatedObject] = []

    def close(self) -> None:
        for item in list(self.created):
            item.closed = True
        for item in list(self.created):
            item.kill()

    def cluster_of(self, pod: str) -> RayCluster | None:
        """Return the cluster whose head a pod is."""
        for cluster in self.clusters.values():
            if cluster.head is not None and cluster.head.name == pod:
                return cluster
        return None


class OperatedObject:
    """An object that the operator brings about, from its creation to its end."""

    kind = ""

    def __init__(self, operator: RayOperator, body: dict[str, Any]) -> None:
        self.operator = operator
        self.body = body
        self.name: str = body["metadata"]["name"]
        self.namespace: str = body["metadata"]["namespace"]
        self.uid = str(uuid.uuid4())
        self.created_at = time.time()
        self.deleted_at: float | None = None
        self.closed = False
        self.gone = False
        self.status: dict[str, Any] = {}
        self.pods: list[Pod] = []
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.body["spec"]
        return spec

    @property
    def present(self) -> list[Pod]:
        return [pod for pod in self.pods if not pod.gone]

    def delete(self) -> None:
        self.deleted_at = self.deleted_at or time.time()

    def kill(self) -> None:
        """End everything at once, and make nothing more."""
        self.closed = True
        self._thread.join(10)
        for pod in self.pods:
            pod.kill()

    def _live(self) -> None:
        time.sleep(self.operator.emulator.pace.creating)
        while not self.closed and self.deleted_at is None:
            if not self.operator.paused.is_set():
                self._reconcile()
            time.sleep(0.05)
        if not self.closed:
            self._end()
            self.operator.emulator.forget_owned(self.uid)
            self.gone = True

    def _reconcile(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        self._remove(self.present)

    def _remove(self, pods: list[Pod]) -> None:
        for pod in pods:
            pod.delete()
        while any(not pod.gone for pod in pods) and not self.closed:
            time.sleep(0.01)

    def _make_pod(self, template: Mapping[str, Any], name: str, **told: Any) -> Pod:
        labels: Mapping[str, str] = told.pop("labels")
        given = template.get("metadata") or {}
        body = {
            "metadata": {
                **given,
                "name": name,
                "namespace": self.namespace,
                "labels": {**(given.get("labels") or {}), **labels},
            },
            "spec": template["spec"],
        }
        pod = self.operator.emulator.make_pod(self.namespace, body, **told)
        self.pods.append(pod)
        return pod

    def to_json(self) -> dict[str, Any]:
        return {
            **self.body,
            "metadata": {
                **self.body["metadata"],
                "uid": self.uid,
                "creationTimestamp": rfc3339(self.created_at),
                **({"deletionTimestamp": rfc3339(self.deleted_at)} if self.deleted_at else {}),
            },
            **({"status": self.status} if self.status else {}),
        }


class RayCluster(OperatedObject):
    """A head and its workers."""

    kind = "RayCluster"

    def __init__(self, operator: RayOperator, body: dict[str, Any]) -> None:
        self.head: Pod | None = None
        self.workers: dict[str, list[Pod]] = {}
        self.port, self.dashboard_port, self.client_port = free_port(), free_port(), free_port()
        self.service = False
        self.token = ""
        super().__init__(operator, body)

    def is_ready(self) -> bool:
        """Ask the dashboard, as the probe of the head's container does."""
        status, _ = self.ask("GET", "/api/gcs_healthz")
        return status == 200

    def ask(self, method: str, path: str) -> tuple[int, Any]:
        """Ask the dashboard something; 0 where it does not answer."""
        connection = http.client.HTTPConnection(LOOPBACK, self.dashboard_port, timeout=5)
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            data = answer.read()
        except OSError:
            return 0, None
        finally:
            connection.close()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(data)
        return answer.status, None

    def _reconcile(self) -> None:
        self._make_secret()
        if self.spec.get("suspend"):
            self._remove(self.present)
            self.head, self.workers = None, {}
            self.status = {"state": "suspended"}
            return
        self.service = True
        if self.head is None or self.head.gone:
            self.head = self._make_head()
        for group in self.spec.get("workerGroupSpecs") or ():
            self._scale(group)
        self._tell()

    def _make_secret(self) -> None:
        if (self.spec.get("authOptions") or {}).get("mode") != "token" or self.token:
            return
        self.token = secrets.token_hex(16)
        owner = {"kind": self.kind, "name": self.name, "uid": self.uid}
        self.operator.emulator.secrets[self.namespace, self.name] = {
            "kind": "Secret",
            "metadata": {"name": self.name, "ownerReferences": [owner]},
            "data": {"auth_token": base64.b64encode(self.token.encode()).decode()},
        }

    def auth(self) -> list[dict[str, Any]]:
        """Return the variables by which Ray learns of its token."""
        if not self.token:
            return []
        source = {"secretKeyRef": {"name": self.name, "key": "auth_token"}}
        return [
            {"name": "RAY_AUTH_MODE", "value": "token"},
            {"name": "RAY_AUTH_TOKEN", "valueFrom": source},
        ]

    def _make_head(self) -> Pod:
        group = self.spec["headGroupSpec"]
        params = {
            **group["rayStartParams"],
            "port": str(self.port),
            "dashboard-host": LOOPBACK,
            "dashboard-port": str(self.dashboard_port),
            "ray-client-server-port": str(self.client_port),
            "node-ip-address": LOOPBACK,
        }
        return self._make_pod(
            self._with_ray(group, "ray start --head", params),
            f"{self.name}-head-{suffix()}",
            labels=self._labels("head", "headgroup"),
            ready=self.is_ready,
        )

    def _scale(self, group: Mapping[str, Any]) -> None:
        name = group["groupName"]
        there = self.workers[name] = [p for p in self.workers.get(name, ()) if not p.gone]
        for pod in there[group["replicas"] :]:
            pod.delete()
        params = {**group["rayStartParams"], "address": f"{LOOPBACK}:{self.port}"}
        for _ in range(group["replicas"] - len(there)):
            pod = self._make_pod(
                self._with_ray(group, "ray start", params),
                f"{self.name}-{name}-worker-{suffix()}",
                labels=self._labels("worker", name),
            )
            there.append(pod)

    def _labels(self, kind: str, group: str) -> dict[str, str]:
        return {
            "ray.io/cluster": self.name,
            "ray.io/node-type": kind,
            "ray.io/group": group,
            "ray.io/is-ray-node": "yes",
        }

    def _with_ray(
        self, group: Mapping[str, Any], start: str, params: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return a pod template whose container starts Ray behind what its command says."""
        template: dict[str, Any] = json.loads(json.dumps(group["template"]))
        container = template["spec"]["containers"][0]
        limits = (container.get("resources") or {}).get("limits") or {}
        known = {"num-cpus": limits.get("cpu"), "num-gpus": limits.get("nvidia.com/gpu")}
        params = {**{k: str(v) for k, v in known.items() if v is not None}, **params}
        options = " ".join(f"--{key}={value}" for key, value in params.items())
        said = " ".join([*container.get("command", ()), *container.get("args", ())])
        started = f"ulimit -n 65536; {start} {options} --block"
        # The init container of a worker waits for the head.
        if "--address" in options:
            probe = f"(: </dev/tcp/{LOOPBACK}/{self.port}) 2>/dev/null"
            started = f"until {probe}; do sleep 0.1; done; {started}"
        container["command"] = ["/bin/bash", "-c", "--"]
        container["args"] = [f"{said} && {started}" if said else started]
        container["env"] = [*(container.get("env") or ()), *self.auth()]
        return template

    def _tell(self) -> None:
        assert self.head is not None
        workers = [pod for pods in self.workers.values() for pod in pods]
        ready = self.head.phase == "Running" and self.is_ready()
        running = [pod for pod in workers if pod.phase == "Running"]
        self.status = {
            "head": {
                "podIP": LOOPBACK,
                "serviceIP": LOOPBACK,
                "podName": self.head.name,
                "serviceName": f"{self.name}-head-svc",
            },
            "endpoints": {"client": "10001", "dashboard": "8265", "gcs-server": "6379"},
            "desiredWorkerReplicas": len(workers),
            "availableWorkerReplicas": len(running),
            "lastUpdateTime": rfc3339(time.time()),
            **({"state": "ready"} if ready and len(running) == len(workers) else {}),
        }

    def _end(self) -> None:
        super()._end()
        self.operator.clusters.pop((self.namespace, self.name), None)
