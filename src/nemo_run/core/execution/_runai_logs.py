"""Logs of Run:ai workloads: of their pods while these are there, else of the files they wrote."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from nemo_run._clients.kube import Kube, NotStartedError
from nemo_run._clients.runai import Pod, RunAI
from nemo_run.core.execution._pod_lines import Position, new_lines
from nemo_run.core.execution._pod_lines import Window as Window
from nemo_run.core.execution._pod_lines import whole_lines as whole_lines
from nemo_run.core.execution._runai_volume import Volume
from nemo_run.exceptions import (
    BackendUnavailableError,
    JobNotFoundError,
    UnsupportedError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

LAST_LINES = 1000
_PAUSE_S = (0.1, 5.0)
_RANK = re.compile(r"-(master|launcher|worker)-(\d+)$")


def answer(ask: Callable[[], T], *, follow: bool) -> T:
    """Return what ``ask`` returns; who wants to ``follow`` waits for the end of an outage."""
    pause_s, most_s = _PAUSE_S
    while True:
        try:
            return ask()
        except BackendUnavailableError as err:
            if not follow:
                raise
            log.debug("the log cannot be asked for: %s", err)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, most_s)


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


def read(
    client: RunAI,
    kube: Kube,
    workload_id: str,
    *,
    replica: int,
    follow: bool,
    ended: Callable[[], bool],
    window: Window,
    otherwise: Callable[[], Iterator[bytes]],
    last_only: bool = False,
) -> Iterator[bytes]:
    """Yield whole lines of one replica, in order.

    Without ``follow`` it ends at the last line there is now, else once ``ended`` and all was read.
    An outage is waited for; a stream that was cut goes on after the last line that came whole.
    ``otherwise`` is asked where the pods are gone before anything was read. With ``last_only`` what
    is before the last lines may be left out.
    """
    positions: dict[str, Position] = {}
    pause_s, most_s = _PAUSE_S
    while True:
        over = True
        pods: list[Pod] = []
        try:
            # Asked first: what is there after the end is all there will be.
            over = not follow or ended()
            pods = of_replica(client.pods(workload_id), replica)
            for pod in pods:
                at = positions.setdefault(pod.name, Position())
                blocks = kube.log(
                    pod.name,
                    pod.container,
                    follow=follow and not over,
                    since=at.stamp,
                    tail_lines=LAST_LINES if last_only else None,
                )
                for line in new_lines(blocks, at, follow and not over, window):
                    pause_s = _PAUSE_S[0]
                    yield line
        except JobNotFoundError:
            pods = []
        except NotStartedError as err:
            log.debug("%s: %s", workload_id, err)
        except BackendUnavailableError as err:
            if not follow:
                raise
            # Also what a job that prints nothing looks like.
            log.debug("%s: the log is interrupted: %s", workload_id, err)
            over = False
        if over:
            if not pods and not any(at.stamp for at in positions.values()):
                yield from _from_files(otherwise, window)
            return
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, most_s)


def read_files(
    volume: Volume, directory: str, pattern: str, *, follow: bool, ended: Callable[[], bool]
) -> Iterator[bytes]:
    """Yield whole lines of the files that a replica writes on the volume; see `read`."""

    def blocks() -> Iterator[bytes]:
        start = 0
        pause_s, most_s = _PAUSE_S
        while True:
            try:
                over = not follow or ended()
            except BackendUnavailableError as err:
                log.debug("whether the job has ended cannot be asked: %s", err)
                over = False
            for block in volume.read(directory, pattern, start):
                start += len(block)
                pause_s = _PAUSE_S[0]
                yield block
            if over:
                return
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, most_s)

    return whole_lines(blocks())


def files_of(workload: str, replica: int, nodes: int) -> str:
    """Return the pattern of the files that a replica writes on the volume."""
    return f"log_{workload}*worker-{replica}.out" if nodes > 1 else f"log_{workload}*.out"


def _from_files(otherwise: Callable[[], Iterator[bytes]], window: Window) -> Iterator[bytes]:
    if window:
        raise UnsupportedError(
            "The pods of this job are gone, and the log that it left on the volume does not say "
            "when its lines were written. Ask without since and until."
        )
    return whole_lines(otherwise())
