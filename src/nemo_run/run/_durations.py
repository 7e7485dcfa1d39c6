"""Durations for people."""

from __future__ import annotations


def elapsed(seconds: float | None) -> str:
    """Return a duration as people write it: 3.2 s, 5:07, 1:00:00."""
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)  # clocks are set back
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
