"""Pauses between looks and between tries: they grow, they end, and long ones are said.

Most loops here are not calls that are tried again, which libraries such as tenacity decorate: they
look at a job until it has changed, or follow a log and begin anew with short pauses whenever a line
came. All of them need the same five lines, which are here.
"""

from __future__ import annotations

import logging
import math
import random
import time

log = logging.getLogger(__name__)

# Retries after a longer pause than this are logged at INFO.
_SAID_S = 1.0


class Waiting:
    """The pauses of one loop, from ``first_s`` to ``most_s``, for ``timeout_s`` in all.

    Args:
        growth: how many times longer the next pause is.
        jitter: the share by which a pause may be longer or shorter, so that many clients that
            lost the same server do not come back as one.
    """

    def __init__(
        self,
        first_s: float,
        most_s: float,
        *,
        timeout_s: float = math.inf,
        growth: float = 1.5,
        jitter: float = 0.0,
    ) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._growth, self._jitter = growth, jitter
        self._deadline = time.monotonic() + timeout_s
        self._pause_s = first_s

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self._deadline - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.left_s < 0

    def pause(self) -> None:
        """Sleep, not beyond the deadline; the next pause is longer."""
        time.sleep(max(0.0, min(self._next_s(), self.left_s)))

    def restart(self) -> None:
        """Begin with short pauses again: something came. The deadline stays."""
        self._pause_s = self._first_s

    def tolerate(self, error: Exception) -> None:
        """Pause before the next try; raise ``error`` where that would come after the deadline."""
        pause_s = self._next_s()
        if pause_s > self.left_s:
            raise error
        level = logging.INFO if pause_s > _SAID_S else logging.DEBUG
        log.log(level, "%s; trying again in %.1f s", error, pause_s)
        time.sleep(pause_s)

    def _next_s(self) -> float:
        pause_s = self._pause_s * random.uniform(1 - self._jitter, 1 + self._jitter)
        self._pause_s = min(self._pause_s * self._growth, self._most_s)
        return pause_s
