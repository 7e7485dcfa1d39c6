"""The controllers of TrainJobs: one makes a JobSet's pods and says how they are."""

from __future__ import annotations

import random
import socket
import string
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.emulators.kubernetes.pods import Pod, rfc3339

NODE = "node"
GROUP = "trainer.kubeflow.org"


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A ClusterTrainingRuntime.

    Attributes:
        backoff_limit: how often the pods of a job may fail before it has failed.
        restart_policy: of its pods; what JobSet fills in where a runtime says nothing.
        max_restarts: how often all jobs are made again when one has failed.
    """

    name: str = "torch-distributed"
    backoff_limit: int = 6
    restart_policy: str = "OnFailure"
    max_restarts: int = 0
    job: str = NODE

    def to_json(self) -> dict[str, Any]:
        container = {"name": self.job, "image": "pytorch/pytorch"}
        template = {"spec": {"restartPolicy": self.restart_policy, "containers": [container]}}
        job = {"backoffLimit": self.backoff_limit, "template": template}
        return {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "ClusterTrainingRuntime",
            "metadata": {"name": self.name},
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
                "template": {
                    "spec": {
                        "failurePolicy": {"maxRestarts": self.max_restarts},
                        "replicatedJobs": [{"name": self.job, "template": {"spec": job}}],
                    }
                },
            },
        }


class TrainJob:
    """A TrainJob, from its creation to its end."""

    def __init__(
        self,
        body: Mapping[str, Any],
        runtime: Runtime | None,
        *,
        creating_s: float,
        port: int,
        make_pod: Callable[[Mapping[str, Any], Mapping[str, str], tuple[str, ...]], Pod],
        on_gone: Callable[[TrainJob], None],
    ) -> None:
        self.body = body
        self.name: str = body["metadata"]["name"]
        self.namespace: str = body["metadata"]["namespace"]
        self.labels: Mapping[str, str] = body["metadata"].get("labels") or {}
        self.spec: Mapping[str, Any] = body["spec"]
        self.trainer: Mapping[str, Any] = self.spec.get("trainer") or {}
        self.uid = str(uuid.uuid4())
        self.created_at = time.time()
        self.deleted_at: float | None = None
        self.conditions: list[dict[str, Any]] = []
        self.jobs_status: list[dict[str, Any]] = []
        self.pods: list[Pod] = []
        self.port = port
        self._runtime = runtime
        self._creating_s = creating_s
        self._make_pod = make_pod
        self._on_gone = on_gone
        self._lock = threading.Lock()
        if self.spec.get("suspend"):
            self._become("Suspended", "Suspended", "TrainJob is suspended")
        elif runtime is not None:
            threading.Thread(target=self._run, args=(runtime,), daemon=True).start()

    @property
    def nodes(self) -> int:
        return int(self.trainer.get("numNodes") or 1)

    @property
    def present(self) -> list[Pod]:
        return [pod for pod in self.pods if not pod.gone]

    @property
    def ended(self) -> str:
        return next((c["type"] for c in self.conditions if c["type"] != "Suspended"), "")

    def delete(self) -> None:
        """Delete it in the foreground: it is there until its pods are gone."""
        with self._lock:
            first, self.deleted_at = self.deleted_at is None, self.deleted_at or time.time()
        if first:
            threading.Thread(target=self._delete, daemon=True).start()

    def close(self) -> None:
        self.deleted_at = self.deleted_at or time.time()
        for pod in self.pods:
            pod.kill()

    def _delete(self) -> None:
        self._remove(self.present)
        self._on_gone(self)

    def _remove(self, pods: list[Pod]) -> None:
        for pod in pods:
            pod.delete()
        while any(not pod.gone for pod in pods):
            time.sleep(0.01)

    def _run(self, runtime: Runtime) -> None:
        time.sleep(self._creating_s)
        for attempt in range(runtime.max_restarts + 1):
            if self.deleted_at is not None:
                return
            if attempt:
                self._remove(self.present)
            outcome = self._attempt(runtime)
            if outcome is None:
                return
            if outcome:
                self._tell(succeeded=1)
                self._become("Complete", "AllJobsCompleted", "jobset completed successfully")
                return
            self._tell(failed=1)
        job = f"{self.name}-{runtime.job}-0"
        why = f"jobset failed due to one or more job failures (first failed job: {job})"
        self._become("Failed", "FailedJobs", why)

    def _attempt(self, runtime: Runtime) -> bool | None:
        """Run all pods once; return whether they succeeded, None if the job was deleted."""
        latest = {index: self._new_pod(runtime, index) for index in range(self.nodes)}
        failures = 0
        while self.deleted_at is None:
            phases = {index: pod.phase for index, pod in latest.items()}
            ready = sum(phase == "Running" for phase in phases.values())
            self._tell(active=1, ready=int(ready == self.nodes))
            for index, pod in list(latest.items()):
                if phases[index] == "Failed":
                    failures += not pod.evicted
                    if failures <= runtime.backoff_limit:
                        latest[index] = self._new_pod(runtime, index)
            restarts = sum(pod.restarts for pod in latest.values())
            if failures > runtime.backoff_limit or self._given_up(runtime, restarts, latest):
                # Those that could be started again are ended; those that have ended are kept.
                self._remove([pod for pod in latest.values() if pod.phase == "Running"])
                return False
            if all(phase == "Succeeded" for phase in phases.values()):
                return True
            time.sleep(0.01)
        return None

    def _given_up(self, runtime: Runtime, restarts: int, latest: Mapping[int, Pod]) -> bool:
        if runtime.restart_policy != "OnFailure" or restarts < runtime.backoff_limit:
            return False
        if runtime.backoff_limit:
            return True
        return any(
            pod.container is not None and not pod.container.running and pod.container.exit_code
            for pod in latest.values()
        )

    def _new_pod(self, runtime: Runtime, index: int) -> Pod:
        job = f"{self.name}-{runtime.job}-0"
        suffix = "".join(random.choices(string.ascii_lowercase + string.digits, k=5))
        override = self._override(runtime.job)
        spec = override.get("spec") or {}
        own: Mapping[str, Any] = next(
            (c for c in spec.get("containers") or () if c["name"] == runtime.job), {}
        )
        container = {
            "name": runtime.job,
            "image": self.trainer.get("image") or "pytorch/pytorch",
            "command": self.trainer.get("command") or [],
            "args": self.trainer.get("args") or [],
            "env": self.trainer.get("env") or [],
            "resources": self.trainer.get("resourcesPerNode") or {},
            "volumeMounts": own.get("volumeMounts") or [],
        }
        inherited = ("tolerations", "affinity", "imagePullSecrets", "nodeSelector")
        body = {
            "metadata": {
                "name": f"{job}-{index}-{suffix}",
                "namespace": self.namespace,
                "labels": {
                    **((override.get("metadata") or {}).get("labels") or {}),
                    "jobset.sigs.k8s.io/jobset-name": self.name,
                    "jobset.sigs.k8s.io/replicatedjob-name": runtime.job,
                    "batch.kubernetes.io/job-name": job,
                    "batch.kubernetes.io/job-completion-index": str(index),
                },
                "annotations": (override.get("metadata") or {}).get("annotations") or {},
            },
            "spec": {
                "restartPolicy": runtime.restart_policy,
                "hostname": f"{job}-{index}",
                "subdomain": self.name,
                "containers": [container],
                "volumes": spec.get("volumes") or [],
                **{key: spec[key] for key in inherited if key in spec},
            },
        }
        peers = [f"{job}-{number}" for number in range(self.nodes)]
        hosts = (
            "localhost",
            socket.gethostname(),
            *peers,
            *(f"{peer}.{self.name}" for peer in peers),
        )
        pod = self._make_pod(body, self._told(index, peers[0]), hosts)
        self.pods.append(pod)
        return pod

    def _told(self, index: int, first: str) -> dict[str, str]:
        """Return what a pod is told by the job controller and the plugin for torch."""
        return {
            "JOB_COMPLETION_INDEX": str(index),
            "PET_NNODES": str(self.nodes),
            "PET_NPROC_PER_NODE": str(self.trainer.get("numProcPerNode") or "auto"),
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": f"{first}.{self.name}",
            "PET_MASTER_PORT": str(self.port),
            # Their host names would resolve; here they are all this machine.
            "PET_LOCAL_ADDR": "127.0.0.1",
        }

    def _override(self, job: str) -> Mapping[str, Any]:
        for entry in self.spec.get("podTemplateOverrides") or ():
            if {"name": job} in entry["targetJobs"]:
                found: Mapping[str, Any] = entry
                return found
        return {}

    def _tell(self, **numbers: int) -> None:
        none = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        self.jobs_status = [{"name": NODE, **none, **numbers}]

    def _become(self, kind: str, reason: str, message: str) -> None:
        self.conditions.append(
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": rfc3339(time.time()),
            }
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **self.body,
            "metadata": {
                **self.body["metadata"],
                "uid": self.uid,
                "creationTimestamp": rfc3339(self.created_at),
                **({"deletionTimestamp": rfc3339(self.deleted_at)} if self.deleted_at else {}),
            },
            "status": {
                **({"conditions": self.conditions} if self.conditions else {}),
                **({"jobsStatus": self.jobs_status} if self.jobs_status else {}),
            },
        }
