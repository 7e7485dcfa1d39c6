"""Ray on Kubernetes, by the KubeRay operator: for `RayCluster` and `RayJob`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nemo_run._backends.ray.kuberay.changes import (
    delete_worker_group,
    duplicate_worker_group,
    update_worker_group_replicas,
    update_worker_group_resources,
)
from nemo_run._backends.ray.kuberay.manifests import (
    GROUP,
    KIND,
    PLURAL,
    VERSION,
    cluster_body,
    is_valid_label,
    is_valid_name,
    populate_meta,
    populate_ray_head,
    populate_worker_group,
)
from nemo_run._extras import check_installed
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "GROUP",
    "KIND",
    "PLURAL",
    "VERSION",
    "KubeRayExecutor",
    "KubeRayWorkerGroup",
    "delete_worker_group",
    "duplicate_worker_group",
    "is_valid_label",
    "is_valid_name",
    "populate_meta",
    "populate_ray_head",
    "populate_worker_group",
    "sync_workdir_via_pod",
    "update_worker_group_replicas",
    "update_worker_group_resources",
]

_SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?\S*")


@dataclass
class KubeRayWorkerGroup:
    """Pods of one kind that are workers of a Ray cluster.

    Attributes:
        min_replicas, max_replicas: for the autoscaler; by default ``replicas``.
        gpus_per_worker: of each pod; Ray gets as many.
        labels, annotations: of the pods.
    """

    group_name: str
    replicas: int = 1
    min_replicas: int | None = None
    max_replicas: int | None = None
    gpus_per_worker: int | None = None
    cpu_requests: str | None = None
    memory_requests: str | None = None
    cpu_limits: str | None = None
    memory_limits: str | None = None
    volume_mounts: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class KubeRayExecutor(Executor):
    """Asks the KubeRay operator for Ray clusters; only `RayCluster` and `RayJob` take it.

    The cluster is the one that ``KUBECONFIG`` and its current context name, as for kubectl.

    Attributes:
        image: by default ``rayproject/ray:<ray_version>``.
        head_cpu, head_memory: of the head's pod, as Kubernetes writes quantities.
        ray_head_start_params, ray_worker_start_params: options of ``ray start``.
        labels: of the RayCluster or RayJob.
        service_type: how the head is reached; ``ClusterIP`` keeps it to the cluster's network.
        head_ports: of the head's container, in Kubernetes' words.
        volumes, volume_mounts: of the head's pod; code is sent to the first mount.
        reuse_volumes_in_worker_groups: whether all worker groups have the volumes of the head.
        spec_kwargs, container_kwargs, lifecycle_kwargs: go over the pods' ``spec``, their
            container and its ``lifecycle``.
    """

    namespace: str = "default"
    ray_version: str = "2.43.0"
    image: str = ""
    head_cpu: str = "1"
    head_memory: str = "2Gi"
    ray_head_start_params: dict[str, Any] = field(default_factory=dict)
    ray_worker_start_params: dict[str, Any] = field(default_factory=dict)
    worker_groups: list[KubeRayWorkerGroup] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)
    service_type: str = "ClusterIP"
    head_ports: list[dict[str, Any]] = field(default_factory=list)
    volume_mounts: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    reuse_volumes_in_worker_groups: bool = True
    spec_kwargs: dict[str, Any] = field(default_factory=dict)
    container_kwargs: dict[str, Any] = field(default_factory=dict)
    lifecycle_kwargs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.image:
            self.image = f"rayproject/ray:{self.ray_version}"

    def nnodes(self) -> int:
        return 1 + sum(group.replicas for group in self.worker_groups)

    def nproc_per_node(self) -> int:
        return max((group.gpus_per_worker or 1 for group in self.worker_groups), default=1)

    def get_cluster_body(self, name: str) -> dict[str, Any]:
        """Return the RayCluster that the settings describe."""
        return cluster_body(self, name)

    def check(self) -> None:
        """Find what cannot work before anything is asked of a cluster.

        Raises:
            ConfigError: a setting is missing or wrong.
        """
        check_installed("kubernetes", extra="kubeflow", needed_by="KubeRayExecutor")
        if not is_valid_label(self.namespace):
            raise ConfigError(f"namespace={self.namespace!r} cannot be a name in Kubernetes.")
        if not _VERSION.fullmatch(self.ray_version):
            raise ConfigError(
                f"ray_version={self.ray_version!r} is no version. Name one as '2.43.0'."
            )
        if self.service_type not in _SERVICE_TYPES:
            raise ConfigError(
                f"service_type={self.service_type!r} is unknown. "
                f"Known: {', '.join(_SERVICE_TYPES)}."
            )
        names = [group.group_name for group in self.worker_groups]
        for group in self.worker_groups:
            self._check_group(group, names)
        self._check_mounts("the executor", self.volumes, self.volume_mounts)

    def _check_group(self, group: KubeRayWorkerGroup, names: Sequence[str]) -> None:
        name = group.group_name
        if not is_valid_name(name):
            raise ConfigError(
                f"group_name={name!r} cannot be a name in Kubernetes. Use at least two lower case "
                "letters, digits and '-'."
            )
        if names.count(name) > 1:
            raise ConfigError(f"Two worker groups are called {name!r}. Give each its own name.")
        least = group.replicas if group.min_replicas is None else group.min_replicas
        most = group.replicas if group.max_replicas is None else group.max_replicas
        if not 0 <= least <= group.replicas <= most:
            raise ConfigError(
                f"Worker group {name!r} asks for {group.replicas} pods, at least {least} and at "
                f"most {most}, which contradict each other."
            )
        if (group.gpus_per_worker or 0) < 0:
            raise ConfigError(f"Worker group {name!r}: gpus_per_worker must not be negative.")
        if not self.reuse_volumes_in_worker_groups:
            self._check_mounts(f"worker group {name!r}", group.volumes, group.volume_mounts)

    def _check_mounts(
        self,
        whose: str,
        volumes: Sequence[Mapping[str, Any]],
        mounts: Sequence[Mapping[str, Any]],
    ) -> None:
        known = {str(volume.get("name")) for volume in volumes}
        if self.spec_kwargs.get("volumes"):
            return
        for mount in mounts:
            if str(mount.get("name")) not in known:
                raise ConfigError(
                    f"volume_mounts of {whose} has {mount.get('name')!r}, which is none of its "
                    f"volumes ({', '.join(sorted(known)) or 'there are none'})."
                )


def sync_workdir_via_pod(
    *,
    pod_name: str,
    namespace: str,
    user_workspace_path: str,
    workdir: str,
    core_v1_api: Any = None,
    volumes: list[dict[str, Any]],
    volume_mounts: list[dict[str, Any]],
    image: str = "alpine:3.19",
    cleanup: bool = False,
    cleanup_timeout: int = 5,
) -> None:
    """Copy a directory of this machine to one of a volume, through a small pod.

    What ``.gitignore`` files of the directory name stays here, and files that are only there are
    removed there. The pod needs ``sh`` and ``tar``, no network, and is always deleted; the
    arguments ``core_v1_api``, ``cleanup`` and ``cleanup_timeout`` have no effect.

    Raises:
        RuntimeError: the pod did not start within two minutes.
    """
    from nemo_run._backends.ray.kuberay.files import RayVolume, send_directory

    volume = RayVolume.current(
        namespace, start=pod_name, image=image, volumes=volumes, mounts=volume_mounts
    )
    send_directory(volume, workdir, user_workspace_path)
