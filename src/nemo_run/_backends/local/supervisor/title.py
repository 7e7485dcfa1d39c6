"""Let ``ps`` tell supervisors apart, which have the arguments of the process they are forks of."""

from __future__ import annotations

import os

from .disk import read_all

PLACEHOLDER = " " * 1024
"""The last argument of that process: the room in which each fork says what it looks after."""


def show(text: bytes) -> None:
    """Put a text where the placeholder is; nothing happens where that cannot be found."""
    import ctypes

    end = _end_of_arguments()
    room = PLACEHOLDER.encode()
    start = end - 1 - len(room)
    if start > 0 and ctypes.string_at(start, len(room)) == room:
        ctypes.memmove(start, text.ljust(len(room), b"\0"), len(room))


def _end_of_arguments() -> int:
    """The address after the last argument; 0 if it cannot be told."""
    try:
        fd = os.open("/proc/self/stat", os.O_RDONLY)
    except OSError:
        return 0
    try:
        data = read_all(fd)
    finally:
        os.close(fd)
    fields = data[data.rindex(b")") + 2 :].split()
    return int(fields[46]) if len(fields) > 46 else 0
