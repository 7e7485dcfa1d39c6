"""Log files of a replica on this machine, read to their end or followed."""

from __future__ import annotations

import bisect
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from torchx.schedulers.api import Stream

from nemo_run.exceptions import ConfigError
from nemo_run.run.torchx_backend.schedulers.api import LogQuery

BLOCK_BYTES = 1 << 20
LAST_BYTES = 1 << 16
PAUSE_S = (0.02, 0.2)
CLOCK = ".replica/clock"
"""Lines ``<seconds since the epoch> <bytes in the log by then>``."""

_CLOCK_LINE = re.compile(r"^(\d+\.\d+) +(\d+) *$", re.MULTILINE)


def read(
    directory: Path, query: LogQuery, ended: Callable[[], bool] = lambda: True
) -> Iterator[bytes]:
    """Return blocks of whole lines; with ``query.follow`` until ``ended`` and all was read.

    Raises:
        ConfigError: one stream is wanted, but they were not kept apart.
    """
    files = _files(directory, query.stream)
    if len(files) == 1:
        start, stop = _range(directory, query.since, query.until)
        if query.last_only:
            start = max(start, _size(files[0]) - LAST_BYTES)
        return _read_one(files[0], query.follow, ended, start, stop)
    return _read_together([_read_one(file, query.follow, ended) for file in files])


def _files(directory: Path, stream: Stream) -> list[Path]:
    together = directory / "combined.log"
    apart = {Stream.STDOUT: directory / "stdout.log", Stream.STDERR: directory / "stderr.log"}
    if stream is Stream.COMBINED:
        kept_apart = not together.exists() and apart[Stream.STDOUT].exists()
        return list(apart.values()) if kept_apart else [together]
    if apart[stream].is_symlink():
        raise ConfigError(
            f"The streams of this job were written to one log, in order, so {stream.name} alone "
            "cannot be had. Use LocalExecutor(separate_streams=True) to keep them apart."
        )
    return [apart[stream]]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read_one(
    path: Path,
    follow: bool,
    ended: Callable[[], bool],
    start: int = 0,
    stop: int | None = None,
) -> Iterator[bytes]:
    descriptor = None
    pause_s = PAUSE_S[0]
    position, block_bytes = start, BLOCK_BYTES
    # Asked before reading: what was written until the end is then in the file.
    over = not follow or ended()
    try:
        while True:
            if descriptor is None:
                with suppress(FileNotFoundError):
                    descriptor = os.open(path, os.O_RDONLY)
            wanted = block_bytes if stop is None else min(block_bytes, stop - position)
            data = b""
            if descriptor is not None and wanted > 0:
                data = os.pread(descriptor, wanted, position)
            end = data.rfind(b"\n") + 1
            is_last = stop is not None and position + len(data) >= stop
            if end:
                yield data[:end]
                position += end  # what is left of a block is read again with the rest of its line
                block_bytes, pause_s = BLOCK_BYTES, PAUSE_S[0]
            elif len(data) == block_bytes and not is_last:
                block_bytes *= 2
            elif over or is_last:
                if data:
                    yield data
                return
            else:
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.5, PAUSE_S[1])
                over = ended()
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _read_together(streams: list[Iterator[bytes]]) -> Iterator[bytes]:
    # The order between two files is not known; each keeps its own.
    for stream in streams:
        yield from stream


def _range(
    directory: Path, since: datetime | None, until: datetime | None
) -> tuple[int, int | None]:
    """Return from which byte to which the lines of a time are."""
    if since is None and until is None:
        return 0, None
    times, sizes = _clock(directory)
    start = 0 if since is None else _size_at(times, sizes, since.timestamp())
    stop = None if until is None else _size_at(times, sizes, until.timestamp())
    return start, stop


def _clock(directory: Path) -> tuple[list[float], list[int]]:
    try:
        text = (directory / CLOCK).read_text(errors="replace")
    except FileNotFoundError:
        return [], []
    times, sizes = [], []
    for when, size in _CLOCK_LINE.findall(text):  # a power failure may have left rubbish
        times.append(float(when))
        sizes.append(int(size))
    return times, sizes


def _size_at(times: list[float], sizes: list[int], when: float) -> int:
    position = bisect.bisect_right(times, when)
    return sizes[position - 1] if position else 0
