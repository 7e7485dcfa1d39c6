"""Ray's own client for the jobs of a cluster on Lepton: its logs, and its errors in our words."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    SubmitError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

SCHEDULER = "lepton_ray"
"""Where the records of Ray clusters and jobs on Lepton are, below ``<home>/jobs``."""


class LeptonRayError(SubmitError, RuntimeError):
    """Lepton or Ray did not take it. Also a ``RuntimeError``: scripts may have caught that."""


class Reader:
    """How far the log of a job was read, which Ray gives as a whole."""

    def __init__(self, jobs: Any, job_id: str, ended: Callable[[], bool]) -> None:
        self._jobs, self._job_id, self._ended = jobs, job_id, ended
        self._seen = 0

    def read(self, follow: bool) -> Iterator[bytes]:
        waiting = Waiting(0.2, 5)
        while True:
            over = not follow or self._ended()
            try:
                text = translated(lambda: str(self._jobs.get_job_logs(self._job_id)))
            except BackendUnavailableError as err:
                if not follow:
                    raise
                log.debug("%s: the log is interrupted: %s", self._job_id, err)
                waiting.pause()
                continue
            new = text[self._seen :]
            if not over:
                new = new[: new.rfind("\n") + 1]  # the rest of the last line is still to come
            self._seen += len(new)
            if new:
                waiting.restart()
            yield from (line.encode() for line in new.splitlines(keepends=True))
            if over:
                return
            waiting.pause()


def translated(call: Callable[[], T]) -> T:
    """Call Ray's client, and say what went wrong in our own words."""
    from requests.exceptions import RequestException

    try:
        return call()
    except (RequestException, ConnectionError) as err:
        raise BackendUnavailableError(
            f"The Ray cluster does not answer: {err}",
            backend=SCHEDULER,
            operation="ray",
            detail=str(err),
        ) from err
    except RuntimeError as err:
        if isinstance(err, BackendError):
            raise
        raise refusal(err) from err


def refusal(err: RuntimeError) -> BackendError:
    found = re.search(r"status code (\d{3})", str(err))
    status = int(found[1]) if found else 0
    kind: type[BackendError] = LeptonRayError
    if status == 429 or status >= 500:
        kind = BackendUnavailableError
    elif status in (401, 403):
        kind = AuthenticationError
    return kind(f"Ray refused: {err}", backend=SCHEDULER, operation="ray", detail=str(err))
