"""A job of the emulated workspace: its replicas, its states, and what the API says of it."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulators.processes import Container, ContainerSpec

ENDED = frozenset({"Completed", "Failed", "Stopped", "Deleted"})
MISSING_IMAGES = "missing/"
"""Images whose name starts with this cannot be pulled."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long a job stays in the states that say nothing of the program itself."""

    queueing_s: float = 0.02
    starting_s: float = 0.02
    readying_s: float = 0.02
    retry_s: float = 0.05
    stopping_grace_s: float = 1.0


@dataclass
class Replica:
    """One container, or one that has been."""

    id: str
    index: int
    created_at_ms: int
    container: Container


@dataclass(frozen=True)
class Event:
    kind: str
    reason: str
    time: float = field(default_factory=time.time)


class Job:
    """Runs in threads of its own from its creation to its end."""

    def __init__(
        self,
        body: Mapping[str, Any],
        *,
        owner: str,
        pace: Pace,
        may_start: threading.Event,
        container: Callable[[Job, int], ContainerSpec],
        directory: Path,
    ) -> None:
        self.metadata: dict[str, Any] = dict(body["metadata"])
        self.spec: dict[str, Any] = dict(body["spec"])
        self.id: str = self.metadata["id"]
        self.owner = owner
        self.created_at = time.time()
        self.completed_at: float | None = None
        self.state = "Queueing"
        self.archived = False
        self.replicas: list[Replica] = []
        self.events: list[Event] = []
        self.history: list[dict[str, Any]] = []
        self.counts = {"ready": 0, "active": 0, "failed": 0, "succeeded": 0}
        self._pace = pace
        self._may_start = may_start
        self._container = container
        self._directory = directory
        self._stopping = threading.Event()
        self._deleting = False
        self._lock = threading.RLock()
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    @property
    def size(self) -> int:
        return int(self.spec.get("completions") or 1)

    @property
    def attempt(self) -> int:
        return len(self.history)

    @property
    def current(self) -> list[Replica]:
        """The replicas of the present attempt."""
        return self.replicas[self.attempt * self.size :]

    def stop(self) -> None:
        with self._lock:
            if self.state not in ENDED:
                self.state = "Stopping"
                self._stopping.set()
                self._end_containers()

    def delete(self) -> None:
        with self._lock:
            self._deleting = True
            if self.state in ENDED:
                self.archived = True
            else:
                self.state = "Deleting"
                self._stopping.set()
                self._end_containers(grace_s=0)

    def close(self) -> None:
        """Leave nothing running, whatever state the job is in."""
        self._stopping.set()
        for replica in self.replicas:
            replica.container.kill()
        self.thread.join(10)

    def to_json(self) -> dict[str, Any]:
        with self._lock:
            return {
                "metadata": {
                    **self.metadata,
                    "name": self.metadata.get("name") or self.id,
                    "created_at": int(self.created_at * 1000),
                    "created_by": self.owner,
                    "owner": self.owner,
                },
                "spec": self.spec,
                "status": {**self._details(), "job_history": list(self.history)},
            }

    def _details(self) -> dict[str, Any]:
        return {
            "job_name": self.id,
            "state": self.state,
            **self.counts,
            "creation_time": int(self.created_at),
            "completion_time": int(self.completed_at) if self.completed_at else None,
        }

    def _live(self) -> None:
        while not (self._may_start.wait(0.05) or self._stopping.is_set()):
            pass
        retries = int(self.spec.get("max_job_failure_retry") or 0)
        self._pause(self._pace.queueing_s)
        while True:
            failed = self._attempt()
            with self._lock:
                if self._stopping.is_set():
                    self._finish("Deleted" if self._deleting else "Stopped")
                    return
                if not failed:
                    self._finish("Completed")
                    return
                if self.attempt >= retries:
                    self._finish("Failed")
                    return
                self.history.append({**self._details(), "state": "Failed"})
                self.state = "PendingRetry"
                self.counts.update(ready=0, active=0)
            self._pause(self._pace.retry_s)
            self._move_to("Restarting")

    def _attempt(self) -> bool:
        """Run every replica once; return whether one failed."""
        if self._stopping.is_set():
            return False
        if self.state != "Restarting":
            self._move_to("Starting")
        self._pause(self._pace.starting_s)
        if self.spec["container"].get("image", "").startswith(MISSING_IMAGES):
            self.events.append(Event("Warning", "ImagePullBackOff"))
            self._stopping.wait()
            return False
        for index in range(self.size):
            with self._lock:
                if self._stopping.is_set():
                    break
                self._start(index)
        self._become_ready()
        return self._watch()

    def _start(self, index: int) -> None:
        replica_id = f"{self.id}-{index}-{secrets.token_hex(3)[:5]}"
        spec = self._container(self, index)
        container = Container(spec, self._directory / replica_id)
        self.replicas.append(Replica(replica_id, index, int(time.time() * 1000), container))
        self.counts["active"] += 1

    def _become_ready(self) -> None:
        # A container is ready a moment after it has started: until then ready < active.
        self._move_to("Running")
        self._pause(self._pace.readying_s)
        with self._lock:
            self.counts["ready"] = self.counts["active"]

    def _watch(self) -> bool:
        """Wait for the replicas; one that fails ends the others, as a distributed job wants it."""
        per_worker = int(self.spec.get("max_failure_retry") or 0)
        tries = dict.fromkeys(range(self.size), 0)
        failed = False
        waiting = list(self.current)
        while waiting:
            for replica in list(waiting):
                code = replica.container.wait(0.02)
                if code is None:
                    continue
                waiting.remove(replica)
                with self._lock:
                    self.counts["active"] -= 1
                    self.counts["ready"] = min(self.counts["ready"], self.counts["active"])
                    self.counts["succeeded" if code == 0 else "failed"] += 1
                if code == 0 or self._stopping.is_set() or failed:
                    continue
                if tries[replica.index] < per_worker:
                    tries[replica.index] += 1
                    with self._lock:
                        self._start(replica.index)
                    waiting.append(self.replicas[-1])
                    continue
                failed = True
                for other in waiting:
                    other.container.stop(self._pace.stopping_grace_s)
        return failed

    def _end_containers(self, grace_s: float | None = None) -> None:
        grace_s = self._pace.stopping_grace_s if grace_s is None else grace_s
        for replica in self.replicas:
            if replica.container.running:
                threading.Thread(
                    target=replica.container.stop, args=(grace_s,), daemon=True
                ).start()

    def _finish(self, state: str) -> None:
        self.counts.update(ready=0, active=0)
        self.completed_at = time.time()
        self.state = state
        self.archived = self._deleting

    def _move_to(self, state: str) -> None:
        with self._lock:
            if not self._stopping.is_set():
                self.state = state

    def _pause(self, seconds: float) -> None:
        self._stopping.wait(seconds)
