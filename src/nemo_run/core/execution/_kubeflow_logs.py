"""Logs of TrainJobs: of their pods while these are there, else of what was kept of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from nemo_run._clients.k8s import Cluster
from nemo_run._clients.kube import NotStartedError
from nemo_run.core.execution._kubeflow_manifests import NODE
from nemo_run.core.execution._kubeflow_pods import Pod, pods_of
from nemo_run.core.execution._pod_lines import Position, Window, new_lines, whole_lines
from nemo_run.exceptions import BackendUnavailableError, JobNotFoundError, UnsupportedError

log = logging.getLogger(__name__)

LAST_LINES = 1000
_PAUSE_S = (0.1, 5.0)
_ANY_TIME = Window()
_INCOMPLETE = 12
"""How often to look again for lines that should be there; a node may have lost them, or be lost."""


class _Moved(Exception):
    """It is another container by now."""


@dataclass
class _Reading:
    """How far the log of a pod was read.

    Attributes:
        source: the container that it was read of.
        count: how many lines there were, whichever container they came from.
        skip: how many to leave out of this container's, which begins with those of the one before.
    """

    source: tuple[str, int] = ("", -1)
    count: int = 0
    skip: int = 0
    at: Position = field(default_factory=Position)


def read(
    cluster: Cluster,
    name: str,
    *,
    replica: int,
    follow: bool,
    ended: Callable[[], bool],
    window: Window,
    otherwise: Callable[[], Iterator[bytes]],
    continued: bool,
    last_only: bool = False,
) -> Iterator[bytes]:
    """Yield whole lines of one replica, in order.

    Without ``follow`` it ends at the last line there is now, else once ``ended`` and all was read.
    An outage is waited for; a stream that was cut goes on after the last line that came whole. A
    log that still cannot be had some time after the end raises BackendUnavailableError.
    ``otherwise`` is asked for all lines where the pods are gone. ``continued`` says that the log of
    a new pod begins with that of the pod before, as one of a container always does.
    """
    readings: dict[str, _Reading] = {}
    pause_s, most_s = _PAUSE_S
    patience = _INCOMPLETE
    while True:
        over = not follow
        pods: list[Pod] = []
        try:
            # Asked first: what is there after the end is all there will be.
            over = over or ended()
            pods = _of_replica(cluster, name, replica, continued)
            for pod in pods:
                reading = readings.setdefault("" if continued else pod.name, _Reading())
                wanted = _lines(
                    cluster, pod, reading, follow and not over, window, last_only and not follow
                )
                for line in wanted:
                    pause_s = _PAUSE_S[0]
                    yield line
            if over and not last_only and patience and _lacks_lines(pods, readings, continued):
                patience, over = patience - 1, False
        except (JobNotFoundError, _Moved) as err:
            log.debug("%s: %s", name, err)
            over = False  # to be looked at once more
        except NotStartedError as err:
            log.debug("%s: %s", name, err)
        except BackendUnavailableError as err:
            # A node that was lost does not come back with the log of a job that has ended.
            if not follow or (over and not patience):
                raise
            patience -= over
            # Also what a job that prints nothing looks like.
            log.debug("%s: the log is interrupted: %s", name, err)
            over = False
        if over:
            if not pods:
                shown = sum(reading.count for reading in readings.values())
                yield from _kept(otherwise, shown, window)
            return
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, most_s)


def _lacks_lines(pods: list[Pod], readings: dict[str, _Reading], continued: bool) -> bool:
    """Tell whether a pod had more to say than was read.

    A container that is started after the end takes a moment to repeat the log, and Kubernetes one
    to say that it was started.
    """
    return any(
        pod.outcome is not None
        and readings["" if continued else pod.name].count < pod.outcome.lines
        for pod in pods
    )


def _of_replica(cluster: Cluster, name: str, replica: int, continued: bool) -> list[Pod]:
    pods = [pod for pod in pods_of(cluster, name) if pod.index == replica]
    return pods[-1:] if continued else pods


def _lines(
    cluster: Cluster,
    pod: Pod,
    reading: _Reading,
    follow: bool,
    window: Window,
    last_only: bool,
) -> Iterator[bytes]:
    """Yield the lines of a pod's log that were not read yet."""
    number, previous = pod.log
    if (pod.name, number) != reading.source:
        if window and number:
            raise UnsupportedError(
                "Kubernetes has started this job's container again, and the log does not say any "
                "more when its lines were written. Ask without since and until."
            )
        reading.source, reading.skip, reading.at = (pod.name, number), reading.count, Position()
    stream = cluster.log(
        pod.name,
        NODE,
        follow=follow,
        since_ns=reading.at.moment,
        tail_lines=LAST_LINES if last_only and not reading.count else None,
        previous=previous,
    )
    with closing(stream) as blocks:
        # A container that was started meanwhile is another one, whose lines have other times.
        if Pod.from_json(cluster.pod(pod.name)).log != pod.log:
            raise _Moved(f"{pod.name} was started again")
        for line in new_lines(blocks, reading.at, follow, _ANY_TIME):
            if reading.skip:
                reading.skip -= 1
                continue
            reading.count += 1
            if window.holds(reading.at.moment):
                yield line


def _kept(otherwise: Callable[[], Iterator[bytes]], shown: int, window: Window) -> Iterator[bytes]:
    lines = whole_lines(otherwise())
    for number, line in enumerate(lines):
        if window:
            raise UnsupportedError(
                "The pods of this job are gone, and what was kept of its log does not say when its "
                "lines were written. Ask without since and until."
            )
        if number >= shown:
            yield line
