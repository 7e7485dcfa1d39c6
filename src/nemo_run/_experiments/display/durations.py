"""Durations and sizes for people."""

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


def in_bytes(size: int | None) -> str:
    """Return a size as people write it: 640 KiB, 12 MiB, 3.4 GiB."""
    if size is None:
        return ""
    for unit, step in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= step:
            return f"{size / step:.1f} {unit}" if size < 10 * step else f"{size // step} {unit}"
    return f"{size // 1024} KiB"
