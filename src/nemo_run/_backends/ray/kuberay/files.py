"""Send code to a volume that the pods of a Ray cluster have."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_run._backends.kubeflow.manifests import mover_body
from nemo_run._backends.kubeflow.site import Site
from nemo_run._backends.kubeflow.volume import WorkVolume
from nemo_run._backends.ray.files import copy_unignored
from nemo_run._backends.ray.kuberay.client import KubeRay
from nemo_run.exceptions import ConfigError

PATIENCE_S = 120.0

# The end of the input cannot be told, hence the count.
_UNPACK = 'rm -rf "$1" && mkdir -p "$1" && head -c "$2" | tar -xzof - -C "$1"'


@dataclass(frozen=True, kw_only=True)
class RayVolume(WorkVolume):
    """The volumes that an executor names, with the mounts that its pods have."""

    volumes: Sequence[Mapping[str, Any]]
    mounts: Sequence[Mapping[str, Any]]

    @classmethod
    def current(
        cls,
        namespace: str,
        *,
        start: str,
        volumes: Sequence[Mapping[str, Any]],
        mounts: Sequence[Mapping[str, Any]],
        image: str = "alpine:3.19",
        pod: Mapping[str, Any] | None = None,
        site: Site | None = None,
    ) -> RayVolume:
        return cls(
            cluster=KubeRay(site or Site.current(namespace, patience_s=PATIENCE_S)),
            claim=", ".join(str(volume.get("name")) for volume in volumes),
            path=str(mounts[0]["mountPath"]),
            image=image,
            pod=pod or {},
            start=start,
            volumes=volumes,
            mounts=mounts,
        )

    def replace(self, source: Path, directory: str) -> None:
        """Have a directory hold what ``source`` holds, and nothing else."""
        self._send(source, _UNPACK, directory, label="data-mover")

    def _mover_body(self, label: str) -> dict[str, Any]:
        body = mover_body(
            start=f"{self.start[:39].rstrip('-')}-{label}",
            namespace=self.cluster.namespace,
            image=self.image,
            volumes=self.volumes,
            mounts=self.mounts,
            pod=self.pod,
        )
        if account := self.pod.get("serviceAccountName"):
            body["spec"]["serviceAccountName"] = account
        return body


def send_directory(volume: RayVolume, workdir: str, target: str) -> None:
    """Have ``target`` of a volume hold what is in a directory of this machine.

    What ``.gitignore`` files of the directory name stays here.
    """
    source = Path(workdir).expanduser().resolve()
    if not source.is_dir():
        raise ConfigError(f"workdir={workdir!r} is no directory of this machine.")
    with tempfile.TemporaryDirectory() as scratch:
        chosen = Path(scratch, "files")
        chosen.mkdir()
        copy_unignored(source, chosen)
        volume.replace(chosen, target)
