"""RayClusters and RayJobs for KubeRay: from settings to JSON, without a call to the cluster."""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nemo_run._backends.kubeflow.client import TAG_LABEL
from nemo_run._backends.kubeflow.manifests import literal
from nemo_run._secrets.masking import holds_secret
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup

GROUP, VERSION, PLURAL, KIND = "ray.io", "v1", "rayclusters", "RayCluster"
JOBS, JOB_KIND = "rayjobs", "RayJob"
COMMAND_ANNOTATION = "nemo-run/command"
COMMAND_VOLUME, COMMAND_PATH = "nemo-run-command", "/nemo_run_ray"
HEAD, WORKER = "ray-head", "ray-worker"
TOKENS_SINCE = (2, 52)
"""The first Ray that can ask its clients for a token."""
MAX_CLUSTER_NAME, MAX_JOB_NAME = 63, 47
"""The operator makes names of others by adding to these."""

Cluster = dict[str, Any]

_NAME = re.compile(r"[a-z0-9][-a-z0-9.]*[a-z0-9]")
_LABEL = re.compile(r"[a-z0-9][-a-z0-9._]*[a-z0-9]")
_PLAIN = re.compile(r"[\w./:,@%+-]+( [\w./=:,@%+-]+)*", re.ASCII)


def is_valid_name(name: str) -> bool:
    """Tell whether Kubernetes takes a name: 2 to 63 of lower case, digits, ``-`` and ``.``."""
    return len(name) <= 63 and _NAME.fullmatch(name) is not None


def is_valid_label(name: str) -> bool:
    """Tell whether Kubernetes takes a label: as a name, and ``_`` may be inside."""
    return len(name) <= 63 and _LABEL.fullmatch(name) is not None


def check_name(name: str, what: str) -> str:
    """Return a name that Kubernetes takes.

    Raises:
        ConfigError: it does not take this one.
    """
    if not is_valid_name(name):
        raise ConfigError(
            f"{what} {name!r} is not what Kubernetes takes: 2 to 63 lower case letters, digits "
            "and '-' or '.', with a letter or digit first and last."
        )
    return name


def populate_meta(
    cluster: Cluster,
    name: str,
    k8s_namespace: str = "default",
    labels: Mapping[str, Any] | None = None,
    ray_version: str = "",
) -> Cluster:
    """Put kind, name, namespace, labels and the version of Ray into a RayCluster; return it."""
    cluster["apiVersion"] = f"{GROUP}/{VERSION}"
    cluster["kind"] = KIND
    cluster["metadata"] = {
        "name": check_name(name, "The name"),
        "namespace": k8s_namespace,
        "labels": dict(labels or {}),
    }
    spec = cluster.setdefault("spec", {})
    if ray_version:
        spec["rayVersion"] = ray_version
    return cluster


def populate_ray_head(
    cluster: Cluster,
    *,
    image: str,
    service_type: str = "ClusterIP",
    cpu: str = "1",
    memory: str = "2Gi",
    ray_start_params: Mapping[str, Any] | None = None,
    ports: Sequence[Mapping[str, Any]] = (),
    env: Sequence[Mapping[str, Any]] = (),
    volumes: Sequence[Mapping[str, Any]] = (),
    volume_mounts: Sequence[Mapping[str, Any]] = (),
    spec_kwargs: Mapping[str, Any] | None = None,
    container_kwargs: Mapping[str, Any] | None = None,
    lifecycle_kwargs: Mapping[str, Any] | None = None,
) -> Cluster:
    """Put the head into a RayCluster; return it."""
    amounts = {"cpu": cpu, "memory": memory}
    container = {
        "name": HEAD,
        "image": image,
        "ports": copy.deepcopy(list(ports)),
        "env": copy.deepcopy(list(env)),
        "lifecycle": _lifecycle(lifecycle_kwargs),
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "volumeMounts": copy.deepcopy(list(volume_mounts)),
        **copy.deepcopy(dict(container_kwargs or {})),
    }
    # The operator asks the dashboard by the head's service, so loopback alone would not do.
    params = {"dashboard-host": "0.0.0.0", **_texts(ray_start_params)}
    cluster.setdefault("spec", {})["headGroupSpec"] = {
        "serviceType": service_type,
        "rayStartParams": params,
        "template": {"metadata": {}, "spec": _pod(container, volumes, spec_kwargs)},
    }
    return cluster


def populate_worker_group(
    cluster: Cluster,
    group: KubeRayWorkerGroup,
    *,
    image: str,
    ray_start_params: Mapping[str, Any] | None = None,
    env: Sequence[Mapping[str, Any]] = (),
    volumes: Sequence[Mapping[str, Any]] | None = None,
    volume_mounts: Sequence[Mapping[str, Any]] | None = None,
    spec_kwargs: Mapping[str, Any] | None = None,
    container_kwargs: Mapping[str, Any] | None = None,
    lifecycle_kwargs: Mapping[str, Any] | None = None,
) -> Cluster:
    """Add a group of workers to a RayCluster; return it."""
    least = group.replicas if group.min_replicas is None else group.min_replicas
    most = group.replicas if group.max_replicas is None else group.max_replicas
    check_order(group.group_name, least, most)
    mounts = group.volume_mounts if volume_mounts is None else volume_mounts
    container = {
        "name": WORKER,
        "image": image,
        "env": copy.deepcopy(list(env)),
        "lifecycle": _lifecycle(lifecycle_kwargs),
        "resources": _resources(group),
        "volumeMounts": copy.deepcopy(list(mounts)),
        **copy.deepcopy(dict(container_kwargs or {})),
    }
    metadata = {"labels": dict(group.labels), "annotations": dict(group.annotations)}
    pod = _pod(container, group.volumes if volumes is None else volumes, spec_kwargs)
    cluster.setdefault("spec", {}).setdefault("workerGroupSpecs", []).append(
        {
            "groupName": check_name(group.group_name, "Worker group"),
            "replicas": group.replicas,
            "minReplicas": least,
            "maxReplicas": most,
            "rayStartParams": _texts(ray_start_params),
            "template": {"metadata": {k: v for k, v in metadata.items() if v}, "spec": pod},
        }
    )
    return cluster


def check_order(group: str, least: int, most: int) -> None:
    if most < least:
        raise ConfigError(
            f"Worker group {group!r}: max_replicas={most} is less than min_replicas={least}."
        )


def _texts(params: Mapping[str, Any] | None) -> dict[str, str]:
    return {str(key): str(value) for key, value in (params or {}).items()}


def _lifecycle(more: Mapping[str, Any] | None) -> dict[str, Any]:
    stop = {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}
    return {"preStop": stop, **copy.deepcopy(dict(more or {}))}


def _resources(group: KubeRayWorkerGroup) -> dict[str, dict[str, Any]]:
    found = {}
    for side in ("requests", "limits"):
        amounts = {
            "cpu": getattr(group, f"cpu_{side}"),
            "memory": getattr(group, f"memory_{side}"),
            "nvidia.com/gpu": group.gpus_per_worker or None,
        }
        if given := {key: value for key, value in amounts.items() if value is not None}:
            found[side] = given
    return found


def _pod(
    container: Mapping[str, Any],
    volumes: Sequence[Mapping[str, Any]],
    more: Mapping[str, Any] | None,
) -> dict[str, Any]:
    return {
        "containers": [dict(container)],
        "volumes": copy.deepcopy(list(volumes)),
        **copy.deepcopy(dict(more or {})),
    }


def cluster_body(executor: KubeRayExecutor, name: str) -> Cluster:
    """Return the RayCluster that an executor describes."""
    env = _variables(executor.env_vars, secret_name(name))
    over = {
        "spec_kwargs": executor.spec_kwargs,
        "container_kwargs": executor.container_kwargs,
        "lifecycle_kwargs": executor.lifecycle_kwargs,
    }
    body = populate_meta({}, name, executor.namespace, executor.labels, executor.ray_version)
    if _knows_tokens(executor.ray_version):
        body["spec"]["authOptions"] = {"mode": "token"}
    populate_ray_head(
        body,
        image=executor.image,
        service_type=executor.service_type,
        cpu=executor.head_cpu,
        memory=executor.head_memory,
        ray_start_params=executor.ray_head_start_params,
        ports=executor.head_ports,
        env=env,
        volumes=executor.volumes,
        volume_mounts=executor.volume_mounts,
        **over,
    )
    body["spec"]["workerGroupSpecs"] = []
    shared = executor.reuse_volumes_in_worker_groups
    for group in executor.worker_groups:
        populate_worker_group(
            body,
            group,
            image=executor.image,
            ray_start_params=executor.ray_worker_start_params,
            env=env,
            volumes=executor.volumes if shared else None,
            volume_mounts=executor.volume_mounts if shared else None,
            **over,
        )
    return body


def secret_name(name: str) -> str:
    """Return the name of the secret with those variables of an object that others may not see."""
    return f"{name}-env"


def _variables(env: Mapping[str, str], secret: str) -> list[dict[str, Any]]:
    # All users of the namespace can see the object.
    return [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        if holds_secret(key, value)
        else {"name": key, "value": literal(str(value))}
        for key, value in env.items()
    ]


def secret_body(executor: KubeRayExecutor, name: str, tag: str) -> dict[str, Any] | None:
    """Return the secret that an object's variables refer to; None where none does."""
    hidden = {
        key: base64.b64encode(str(value).encode()).decode()
        for key, value in executor.env_vars.items()
        if holds_secret(key, value)
    }
    metadata = {
        "name": secret_name(name),
        "namespace": executor.namespace,
        "labels": {TAG_LABEL: tag},
    }
    whole = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}
    return {**whole, "data": hidden} if hidden else None


def _knows_tokens(version: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= TOKENS_SINCE


def _groups(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [spec["headGroupSpec"], *spec.get("workerGroupSpecs", ())]


def containers_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the first container of every group, in which Ray runs."""
    return [group["template"]["spec"]["containers"][0] for group in _groups(spec)]


def run_before_ray(spec: Mapping[str, Any], lines: Sequence[str]) -> None:
    """Have every pod run lines of bash before Ray; where one fails, Ray does not start.

    The operator puts ``ray start`` behind what a container's command and arguments say.
    """
    text = "\n".join(["set -e", *lines, "set +e"])
    for container in containers_of(spec):
        said = [*container.get("command", ()), *container.get("args", ())]
        container["command"] = ["\n".join([text, " ".join(said)]) if said else text]
        container.pop("args", None)


def tagged(body: Mapping[str, Any], tag: str) -> dict[str, Any]:
    """Return an object with the mark of the submission that makes it."""
    found = copy.deepcopy(dict(body))
    labels = found["metadata"].get("labels") or {}
    found["metadata"]["labels"] = {**labels, TAG_LABEL: tag}
    return found


def job_body(
    executor: KubeRayExecutor,
    name: str,
    command: str,
    *,
    submission_id: str,
    workdir: str,
    runtime_env: str = "",
    before_ray: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the RayJob that has ``command``, a line for bash, run on a cluster of its own.

    ``workdir`` is a path in the pods, and ``runtime_env`` the text of Ray's settings in YAML.
    """
    cluster = cluster_body(executor, name)
    spec = cluster["spec"]
    for container in containers_of(spec):
        container["workingDir"] = workdir
    if before_ray:
        run_before_ray(spec, before_ray)
    body: dict[str, Any] = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": JOB_KIND,
        "metadata": cluster["metadata"],
        "spec": {
            "entrypoint": _entrypoint(spec, command),
            "jobId": submission_id,
            "shutdownAfterJobFinishes": True,
            # By default the operator starts three submitters one after the other, and each is
            # the same job once more for a user who counts.
            "submitterConfig": {"backoffLimit": 0},
            "backoffLimit": executor.retries,
            "rayClusterSpec": spec,
        },
    }
    if runtime_env:
        body["spec"]["runtimeEnvYAML"] = runtime_env
    return body


def _entrypoint(spec: Mapping[str, Any], command: str) -> str:
    """Return what the operator is told to run; what is not plain words is in a file of the head.

    Between the operator and Ray a shell splits it, and Ray's command line joins it again, by
    quotes that depend on its version.
    """
    if _PLAIN.fullmatch(command):
        return command
    template = spec["headGroupSpec"]["template"]
    template["metadata"].setdefault("annotations", {})[COMMAND_ANNOTATION] = command
    field = {"fieldPath": f"metadata.annotations['{COMMAND_ANNOTATION}']"}
    template["spec"].setdefault("volumes", []).append(
        {"name": COMMAND_VOLUME, "downwardAPI": {"items": [{"path": "command", "fieldRef": field}]}}
    )
    template["spec"]["containers"][0].setdefault("volumeMounts", []).append(
        {"name": COMMAND_VOLUME, "mountPath": COMMAND_PATH, "readOnly": True}
    )
    return f"bash {COMMAND_PATH}/command"
