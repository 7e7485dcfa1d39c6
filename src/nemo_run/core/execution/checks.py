"""Whether an executor could be used right now, found out before anything is submitted.

An executor joins by a method ``diagnose`` that yields findings, such as one for its credentials,
one for the connection, one for each image and mount. It must change nothing at the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from nemo_run.exceptions import NemoRunError

Verdict = Literal["ok", "unknown", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what, such as ``credentials`` or ``image``.
        verdict: ``failed`` means that a job would not run, ``unknown`` that it cannot be seen
            from here.
        detail: what was seen.
        advice: what to do about it.
    """

    subject: str
    verdict: Verdict
    detail: str = ""
    advice: str = ""


@runtime_checkable
class Checkable(Protocol):
    """An executor that can tell whether it could be used."""

    def diagnose(self) -> Iterable[Finding]:
        """Yield a finding for each thing looked at; raises nothing that a finding can say."""
        ...


def attempt(subject: str, look: Callable[[], object], *, advice: str = "") -> Finding:
    """Return what came of looking at something: what it says, or the error it ended with."""
    try:
        seen = look()
    except NemoRunError as err:
        return Finding(subject, "failed", str(err), advice)
    return Finding(subject, "ok", "" if seen is None else str(seen))
