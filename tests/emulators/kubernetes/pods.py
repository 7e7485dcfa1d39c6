"""Pods of the emulated cluster: containers that are processes, started again as a kubelet would."""

from __future__ import annotations

import base64
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from tests.emulators.processes import TERMINATION_LOG, Container, ContainerSpec


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long things take, in seconds; all are shorter than in reality.

    Attributes:
        back_off: before a container is started for the third time; twice as long each time after.
            With six restarts it takes about a minute, in reality some ten, until a job has failed
            and its pods, with their logs, are gone.
        grace: what the half minute is that a pod is given to end.
    """

    creating: float = 0.02
    starting: float = 0.02
    back_off: float = 2.0
    grace: float = 3.0


def rfc3339(moment: float) -> str:
    return f"{datetime.fromtimestamp(int(moment), timezone.utc):%Y-%m-%dT%H:%M:%S}Z"


class World(Protocol):
    """What pods need of their cluster."""

    directory: Path
    hidden: tuple[Path, ...]
    pace: Pace
    may_start: threading.Event

    def volume(self, claim: str) -> Path: ...
    def claim_exists(self, claim: str) -> bool: ...
    def secret_data(self, name: str) -> Mapping[str, str] | None: ...
    def programs(self, image: str) -> str: ...
    def tell(self, name: str, reason: str, message: str) -> None: ...


class Pod:
    """A pod with one container that counts, from its creation to its end."""

    def __init__(
        self,
        body: Mapping[str, Any],
        world: World,
        *,
        env: Mapping[str, str] | None = None,
        hosts: tuple[str, ...] = (),
        ready: Callable[[], bool] = lambda: True,
        on_gone: Callable[[Pod], None],
    ) -> None:
        self.body = body
        self.name: str = body["metadata"]["name"]
        self.labels: Mapping[str, str] = body["metadata"].get("labels") or {}
        self.spec: Mapping[str, Any] = body["spec"]
        self.uid = str(uuid.uuid4())
        self.created_at = time.time()
        self.started_at: float | None = None
        self.deleted_at: float | None = None
        self.containers: list[Container] = []
        self.messages: list[str] = []
        self.waiting = "ContainerCreating"
        self.evicted = False
        self.gone = False
        self._world = world
        self._env = env or {}
        self._hosts = hosts
        self._ready = ready
        self._on_gone = on_gone
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._grace_s = world.pace.grace
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def container(self) -> Container | None:
        return self.containers[-1] if self.containers else None

    @property
    def restarts(self) -> int:
        return max(0, len(self.containers) - 1)

    @property
    def policy(self) -> str:
        return str(self.spec.get("restartPolicy") or "Always")

    @property
    def phase(self) -> str:
        container = self.container
        if self.evicted:
            return "Failed"
        if container is None:
            return "Pending"
        if container.running or self._restarts_after(container):
            return "Running"
        return "Failed" if container.exit_code else "Succeeded"

    def _restarts_after(self, container: Container) -> bool:
        failed = bool(container.exit_code)
        return self.policy == "Always" or (self.policy == "OnFailure" and failed)

    def delete(self, grace_s: float | None = None) -> None:
        """Ask the pod to end; it is gone some time after.

        With no grace at all it is gone at once, and its node ends what runs in it later.
        """
        if grace_s == 0:
            self._on_gone(self)
            grace_s = None
        with self._lock:
            self._grace_s = self._world.pace.grace if grace_s is None else grace_s
            first, self.deleted_at = self.deleted_at is None, self.deleted_at or time.time()
            self._wake.set()
            container = self.container
        if not first and grace_s is not None and container is not None:
            threading.Thread(target=_cut_short, args=(container, grace_s), daemon=True).start()
        if first:
            threading.Thread(target=self._end, daemon=True).start()

    def evict(self) -> None:
        """End the pod as a node does that is to be emptied; it stays to be looked at."""
        with self._lock:
            self.evicted = True
            self._wake.set()
        if self.container is not None:
            self.container.stop(self._world.pace.grace)

    def kill(self) -> None:
        """End everything at once."""
        self.deleted_at = self.deleted_at or time.time()
        self._wake.set()
        with self._lock:  # a container that is being started is ended, too
            container = self.container
        if container is not None:
            container.kill()

    def kill_container(self) -> None:
        """Kill what runs in the container, all of it, as for want of memory."""
        assert self.container is not None
        self.container.kill()

    def _end(self) -> None:
        container = self.container
        if container is not None and container.running:
            container.stop(self._grace_s)
        self._thread.join(10)
        self._on_gone(self)

    def _live(self) -> None:
        pause_s = self._world.pace.starting
        while not self._over():
            self._wake.wait(pause_s)
            pause_s = 0.02
            if self._world.may_start.is_set() and not self._over() and self._mountable():
                break
        while not self._over():
            with self._lock:
                if self._over():
                    return
                container = self._start()
            code = container.wait()
            self._hear(container)
            if self._over() or not self._restarts_after(container):
                return
            self.waiting = "CrashLoopBackOff" if code else "Completed"
            # The first time, a kubelet starts it again at once.
            self._wake.wait(
                self._world.pace.back_off * (2 ** (self.restarts - 1) * bool(self.restarts))
            )

    def _over(self) -> bool:
        return self.deleted_at is not None or self.evicted

    def _mountable(self) -> bool:
        for volume in self.spec.get("volumes") or ():
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            secret = (volume.get("secret") or {}).get("secretName")
            if claim and not self._world.claim_exists(claim):
                self._world.tell(self.name, "FailedScheduling", f"claim {claim} not found")
                return False
            if secret and self._world.secret_data(secret) is None:
                self._world.tell(self.name, "FailedMount", f"secret {secret} not found")
                return False
        return True

    def _start(self) -> Container:
        described = self.spec["containers"][0]
        directory = self._world.directory / "pods" / f"{self.name}-{len(self.containers)}"
        directory.mkdir(parents=True, mode=0o700)
        env = {"HOSTNAME": str(self.spec.get("hostname") or self.name), **self._env}
        env["PATH"] = self._world.programs(described.get("image", ""))
        for variable in described.get("env") or ():
            env[variable["name"]] = self._value(variable, env)
        argv = (*(described.get("command") or ()), *(described.get("args") or ()))
        files = {TERMINATION_LOG: ""}
        if self._hosts:
            files["/etc/hosts"] = "".join(f"127.0.0.1 {name}\n" for name in self._hosts)
        container = Container(
            ContainerSpec(
                argv=tuple(expanded(word, env) for word in argv),
                env=env,
                mounts=self._mounts(described),
                files=files,
                hidden=tuple(path for path in self._world.hidden if path.is_dir()),
                cwd=described.get("workingDir") or "/",
            ),
            directory,
        )
        self.started_at = self.started_at or time.time()
        self.containers.append(container)
        return container

    def _hear(self, container: Container) -> None:
        self.messages.append(container.text(TERMINATION_LOG)[:4096])

    def _value(self, variable: Mapping[str, Any], env: Mapping[str, str]) -> str:
        source = variable.get("valueFrom") or {}
        if "secretKeyRef" in source:
            data = self._world.secret_data(source["secretKeyRef"]["name"]) or {}
            return base64.b64decode(data[source["secretKeyRef"]["key"]]).decode()
        return expanded(str(variable.get("value", "")), env)

    def _mounts(self, described: Mapping[str, Any]) -> dict[str, Path]:
        places = {volume["name"]: self._place(volume) for volume in self.spec.get("volumes") or ()}
        return {
            mount["mountPath"]: places[mount["name"]]
            for mount in described.get("volumeMounts") or ()
        }

    def _place(self, volume: Mapping[str, Any]) -> Path:
        """Return the directory of this machine that is a volume of the pod."""
        if claim := volume.get("persistentVolumeClaim"):
            return self._world.volume(claim["claimName"])
        place = self._world.directory / "pods" / f"{self.name}-volumes" / str(volume["name"])
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if secret := volume.get("secret"):
            for key, value in (self._world.secret_data(secret["secretName"]) or {}).items():
                (place / key).touch(mode=0o600)
                (place / key).write_bytes(base64.b64decode(value))
        for item in (volume.get("downwardAPI") or {}).get("items") or ():
            key = item["fieldRef"]["fieldPath"].partition("['")[2].removesuffix("']")
            (place / item["path"]).write_text(self.body["metadata"]["annotations"][key])
        return place

    def to_json(self) -> dict[str, Any]:
        metadata = {
            **self.body["metadata"],
            "uid": self.uid,
            "creationTimestamp": rfc3339(self.created_at),
            **({"deletionTimestamp": rfc3339(self.deleted_at)} if self.deleted_at else {}),
        }
        containers = list(self.containers)
        states = [self._state(number) for number in range(len(containers))]
        last = {"lastState": states[-2]} if len(states) > 1 else {}
        state = states[-1] if states else {"waiting": {"reason": self.waiting}}
        if self.phase == "Running" and "terminated" in state:
            # Between two starts the one before is the last one.
            state, last = {"waiting": {"reason": self.waiting}}, {"lastState": state}
        ready = "running" in state and self._ready()
        status: dict[str, Any] = {
            "phase": self.phase,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [
                {
                    "name": self.spec["containers"][0]["name"],
                    "image": self.spec["containers"][0].get("image", ""),
                    "imageID": "",
                    "ready": ready,
                    "restartCount": max(0, len(containers) - 1),
                    "state": state,
                    **last,
                }
            ],
        }
        if self.evicted:
            status |= {"reason": "Evicted", "message": "The node is to be emptied."}
        if self.started_at:
            status["startTime"] = rfc3339(self.started_at)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": self.spec,
            "status": status,
        }

    def _state(self, number: int) -> dict[str, Any]:
        container = self.containers[number]
        if container.running or number >= len(self.messages):
            return {"running": {"startedAt": rfc3339(container.started_at)}}
        ended = {
            "exitCode": container.exit_code,
            "reason": "Error" if container.exit_code else "Completed",
            "startedAt": rfc3339(container.started_at),
            "finishedAt": rfc3339(container.ended_at or time.time()),
        }
        message = self.messages[number]
        return {"terminated": {**ended, **({"message": message} if message else {})}}


def _cut_short(container: Container, grace_s: float) -> None:
    """End what was asked to end before, and was given longer then."""
    if container.wait(grace_s) is None:
        container.kill()


def expanded(value: str, env: Mapping[str, str]) -> str:
    """Do to a text what Kubernetes does: ``$(NAME)`` is replaced, ``$$`` is a dollar."""

    def replace(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\((\w+)\)", replace, value)
