"""Send files to a volume through a pod that has it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import IO, TypeVar

from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendUnavailableError, JobNotFoundError

log = logging.getLogger(__name__)

T = TypeVar("T")

BLOCK = 1 << 20
_SAID_S = 5.0


def through_pods(act: Callable[[], T], patience_s: float) -> T:
    """Call ``act``, which finds a pod and uses it, again while its pods are lost, or end."""
    waiting = Waiting(1.0, 1.0, timeout_s=patience_s)
    while True:
        try:
            return act()
        except (BackendUnavailableError, JobNotFoundError) as err:
            if waiting.is_over:
                raise
            log.info("%s; trying again", err)
            waiting.pause()


def blocks_of(archive: IO[bytes], size: int, where: str) -> Iterator[bytes]:
    """Yield what a file of ``size`` bytes holds; say from time to time how far we are."""
    archive.seek(0)
    began = said = time.monotonic()
    sent = 0
    if size > BLOCK:
        log.info("sending %.0f MB to %s", size / 1e6, where)
    while block := archive.read(BLOCK):
        yield block
        sent += len(block)
        now = time.monotonic()
        if now - said > _SAID_S:
            said = now
            rate = sent / (now - began) / 1e6
            log.info("sent %.0f of %.0f MB to %s (%.1f MB/s)", sent / 1e6, size / 1e6, where, rate)
