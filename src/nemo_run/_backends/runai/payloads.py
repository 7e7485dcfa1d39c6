"""Request bodies for Run:ai: from settings to JSON, without a call to Run:ai."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from nemo_run._backends.runai.client import Project
from nemo_run._secrets.masking import mask_environment

TAG_LABEL = "nemo-run/tag"
MOVER_IMAGE = "busybox:1.37.0"
MOVER_IDLE_MINUTES = 5

# Pods and services get suffixes to a workload's name, and Kubernetes takes 63 characters in all.
MAX_NAME = 34
_UNIQUE = 12


def workload_name(role: str, tag: str) -> str:
    """Return a name that only this submission has, made of ``role`` and the end of its tag."""
    words = re.sub(r"[^a-z0-9]+", "-", role.lower()).strip("-") or "job"
    if not words[0].isalpha():
        words = f"j-{words}"
    return f"{words[: MAX_NAME - _UNIQUE - 1].rstrip('-')}-{tag[-_UNIQUE:]}"


def job(
    *,
    name: str,
    project: Project,
    script: str,
    image: str,
    pvcs: Sequence[Mapping[str, Any]],
    gpus: int,
    nodes: int,
    framework: str,
    retries: int,
    env: Mapping[str, str],
    tag: str,
    custom: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the body that creates a training, or with several nodes a distributed workload."""
    spec: dict[str, Any] = {
        "command": f"/bin/bash {script}",
        "image": image,
        "compute": {"largeShmRequest": True, **({"gpuDevicesRequest": gpus} if gpus else {})},
        "storage": {"pvc": [dict(pvc) for pvc in pvcs]},
        # For what looks at them before the script, such as the container's runtime. All users of
        # the project can see these.
        "environmentVariables": [
            {"name": key, "value": value}
            for key, value in mask_environment(env).items()
            if value == env[key]
        ],
        "labels": [{"name": TAG_LABEL, "value": tag}],
        # Left to itself Run:ai starts a failed training six times more.
        "backoffLimit": retries,
        "restartPolicy": "Never",
    }
    if nodes > 1:
        spec |= {"distributedFramework": framework, "numWorkers": nodes}
        if framework == "PyTorch":
            spec |= {"minReplicas": nodes, "maxReplicas": nodes}
    return {
        "name": name,
        # Two of the same name are refused, so that a job cannot be submitted twice.
        "useGivenNameAsPrefix": False,
        "projectId": project.id,
        "clusterId": project.cluster_id,
        "spec": {**spec, **custom},
    }


def mover_prefix(pvcs: Sequence[Mapping[str, Any]], security: Mapping[str, Any]) -> str:
    """Return how the names start of the workspaces that can write to these volumes."""
    what = json.dumps([list(map(dict, pvcs)), dict(security)], sort_keys=True)
    return f"nemo-run-mover-{hashlib.sha256(what.encode()).hexdigest()[:10]}"


def mover(
    *,
    name: str,
    project: Project,
    pvcs: Sequence[Mapping[str, Any]],
    security: Mapping[str, Any],
    used: str,
    idle_minutes: int = MOVER_IDLE_MINUTES,
) -> dict[str, Any]:
    """Return the body of a small workspace that has the volumes.

    It ends itself when the file ``used``, on one of them, was not touched for some minutes.
    """
    wait = (
        f"mkdir -p {PurePosixPath(used).parent}; touch {used}; "
        f'while [ -n "$(find {used} -mmin -{idle_minutes})" ]; do sleep 5; done'
    )
    spec: dict[str, Any] = {
        "command": "sh -c",
        "args": f"'{wait}'",
        "image": MOVER_IMAGE,
        "compute": {"cpuCoreRequest": 0.1, "cpuMemoryRequest": "64M"},
        "storage": {"pvc": [dict(pvc) for pvc in pvcs]},
        "backoffLimit": 0,
        "autoDeletionTimeAfterCompletionSeconds": 60,
    }
    if security:
        spec["security"] = dict(security)
    return {
        "name": name,
        "useGivenNameAsPrefix": False,
        "projectId": project.id,
        "clusterId": project.cluster_id,
        "spec": spec,
    }
