"""Changes of a RayCluster's description; each returns it, and whether it has such a group."""

from __future__ import annotations

import copy
from typing import Any

from nemo_run._backends.ray.kuberay.manifests import Cluster, check_name, check_order


def _group(cluster: Cluster, name: str) -> dict[str, Any] | None:
    groups = cluster.get("spec", {}).get("workerGroupSpecs", ())
    return next((group for group in groups if group.get("groupName") == name), None)


def update_worker_group_replicas(
    cluster: Cluster, group_name: str, max_replicas: int, min_replicas: int, replicas: int
) -> tuple[Cluster, bool]:
    """Set how many pods a group has."""
    check_order(group_name, min_replicas, max_replicas)
    group = _group(cluster, group_name)
    if group is not None:
        group |= {
            "maxReplicas": max_replicas,
            "minReplicas": min_replicas,
            "replicas": replicas,
        }
    return cluster, group is not None


def update_worker_group_resources(
    cluster: Cluster,
    group_name: str,
    cpu_requests: str,
    memory_requests: str,
    cpu_limits: str,
    memory_limits: str,
    container_name: str = "unspecified",
) -> tuple[Cluster, bool]:
    """Set what a container of a group asks for: the first, ``all_containers``, or one by name."""
    group = _group(cluster, group_name)
    if group is None:
        return cluster, False
    containers = group["template"]["spec"]["containers"]
    if container_name == "unspecified":
        chosen = containers[:1]
    elif container_name == "all_containers":
        chosen = containers
    else:
        chosen = [item for item in containers if item.get("name") == container_name]
    for container in chosen:
        resources = container.setdefault("resources", {})
        resources.setdefault("requests", {}).update(cpu=cpu_requests, memory=memory_requests)
        resources.setdefault("limits", {}).update(cpu=cpu_limits, memory=memory_limits)
    return cluster, bool(chosen)


def duplicate_worker_group(
    cluster: Cluster, group_name: str, new_group_name: str
) -> tuple[Cluster, bool]:
    """Add a copy of a group under another name."""
    check_name(new_group_name, "Worker group")
    group = _group(cluster, group_name)
    if group is not None:
        cluster["spec"]["workerGroupSpecs"].append(
            {**copy.deepcopy(group), "groupName": new_group_name}
        )
    return cluster, group is not None


def delete_worker_group(cluster: Cluster, group_name: str) -> tuple[Cluster, bool]:
    """Take a group away."""
    group = _group(cluster, group_name)
    if group is not None:
        cluster["spec"]["workerGroupSpecs"].remove(group)
    return cluster, group is not None
