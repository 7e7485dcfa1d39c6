"""Whether an executor could be used right now, found out before anything is submitted.

An executor joins by a method ``check`` that yields findings, such as one for its credentials, one
for the connection, one for each image and mount. It must change nothing at the backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

Verdict = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what, such as ``credentials`` or ``image``.
        verdict: ``failed`` means that a job would not run.
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

    def check(self) -> Iterable[Finding]:
        """Yield a finding for each thing looked at; raises nothing that a finding can say."""
        ...
