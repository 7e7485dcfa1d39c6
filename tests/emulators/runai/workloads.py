"""Workloads of the emulated cluster: their pods, which are processes, and their phases."""

from __future__ import annotations

import functools
import random
import shlex
import string
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.emulators.processes import TERMINATION_LOG, Container, ContainerSpec

ENDED = frozenset({"Completed", "Failed", "Stopped"})


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long things take, in seconds; all are shorter than in reality."""

    creating: float = 0.02
    pending: float = 0.02
    starting: float = 0.02
    retry: float = 0.1
    grace: float = 0.8


def rfc3339(moment: float) -> str:
    whole = datetime.fromtimestamp(int(moment), timezone.utc)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{int(moment % 1 * 1e6):06d}Z"


@dataclass
class Pod:
    """A pod with one container."""

    name: str
    container: Container | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: float = field(default_factory=time.time)
    gone: bool = False

    @property
    def phase(self) -> str:
        if self.container is None:
            return "Pending"
        if self.container.running:
            return "Running"
        return "Failed" if self.container.exit_code else "Succeeded"

    def stop(self, grace_s: float) -> None:
        if self.container is not None:
            self.container.stop(grace_s)
        self.gone = True

    def to_json(self, workload: Workload) -> dict[str, Any]:
        """As the control plane shows it."""
        container = self.container
        ended_at = None if container is None else container.ended_at
        return {
            "name": self.name,
            "priorityClassName": "medium",
            "id": self.id,
            "workloadId": workload.id,
            "clusterId": workload.body["clusterId"],
            "projectId": workload.body["projectId"],
            "createdAt": rfc3339(self.created_at),
            "completedAt": None if ended_at is None else rfc3339(ended_at),
            "containers": [
                {
                    "name": "main",
                    "image": workload.spec["image"],
                    "startedAt": container and rfc3339(container.started_at),
                },
                {"name": "sidecar", "image": "some/sidecar"},
            ],
            "k8sPhase": self.phase,
            "tenantId": 1,
            "k8sPhaseUpdatedAt": rfc3339(time.time()),
            "updatedAt": rfc3339(time.time()),
        }

    def to_kubernetes(self) -> dict[str, Any]:
        """As Kubernetes shows it."""
        container = self.container
        if container is None:
            state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        elif container.running:
            state = {"running": {"startedAt": rfc3339(container.started_at)}}
        else:
            reason = "Error" if container.exit_code else "Completed"
            ended = {"exitCode": container.exit_code, "reason": reason}
            state = {"terminated": {**ended, "message": container.text(TERMINATION_LOG)}}
        return {
            "kind": "Pod",
            "metadata": {"name": self.name},
            "status": {
                "phase": self.phase,
                "containerStatuses": [{"name": "main", "state": state}],
            },
        }


class Workload:
    """A training, distributed workload or workspace, from its creation to its end."""

    def __init__(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        pace: Pace,
        may_start: threading.Event,
        container: Callable[[Workload, Pod, int], ContainerSpec],
        directory: Path,
        port: int,
    ) -> None:
        self.kind = kind
        self.body = body
        self.spec: Mapping[str, Any] = body["spec"]
        self.name: str = body["name"]
        if body.get("useGivenNameAsPrefix"):
            self.name += "-" + "".join(random.choices(string.ascii_lowercase, k=5))
        self.id = str(uuid.uuid4())
        self.created_at = time.time()
        self.deleted_at: float | None = None
        self.phase = "Creating"
        self.message = ""
        self.desired = "Running"
        self.pods: list[Pod] = []
        self.events: list[tuple[float, str]] = []
        self._run_number = 0
        self._pace = pace
        self._may_start = may_start
        self._container = container
        self._directory = directory
        self._changed = threading.Condition()
        self.port = port
        self._start()

    @property
    def replicas(self) -> int:
        return int(self.spec.get("numWorkers", 1)) if self.kind == "distributed" else 1

    @property
    def running_pods(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.phase == "Running"]

    @property
    def argv(self) -> tuple[str, ...]:
        return (*shlex.split(self.spec["command"]), *shlex.split(self.spec.get("args", "")))

    def suspend(self) -> None:
        with self._changed:
            if self.phase in ENDED or self.desired != "Running":
                return
            self.desired = "Stopped"
            self._become("Stopping")
        self._turn(self._stop)

    def resume(self) -> None:
        with self._changed:
            if self.phase != "Stopped":
                return
            self.desired = "Running"
            self._become("Resuming")
        self._start()

    def delete(self) -> None:
        with self._changed:
            already, self.desired = self.desired == "Deleted", "Deleted"
            if not already and self.phase not in ENDED:
                self._become("Deleting")
        if not already:
            self._turn(self._delete)

    def close(self) -> None:
        """End everything at once."""
        self.desired = "Deleted"
        for pod in self.pods:
            if pod.container is not None:
                pod.container.kill()

    def _start(self) -> None:
        # Whoever ran it before a suspend has no say any more.
        self._run_number += 1
        self._turn(functools.partial(self._run, self._run_number))

    def _turn(self, act: Callable[[], None]) -> None:
        threading.Thread(target=act, daemon=True).start()

    def _become(self, phase: str, message: str = "") -> None:
        self.phase, self.message = phase, message
        self.events.append((time.time(), message or phase))

    def _wanted(self, run: int) -> bool:
        return self.desired == "Running" and run == self._run_number

    def _advance(self, run: int, phase: str, message: str = "") -> bool:
        """Go on to a phase, unless somebody wants it to end."""
        with self._changed:
            if self._wanted(run):
                self._become(phase, message)
                return True
            return False

    def _run(self, run: int) -> None:
        for phase, seconds in (
            ("Initializing", self._pace.creating),
            ("Pending", self._pace.pending),
        ):
            time.sleep(seconds)
            if not self._advance(run, phase):
                return
        while not self._may_start.wait(0.05):
            if not self._wanted(run):
                return
        attempts = 1 + int(self.spec.get("backoffLimit", 6 if self.kind == "trainings" else 0))
        for attempt in range(attempts):
            if attempt:
                time.sleep(self._pace.retry)
            if not self._wanted(run):
                return
            codes = self._attempt(run)
            if not any(codes):
                self._advance(run, "Completed")
                return
        self._advance(run, "Failed", "BackoffLimitExceeded" if attempts > 1 else "a pod failed")

    def _attempt(self, run: int) -> list[int | None]:
        pods = [Pod(self._pod_name(rank)) for rank in range(self.replicas)]
        self.pods += pods
        time.sleep(self._pace.starting)
        for rank, pod in enumerate(pods):
            with self._changed:
                if not self._wanted(run):
                    pod.gone = True
                    return [None]
                pod.container = Container(
                    self._container(self, pod, rank), self._directory / pod.name
                )
        self._advance(run, "Running")
        return self._wait(pods)

    def _wait(self, pods: list[Pod]) -> list[int | None]:
        """Wait for all pods; one that fails takes the others with it."""
        while any(pod.phase == "Running" for pod in pods):
            if any(pod.phase == "Failed" for pod in pods):
                for pod in pods:
                    if pod.container is not None:
                        pod.container.stop(self._pace.grace)
            time.sleep(0.01)
        return [pod.container.exit_code if pod.container else None for pod in pods]

    def _pod_name(self, rank: int) -> str:
        if self.kind == "distributed":
            return f"{self.name}-worker-{rank}"
        suffix = "".join(random.choices(string.ascii_lowercase + string.digits, k=5))
        return f"{self.name}-{suffix}"

    def _stop(self) -> None:
        threads = [
            threading.Thread(target=pod.stop, args=(self._pace.grace,), daemon=True)
            for pod in list(self.pods)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._changed:
            if self.desired == "Stopped":
                self._become("Stopped")

    def _delete(self) -> None:
        self._stop()
        self.deleted_at = time.time()

    def to_json(self) -> dict[str, Any]:
        """As the calls for its kind show it."""
        return {
            "name": self.name,
            "requestedName": self.body["name"],
            "workloadId": self.id,
            "projectId": self.body["projectId"],
            "clusterId": self.body["clusterId"],
            "createdBy": "emulator",
            "createdAt": rfc3339(self.created_at),
            "desiredPhase": self.desired,
            "actualPhase": self.phase,
            "spec": self.spec,
        }

    def to_list_item(self) -> dict[str, Any]:
        """As the call for all workloads shows it."""
        changed_at = rfc3339(self.events[-1][0] if self.events else self.created_at)
        return {
            "id": self.id,
            "name": self.name,
            "type": self.kind.removesuffix("s").capitalize(),
            "category": "Train",
            "source": "Control-plane",
            "tenantId": 1,
            "projectId": self.body["projectId"],
            "projectName": "emulated",
            "departmentId": "1",
            "departmentName": "default",
            "namespace": "emulated",
            "clusterId": self.body["clusterId"],
            "priority": 50,
            "priorityClassName": "medium",
            "phase": self.phase,
            "phaseMessage": self.message,
            "phaseUpdatedAt": changed_at,
            "k8sPhase": self.phase,
            "k8sPhaseUpdatedAt": changed_at,
            "updatedAt": changed_at,
            "conditions": [],
            "runningPods": len(self.running_pods),
            "createdAt": rfc3339(self.created_at),
            "deletedAt": None if self.deleted_at is None else rfc3339(self.deleted_at),
        }

    def events_json(self) -> list[dict[str, Any]]:
        """As the call for its events shows them."""
        return [
            {
                "createdAt": rfc3339(moment),
                "type": "Normal",
                "clusterId": self.body["clusterId"],
                "message": text,
            }
            for moment, text in self.events
        ]
