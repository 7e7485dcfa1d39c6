"""Objects for Kubernetes: from settings to JSON, without a call to the cluster."""

from __future__ import annotations

import base64
import copy
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nemo_run._backends.kubeflow.client import GROUP, MARK_LABEL, TAG_LABEL, VERSION, TrainJob
from nemo_run._secrets.masking import holds_secret

if TYPE_CHECKING:
    from nemo_run.core.execution.kubeflow import KubeflowExecutor

KIND = "TrainJob"
PURPOSE_LABEL = "nemo-run/purpose"
NODE = "node"
"""What runtimes of Kubeflow call the job, and its container, that trains."""
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"

WORKDIR_VOLUME = "nemo-run-workdir"
JOB_VOLUME = "nemo-run-job"
FILES_VOLUME = "nemo-run-files"
JOB_PATH = "/nemo_run_job"
RUNDIR = "/nemo_run"
SCRIPT_KEY, FILES_KEY = "launch.sh", "files.tar.gz"
MOVER = "mover"

# Pods are called <name>-node-0-<index>-<5 characters>, and names of pods are host names.
MAX_NAME = 33
_UNIQUE = 12
_MOVER_S = 2 * 3600


def trainjob_name(base: str, tag: str) -> str:
    """Return a name that only this submission has, made of ``base`` and the end of its tag."""
    words = re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-") or "job"
    if not words[0].isalpha():
        words = f"j-{words}"
    return f"{words[: MAX_NAME - _UNIQUE - 1].rstrip('-')}-{tag[-_UNIQUE:]}"


def job_body(executor: KubeflowExecutor, name: str, command: Sequence[str]) -> dict[str, Any]:
    """Return a TrainJob as the settings describe it, and nothing of ours but the work volume."""
    metadata: dict[str, Any] = {"name": name, "namespace": executor.namespace}
    for key in ("labels", "annotations"):
        if value := getattr(executor, key):
            metadata[key] = dict(value)
    trainer: dict[str, Any] = {
        "numNodes": executor.num_nodes,
        "numProcPerNode": executor.nproc_per_node(),
        "image": executor.image,
        "command": list(command),
        "env": [*_variables(executor.env_vars, name), *copy.deepcopy(executor.env_list)],
    }
    if resources := _resources(executor):
        trainer["resourcesPerNode"] = resources
    trainer |= copy.deepcopy(executor.container_kwargs)
    spec: dict[str, Any] = {"runtimeRef": {"name": executor.runtime_ref}, "trainer": trainer}
    if overrides := _overrides(executor):
        spec["podTemplateOverrides"] = [overrides]
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": metadata,
        "spec": {**spec, **copy.deepcopy(executor.spec_kwargs)},
    }


def literal(text: str) -> str:
    """Return a text that Kubernetes turns into ``text``: it replaces ``$(NAME)`` and ``$$``."""
    return text.replace("$", "$$")


def _variables(env: Mapping[str, str], secret: str) -> list[dict[str, Any]]:
    # All users of the namespace can see these; the job's secret has what they must not.
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}
        if holds_secret(name, value)
        else {"name": name, "value": literal(value)}
        for name, value in env.items()
    ]


def _resources(executor: KubeflowExecutor) -> dict[str, dict[str, str]]:
    found = {}
    for side in ("requests", "limits"):
        amounts = {
            "cpu": getattr(executor, f"cpu_{side}"),
            "memory": getattr(executor, f"memory_{side}"),
            "nvidia.com/gpu": str(executor.gpus_per_node) if executor.gpus_per_node else None,
            **getattr(executor, f"extra_resource_{side}"),
        }
        if given := {key: str(value) for key, value in amounts.items() if value is not None}:
            found[side] = given
    return found


def _overrides(executor: KubeflowExecutor) -> dict[str, Any]:
    """Return what goes over the pods of the runtime; empty where nothing does."""
    volumes, mounts = copy.deepcopy(executor.volumes), copy.deepcopy(executor.volume_mounts)
    if executor.workdir_pvc and executor.workdir_pvc not in _claims(volumes):
        volumes.append(claim_volume(executor.workdir_pvc))
        mounts.append({"name": WORKDIR_VOLUME, "mountPath": executor.workdir_pvc_path})
    spec: dict[str, Any] = {
        "volumes": volumes,
        "imagePullSecrets": [{"name": name} for name in executor.image_pull_secrets],
        "tolerations": copy.deepcopy(executor.tolerations),
        "affinity": copy.deepcopy(executor.affinity),
        "containers": [{"name": NODE, "volumeMounts": mounts}] if mounts else [],
        **copy.deepcopy(executor.pod_spec_overrides),
    }
    entry: dict[str, Any] = {}
    if spec := {key: value for key, value in spec.items() if value}:
        entry["spec"] = spec
    labels = {"labels": dict(executor.pod_labels), "annotations": dict(executor.pod_annotations)}
    if metadata := {key: value for key, value in labels.items() if value}:
        entry["metadata"] = metadata
    return {"targetJobs": [{"name": NODE}], **entry} if entry else {}


def _claims(volumes: Sequence[Mapping[str, Any]]) -> set[str]:
    return {(volume.get("persistentVolumeClaim") or {}).get("claimName", "") for volume in volumes}


def claim_volume(claim: str) -> dict[str, Any]:
    return {"name": WORKDIR_VOLUME, "persistentVolumeClaim": {"claimName": claim}}


def submitted_body(
    executor: KubeflowExecutor,
    name: str,
    command: Sequence[str],
    *,
    tag: str,
    nonce: str = "",
) -> dict[str, Any]:
    """Return a TrainJob with what a job of ours needs: its tag, its secret, a place for files."""
    body = job_body(executor, name, [literal(word) for word in command])
    labels = body["metadata"].get("labels", {})
    body["metadata"]["labels"] = {**labels, TAG_LABEL: tag}
    if nonce:
        body["metadata"]["labels"][MARK_LABEL] = nonce
    volumes: list[dict[str, Any]] = [{"name": JOB_VOLUME, "secret": {"secretName": name}}]
    mounts = [{"name": JOB_VOLUME, "mountPath": JOB_PATH, "readOnly": True}]
    inner, container = _training_pod(body["spec"])
    if not executor.workdir_pvc:
        volumes.append({"name": FILES_VOLUME, "emptyDir": {}})
        mounts.append({"name": FILES_VOLUME, "mountPath": RUNDIR})
    else:
        # Settings that go over others may have taken away one or both.
        there = {str(volume.get("name")): volume for volume in inner.get("volumes", ())}
        name = _mounted_at(container, executor.workdir_pvc_path)
        if not name:
            ours = (key for key in there if executor.workdir_pvc in _claims([there[key]]))
            name = next(ours, WORKDIR_VOLUME)
            mounts.append({"name": name, "mountPath": executor.workdir_pvc_path})
        if name not in there:
            volumes.append({**claim_volume(executor.workdir_pvc), "name": name})
    inner["volumes"] = [*inner.get("volumes", ()), *volumes]
    container["volumeMounts"] = [*container.get("volumeMounts", ()), *mounts]
    return body


def _mounted_at(container: Mapping[str, Any], path: str) -> str:
    """Return the name of the volume that a container has at a path, empty where it has none."""
    mounts = container.get("volumeMounts") or ()
    found = (m for m in mounts if str(m.get("mountPath")).rstrip("/") == path.rstrip("/"))
    return next((str(mount.get("name")) for mount in found), "")


def _training_pod(spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what goes over the pods that train, and over their container, to be added to.

    It is made where settings of the user's do not have it.
    """
    targets = [{"name": NODE}]
    entries = spec.setdefault("podTemplateOverrides", [])
    entry = next((item for item in entries if item.get("targetJobs") == targets), None)
    if entry is None:
        entry = {"targetJobs": targets}
        entries.append(entry)
    inner = entry.setdefault("spec", {})
    containers = inner.setdefault("containers", [])
    container = next((item for item in containers if item.get("name") == NODE), None)
    if container is None:
        container = {"name": NODE}
        containers.append(container)
    return inner, container


def secret_body(
    executor: KubeflowExecutor, name: str, *, tag: str, data: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return the secret of a job: what it runs, and variables that only it may see."""
    hidden = {
        entry["name"]: executor.env_vars[entry["name"]].encode()
        for entry in _variables(executor.env_vars, name)
        if "valueFrom" in entry
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "namespace": executor.namespace,
            "labels": {TAG_LABEL: tag, PURPOSE_LABEL: "job"},
        },
        "data": {
            key: base64.b64encode(value).decode() for key, value in {**hidden, **data}.items()
        },
    }


def owned_by(job: TrainJob) -> dict[str, Any]:
    """Return the change that lets an object go when a TrainJob does."""
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
    }
    return {"metadata": {"ownerReferences": [owner]}}


def mover_body(
    *,
    start: str,
    namespace: str,
    image: str,
    volumes: Sequence[Mapping[str, Any]],
    mounts: Sequence[Mapping[str, Any]],
    pod: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a pod that has volumes and waits; ``start`` is how its name begins.

    ``pod`` is what it inherits of the job's pods. It ends itself if its launcher does not.
    """
    inherited = ("tolerations", "affinity", "imagePullSecrets", "securityContext", "nodeSelector")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{start[:50].rstrip('-')}-{os.urandom(4).hex()}",
            "namespace": namespace,
            "labels": {PURPOSE_LABEL: MOVER},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _MOVER_S,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": MOVER,
                    "image": image,
                    "command": ["sh", "-c", f"sleep {_MOVER_S}"],
                    "volumeMounts": [dict(mount) for mount in mounts],
                }
            ],
            "volumes": [dict(volume) for volume in volumes],
            **{key: pod[key] for key in inherited if pod.get(key)},
        },
    }


def mover_pod(executor: KubeflowExecutor) -> dict[str, Any]:
    """Return what a mover inherits of the settings for the job's pods."""
    return dict(_overrides(executor).get("spec") or {})
