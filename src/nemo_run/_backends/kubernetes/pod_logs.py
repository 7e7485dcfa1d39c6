"""Logs of the pods of one replica while these are there, else of what is kept of them."""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nemo_run._backends.kubernetes.pod_lines import Position, Window, whole_lines
from nemo_run._backends.kubernetes.rest import NotStartedError
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendUnavailableError, JobNotFoundError, UnsupportedError

log = logging.getLogger(__name__)

LAST_LINES = 1000
"""How many lines a pod is asked for where only the last are wanted."""
PAUSE_S = (0.1, 5.0)
_LOOKS = 12
"""How often to look again, some 25 s in all, for lines that a job which has ended should have."""

PodT = TypeVar("PodT")


class ChangedError(Exception):
    """A pod, or its container, is another one by now: look again."""


@dataclass
class Reading:
    """How far one log was read.

    Attributes:
        at: the place in the log of the container that was read last.
        count: how many lines there were, whichever container they came from.
        container: which one that is; its pod, and how often Kubernetes had started it again.
        skip: how many lines to leave out of its log, which begins with those of the one before.
    """

    at: Position = field(default_factory=Position)
    count: int = 0
    container: tuple[str, int] = ("", -1)
    skip: int = 0


class PodLogs(ABC, Generic[PodT]):
    """The log of one replica, which the hooks below find and read.

    Of lines that a pod gives, those within ``window`` are shown.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self._readings: dict[str, Reading] = {}

    @abstractmethod
    def pods(self) -> Sequence[PodT]:
        """Return the pods of the replica, in order: several where it was started again.

        Raises:
            JobNotFoundError: the job is gone, and its pods with it.
        """

    @abstractmethod
    def name_of(self, pod: PodT) -> str:
        """Return the name of the log that a pod writes; pods that go on with one have the same."""

    @abstractmethod
    def lines(
        self, pod: PodT, reading: Reading, *, follow: bool, last_only: bool
    ) -> Iterator[bytes]:
        """Yield the lines of a pod that were not read yet, and move ``reading.at`` on.

        Raises:
            ChangedError: it is another pod or container by now.
            JobNotFoundError: the pod is gone.
            UnsupportedError: the log does not tell which of its lines are within the window.
        """

    @abstractmethod
    def printed(self, pod: PodT) -> int:
        """Return how many lines the script in a pod counted at its end; 0 where that is unknown."""

    def read(
        self,
        *,
        follow: bool,
        ended: Callable[[], bool],
        otherwise: Callable[[], Iterator[bytes]],
        last_only: bool = False,
    ) -> Iterator[bytes]:
        """Yield whole lines, in order.

        Without ``follow`` it ends at the last line there is now, else once ``ended`` and all was
        read. An outage is waited for; a stream that was cut goes on after the last line that came
        whole. ``otherwise`` is asked for the lines that the pods do not have, or not any more. With
        ``last_only`` what is before the last lines may be left out.

        Raises:
            BackendUnavailableError: the log still cannot be had some time after the end.
        """
        waiting = Waiting(*PAUSE_S)
        looks = _LOOKS
        while True:
            over, lacking = not follow, False
            pods: Sequence[PodT] = ()
            try:
                # Asked first: what is there after the end is all there will be.
                over = over or ended()
                pods = self.pods()
                for pod in pods:
                    for line in self._new(pod, follow and not over, last_only):
                        waiting.restart()
                        yield line
                # The end of a container may be told before its last lines are.
                lacking = over and not last_only and any(map(self._lacks_lines, pods))
            except JobNotFoundError as err:
                log.debug("%s", err)
                pods = ()
            except ChangedError as err:
                log.debug("%s", err)
                over = False
            except NotStartedError as err:
                log.debug("%s", err)
            except BackendUnavailableError as err:
                # A node that was lost does not come back with the log of a job that has ended.
                if not follow or (over and not looks):
                    raise
                # Also what a job that prints nothing looks like.
                log.debug("the log is interrupted: %s", err)
                looks -= over
                over = False
            if over and not (lacking and looks):
                if lacking or not pods:
                    yield from self._rest(otherwise)
                return
            looks -= lacking
            waiting.pause()

    def _new(self, pod: PodT, follow: bool, last_only: bool) -> Iterator[bytes]:
        reading = self._readings.setdefault(self.name_of(pod), Reading())
        last_only = last_only and not reading.count
        for line in self.lines(pod, reading, follow=follow, last_only=last_only):
            if reading.skip:
                reading.skip -= 1
                continue
            reading.count += 1
            if self.window.holds(reading.at.moment):
                yield line

    def _lacks_lines(self, pod: PodT) -> bool:
        return self._readings[self.name_of(pod)].count < self.printed(pod)

    def _rest(self, otherwise: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
        """Yield what is kept of the log after the lines that the pods have given."""
        shown = sum(reading.count for reading in self._readings.values())
        if self.window and shown:
            return
        for line in itertools.islice(whole_lines(otherwise()), shown, None):
            if self.window:
                raise UnsupportedError(
                    "The pods of this job are gone, and what was kept of its log does not say when "
                    "its lines were written. Ask without since and until."
                )
            yield line
