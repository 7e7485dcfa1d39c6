"""Times as servers write them."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_TIME = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def nanoseconds(text: str) -> int:
    """Return the nanoseconds since the epoch of a time of any precision.

    Raises:
        ValueError: it is something else.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time")
    whole, fraction, zone = match.groups()
    moment = datetime.fromisoformat(whole + ("+00:00" if zone in "Zz" else zone))
    return int((moment - _EPOCH).total_seconds()) * 10**9 + int(f"{fraction or 0:0<9}"[:9])


def seconds(text: str) -> float:
    """Return the seconds since the epoch."""
    return nanoseconds(text) / 1e9
