"""Logs of Run:ai workloads: of their pods while these are there, else of the files they wrote."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from nemo_run._backends.kubernetes.pod_lines import Window, new_lines, whole_lines
from nemo_run._backends.kubernetes.pod_logs import LAST_LINES, PAUSE_S, PodLogs, Reading
from nemo_run._backends.kubernetes.rest import Kube
from nemo_run._backends.runai.client import Pod, RunAI
from nemo_run._backends.runai.volume import Volume
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendError, BackendUnavailableError

log = logging.getLogger(__name__)

T = TypeVar("T")

_RANK = re.compile(r"-(master|launcher|worker)-([0-9]{1,9})$")
_PRINTED = re.compile(r"nemo_run: lines=([0-9]{1,15})\s*")


def answer(ask: Callable[[], T], *, follow: bool) -> T:
    """Return what ``ask`` returns; with ``follow``, wait for the end of an outage."""
    waiting = Waiting(*PAUSE_S)
    while True:
        try:
            return ask()
        except BackendUnavailableError as err:
            if not follow:
                raise
            log.debug("the log cannot be asked for: %s", err)
        waiting.pause()


def of_replica(pods: Sequence[Pod], replica: int) -> list[Pod]:
    """Return the pods that are one replica, in order: several where it was started again."""
    ranked = {pod.name: _rank(pod.name) for pod in pods}
    order = sorted({rank for rank in ranked.values() if rank is not None})
    if not order:
        return list(pods) if replica == 0 else []
    wanted = order[replica] if replica < len(order) else None
    return [pod for pod in pods if ranked[pod.name] == wanted]


def _rank(name: str) -> tuple[bool, int] | None:
    match = _RANK.search(name)
    # A master comes before the workers, where there is one.
    return None if match is None else (match[1] == "worker", int(match[2]))


class WorkloadLogs(PodLogs[Pod]):
    """The log of one replica of a workload."""

    def __init__(
        self, client: RunAI, kube: Kube, workload_id: str, replica: int, window: Window
    ) -> None:
        super().__init__(window)
        self._client, self._kube = client, kube
        self._workload_id, self._replica = workload_id, replica

    def pods(self) -> list[Pod]:
        return of_replica(self._client.pods(self._workload_id), self._replica)

    def name_of(self, pod: Pod) -> str:
        return pod.name

    def lines(
        self, pod: Pod, reading: Reading, *, follow: bool, last_only: bool
    ) -> Iterator[bytes]:
        stream = self._kube.log(
            pod.name,
            pod.container,
            follow=follow,
            since=reading.at.stamp,
            tail_lines=LAST_LINES if last_only else None,
        )
        with closing(stream) as blocks:
            yield from new_lines(blocks, reading.at, follow, Window())

    def printed(self, pod: Pod) -> int:
        try:
            container = self._kube.pod(pod.name).container(pod.container)
        except BackendError as err:
            log.debug("%s: what it has printed is not known: %s", pod.name, err)
            return 0
        message = container.ended.message if container and container.ended else ""
        match = _PRINTED.fullmatch(message)
        return int(match[1]) if match else 0


def read_files(
    volume: Volume, directory: str, pattern: str, *, follow: bool, ended: Callable[[], bool]
) -> Iterator[bytes]:
    """Yield whole lines of the files that a replica writes on the volume; see `PodLogs`."""

    def blocks() -> Iterator[bytes]:
        start = 0
        waiting = Waiting(*PAUSE_S)
        while True:
            try:
                over = not follow or ended()
            except BackendUnavailableError as err:
                log.debug("whether the job has ended cannot be asked: %s", err)
                over = False
            for block in volume.read(directory, pattern, start):
                start += len(block)
                waiting.restart()
                yield block
            if over:
                return
            waiting.pause()

    return whole_lines(blocks())


def files_of(workload: str, replica: int, nodes: int) -> str:
    """Return the pattern of the files that a replica writes on the volume."""
    return f"log_{workload}*worker-{replica}.out" if nodes > 1 else f"log_{workload}*.out"
