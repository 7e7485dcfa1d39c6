"""Logs of Kubernetes jobs without a volume, kept on this machine for when the pods are gone."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from nemo_run._backends.kubeflow import refs
from nemo_run._backends.kubeflow.client import Cluster
from nemo_run._backends.kubeflow.manifests import NODE
from nemo_run._backends.kubeflow.pods import nodes_of
from nemo_run._backends.kubernetes.pod_lines import Position, Window, new_lines
from nemo_run._backends.kubernetes.rest import NotStartedError
from nemo_run._files import make_private_directory
from nemo_run._jobs.records import JobRef
from nemo_run._transport.http import Stream
from nemo_run.exceptions import BackendError, BackendUnavailableError, JobNotFoundError

log = logging.getLogger(__name__)

_BLOCK = 1 << 20
_KEEPING_S = 30.0
_LOGS_S = 120.0
"""How long after its end a job counts as running while its log cannot be read."""


class KeptLog:
    """The log of one replica, kept on this machine for when the pods are gone."""

    def __init__(self, ref: JobRef, replica: int) -> None:
        note = refs.NOTES.of(ref.where["job_dir"], ref.where["name"])
        self._file = note.with_name(f"{note.stem}-{replica}.log")

    def __bool__(self) -> bool:
        return self._file.exists()

    def keep(self, lines: Iterable[bytes]) -> None:
        """Write down all lines; an earlier copy stays until the new one is complete.

        Several may do so at once, each for itself: of whole copies the last one stays.
        """
        make_private_directory(self._file.parent)
        with tempfile.TemporaryDirectory(prefix=".", dir=self._file.parent) as scratch:
            part = Path(scratch, self._file.name)
            part.touch(mode=0o600)
            with part.open("wb") as file:
                file.writelines(lines)
            part.replace(self._file)

    def read(self) -> Iterator[bytes]:
        if self._file.exists():
            with self._file.open("rb") as file:
                while block := file.read(_BLOCK):
                    yield block


def keep_logs(ref: JobRef, lines_of: Callable[[int], Iterator[bytes]], *, ended_at: float) -> None:
    """Copy the logs of a job that has ended, if they would go with its pods.

    ``lines_of`` returns those of a replica.

    Raises:
        BackendUnavailableError: a log cannot be had now, and the end is not long ago. Those of
            a node that was lost never can.
    """
    if ref.where.get("claim"):
        return
    for replica in range(int(ref.where["nodes"])):
        kept = KeptLog(ref, replica)
        if kept:
            continue
        try:
            kept.keep(lines_of(replica))
        except (BackendError, OSError) as err:
            recent = time.time() - ended_at < _LOGS_S
            if recent and isinstance(err, BackendUnavailableError):
                raise
            log.warning("%s: its log could not be kept: %s", ref.where["name"], err)


class Keeping:
    """While entered, what the pods of a job still say is kept, where their logs go with them."""

    def __init__(self, ref: JobRef, cluster: Cluster) -> None:
        self._ref = ref
        self._cluster = cluster
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> None:
        if self._ref.where.get("claim"):
            return
        latest = {pod.index: pod for pod in nodes_of(self._cluster, self._ref.where["name"])}
        reader = refs.site_of(self._ref).cluster()  # not patient: many nodes may be lost
        for pod in latest.values():
            try:
                # Opened before the pod is told to end: what it says to that is part of it.
                stream = reader.log(pod.name, NODE, follow=True)
            except (NotStartedError, JobNotFoundError):
                continue
            except BackendError as err:
                # The job is to end, with a copy of its log or without.
                log.warning("%s: its log will not be kept: %s", self._ref.where["name"], err)
                continue
            thread = threading.Thread(target=self._keep, args=(pod.index, stream), daemon=True)
            thread.start()
            self._threads.append(thread)

    def __exit__(self, *error: object) -> None:
        deadline = time.monotonic() + _KEEPING_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _keep(self, replica: int, stream: Stream) -> None:
        try:
            with closing(stream) as blocks:
                lines = new_lines(blocks, Position(), False, Window())
                KeptLog(self._ref, replica).keep(lines)
        except (BackendError, OSError) as err:
            name = self._ref.where["name"]
            log.warning("%s: its log could not be kept: %s", name, err)
