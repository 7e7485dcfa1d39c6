"""Move files to and from the work volume of Kubernetes jobs.

They go through a small pod that has the volume and is deleted afterwards. Files are sent to a
command in it, so no argument or object that others can read ever holds them, and their size is not
limited.
"""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from nemo_run._backends.kubeflow import manifests
from nemo_run._backends.kubeflow.client import Cluster
from nemo_run._backends.kubeflow.site import BACKEND
from nemo_run._backends.kubernetes.volume import BLOCK, blocks_of, through_pods
from nemo_run._transport.http import Conflict
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    JobNotFoundError,
    SubmitError,
)

if TYPE_CHECKING:
    from nemo_run.core.execution.kubeflow import KubeflowExecutor

log = logging.getLogger(__name__)

T = TypeVar("T")

READY_S = 120.0
"""How long a mover may take to start, say while its image is fetched."""
FOLDER = ".kubeflow"
"""The directory of a job's, on this machine, that holds what we remember and stays here."""
_POLL_S = (0.1, 3.0)
_HOPELESS = frozenset({"ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"})


class MoverError(SubmitError, RuntimeError):
    """Files could not be moved. Also a ``RuntimeError``, since scripts may have caught that."""


@dataclass(frozen=True, kw_only=True)
class WorkVolume:
    """The volume of a claim, reached through pods.

    Attributes:
        path: where jobs have it.
        pod: what a mover inherits of the job's pods.
        start: how the names of movers begin.
    """

    cluster: Cluster
    claim: str
    path: str
    image: str
    pod: Mapping[str, Any]
    start: str

    @classmethod
    def of(cls, executor: KubeflowExecutor, cluster: Cluster, start: str) -> WorkVolume:
        return cls(
            cluster=cluster,
            claim=executor.workdir_pvc or "",
            path=executor.workdir_pvc_path,
            image=executor.data_mover_image,
            pod=manifests.mover_pod(executor),
            start=start,
        )

    @classmethod
    def from_where(cls, where: Mapping[str, str], cluster: Cluster) -> WorkVolume | None:
        """Return the volume of a stored job, None where it has none."""
        if not where.get("claim"):
            return None
        return cls(
            cluster=cluster,
            claim=where["claim"],
            path=where["claim_path"],
            image=where["mover_image"],
            pod=json.loads(where["mover_pod"]),
            start=where["name"],
        )

    def to_where(self) -> dict[str, str]:
        keys = ("tolerations", "affinity", "imagePullSecrets", "securityContext", "nodeSelector")
        return {
            "claim": self.claim,
            "claim_path": self.path,
            "mover_image": self.image,
            "mover_pod": json.dumps({key: self.pod[key] for key in keys if self.pod.get(key)}),
        }

    def exists(self) -> bool:
        """Tell whether there is such a claim; where we may not look, there is."""
        try:
            self.cluster.claim_phase(self.claim)
        except JobNotFoundError:
            return False
        except AuthenticationError as err:
            log.debug("not looked at: %s", err)
        return True

    def put(
        self,
        source: Path | None,
        directory: str,
        *,
        without: Collection[str] = (),
        seal: str = "",
        label: str = "put",
    ) -> None:
        """Write what is in ``source``, if anything, to a directory; files there are replaced.

        What is called one of ``without`` stays here. A file ``seal`` of the directory is made when
        all else is there. If it is there already, nothing is done: another attempt was here before,
        and a job may be using what it wrote. A directory with a seal is its owner's alone.
        """
        # The end of the input cannot be told, hence the count.
        script = (
            '[ -n "$3" ] && [ -e "$1/$3" ] || { mkdir -p "$1" && '
            '{ [ -z "$3" ] || chmod 700 "$1"; } && '
            'head -c "$2" | tar -xzof - -C "$1" && '
            'if [ -n "$3" ]; then mkdir -p "$(dirname "$1/$3")" && touch "$1/$3"; fi; }'
        )
        self._send(source, script, directory, seal, without=without, label=label)

    def _send(
        self,
        source: Path | None,
        script: str,
        directory: str,
        *more: str,
        without: Collection[str] = (),
        label: str,
    ) -> None:
        """Run a script, which gets a directory, a size and more, with that much of an archive."""
        with tempfile.TemporaryFile() as archive:
            pack(source, archive, without)
            size = archive.tell()

            def send(pod: str) -> None:
                blocks = blocks_of(archive, size, f"volume {self.claim}")
                argv = ["sh", "-c", script, "sh", directory, str(size), *more]
                for _ in self.cluster.run(pod, manifests.MOVER, argv, stdin=blocks):
                    pass

            self._with_pod(label, send)

    def get(self, directory: str, target: Path, *, label: str = "get") -> None:
        """Copy what is in a directory to one of this machine, over what is there."""
        from nemo_run.core.packaging._extract import extract

        argv = ["sh", "-c", 'cd "$1" && tar -czf - .', "sh", directory]
        with tempfile.TemporaryDirectory() as scratch:
            archive, unpacked = Path(scratch, "files.tar.gz"), Path(scratch, "files")

            def receive(pod: str) -> None:
                with archive.open("wb") as file:
                    for block in self.cluster.run(pod, manifests.MOVER, argv):
                        file.write(block)

            self._with_pod(label, receive)
            extract(archive, unpacked)
            merge(unpacked, target)

    def read(self, file: str, *, last_lines: int | None = None) -> Iterator[bytes]:
        """Yield what a file holds, in blocks; nothing where it is not there."""
        # A job can have replaced it: by a FIFO, say, or a link to what others have on the volume.
        there = '[ ! -f "$1" ] || [ -L "$1" ]'
        show = f'{there} || if [ "$2" ]; then tail -n "$2" "$1"; else cat "$1"; fi'
        argv = ["sh", "-c", show, "sh", file, "" if last_lines is None else str(last_lines)]
        # By way of a file: it may be large, and the reader may be slow.
        with tempfile.TemporaryFile() as copy:

            def receive(pod: str) -> None:
                copy.seek(0)
                copy.truncate()
                for block in self.cluster.run(pod, manifests.MOVER, argv):
                    copy.write(block)

            self._with_pod("read", receive)
            copy.seek(0)
            yield from iter(lambda: copy.read(BLOCK), b"")

    def listed(self, directory: str, pattern: str) -> bytes:
        """Return the names of the files that match, each with its first line after a blank."""
        line = '[ ! -f "$f" ] || [ -L "$f" ] || echo "$f $(head -c 200 "$f" | head -n 1)"'
        show = f'cd "$1" 2>/dev/null || exit 0; for f in $2; do {line}; done'
        argv = ["sh", "-c", show, "sh", directory, pattern]

        def receive(pod: str) -> bytes:
            return b"".join(self.cluster.run(pod, manifests.MOVER, argv))

        return self._with_pod("read", receive)

    def _with_pod(self, label: str, act: Callable[[str], T]) -> T:
        """Call ``act`` with the name of a pod, again with another where that was lost."""

        def attempt() -> T:
            with self._mover(label) as pod:
                return act(pod)

        return through_pods(attempt, self.cluster.site.patience_s)

    def _mover_body(self, label: str) -> dict[str, Any]:
        return manifests.mover_body(
            start=f"{self.start}-{label}",
            namespace=self.cluster.namespace,
            image=self.image,
            volumes=[manifests.claim_volume(self.claim)],
            mounts=[{"name": manifests.WORKDIR_VOLUME, "mountPath": self.path}],
            pod=self.pod,
        )

    @contextmanager
    def _mover(self, label: str) -> Iterator[str]:
        body = self._mover_body(label)
        name = body["metadata"]["name"]
        try:
            with suppress(Conflict):  # no other has this name: an answer was lost
                self.cluster.create_pod(body)
            self._await(name)
            yield name
        finally:
            self._remove(name)

    def _await(self, name: str) -> None:
        waiting = Waiting(*_POLL_S, timeout_s=READY_S)
        while True:
            pod = self.cluster.pod(name)
            if pod.phase == "Running" and not pod.waits_for:
                return
            ended = pod.phase in ("Failed", "Succeeded") or pod.waits_for in _HOPELESS
            if ended or waiting.is_over:
                self._give_up(name, f"{pod.phase} {pod.waits_for}".strip())
            waiting.pause()

    def _give_up(self, name: str, state: str) -> None:
        try:
            said = "; ".join(self.cluster.events(name)[-3:])
        except BackendError as err:
            said = str(err)
        raise MoverError(
            f"Pod {name}, which moves files to volume {self.claim}, is {state} instead of Running. "
            f"{said} Check that claim {self.claim!r} can be mounted in namespace "
            f"{self.cluster.namespace!r}, and that its nodes can pull {self.image}.",
            backend=BACKEND,
            operation="stage",
            detail=said,
        )

    def _remove(self, name: str) -> None:
        try:
            self.cluster.delete_pod(name, grace_s=0)
        except BackendError as err:
            log.warning(
                "pod %s of namespace %s could not be deleted: %s", name, self.cluster.namespace, err
            )


def pack(directory: Path | None, target: IO[bytes], without: Collection[str] = ()) -> None:
    """Pack what is in a directory, but for what is called one of ``without``."""
    with tarfile.open(fileobj=target, mode="w:gz", compresslevel=1) as archive:
        for child in sorted(directory.iterdir() if directory else ()):
            if child.name not in without:
                archive.add(child, child.name)


def packed(directory: Path | None, without: Collection[str] = ()) -> bytes:
    """Return what `pack` makes; of no directory, an empty archive."""
    buffer = io.BytesIO()
    pack(directory, buffer, without)
    return buffer.getvalue()


def merge(source: Path, target: Path) -> None:
    """Copy what is in a directory to another, over what is there; links stay links."""
    for directory, names, files in os.walk(source):
        for name in (*names, *files):
            here = Path(directory, name)
            there = target / here.relative_to(source)
            # copytree() makes no link where something is, and writes through one that is there.
            if there.is_symlink() or (here.is_symlink() and there.exists()):
                there.unlink()
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
