"""Log files of a replica on this machine, read to their end or followed."""

from __future__ import annotations

import bisect
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from torchx.schedulers.api import Stream

from nemo_run._jobs import foreign
from nemo_run._jobs.log_lines import LogQuery
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import ConfigError

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
LINE_BYTES = 1 << 24
"""A longer line is shown in pieces, so that no log needs as much memory as it has bytes."""
LAST_BYTES = 1 << 16
CLOCK_BYTES = 1 << 26
PAUSE_S = (0.02, 0.2)
CLOCKS = {
    "combined.log": ".replica/clock",
    "stdout.log": ".replica/clock.stdout",
    "stderr.log": ".replica/clock.stderr",
}
"""For each log a file of lines ``<seconds since the epoch> <bytes in the log by then>``."""

_CLOCK_LINE = re.compile(r"^(\d{1,12}\.\d{1,9}) +(\d{1,18}) *$", re.MULTILINE)


def read(
    directory: Path, query: LogQuery, ended: Callable[[], bool] = lambda: True
) -> Iterator[bytes]:
    """Return blocks of whole lines; with ``query.follow`` until ``ended`` and all was read.

    Raises:
        ConfigError: one stream is wanted, but they were not kept apart.
    """
    return _as_they_come(
        [
            _read_one(file, query.follow, ended, *_range(directory, file, query))
            for file in _files(directory, query.stream)
        ]
    )


def read_file(
    file: Path,
    clock: Path,
    query: LogQuery,
    ended: Callable[[], bool],
    *,
    root: Path | None = None,
) -> Iterator[bytes]:
    """Return blocks of whole lines of one log, like `read`; ``clock`` is as in `CLOCKS`.

    No link below ``root`` is followed.
    """
    start, stop = _one_range(clock, file, query, root)
    return _as_they_come([_read_one(file, query.follow, ended, start, stop, root)])


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


def _as_they_come(logs: list[Iterator[bytes]]) -> Iterator[bytes]:
    """Yield the blocks of several logs; the order between two is not known, each keeps its own."""
    waiting = Waiting(*PAUSE_S)
    while logs:
        quiet = True
        for one in logs[:]:
            block = next(one, None)
            if block is None:
                logs.remove(one)
            elif block:
                yield block
                quiet = False
        if not quiet:
            waiting.restart()
        elif logs:
            waiting.pause()


def _read_one(
    path: Path,
    follow: bool,
    ended: Callable[[], bool],
    start: int,
    stop: int | None,
    root: Path | None = None,
) -> Iterator[bytes]:
    """Yield blocks of whole lines, and nothing (``b""``) where more may come later."""
    descriptor = None
    position, block_bytes = start, BLOCK_BYTES
    # Asked before reading: what was written until the end is then in the file.
    over = not follow or ended()
    try:
        while True:
            if descriptor is None:
                descriptor = foreign.open_file(path, root)
            wanted = block_bytes if stop is None else min(block_bytes, stop - position)
            data = b""
            if descriptor is not None and wanted > 0:
                data = os.pread(descriptor, wanted, position)
            end = data.rfind(b"\n") + 1
            is_last = stop is not None and position + len(data) >= stop
            if end:
                yield data[:end]
                position += end  # what is left of a block is read again with the rest of its line
                block_bytes = BLOCK_BYTES
            elif len(data) == block_bytes and not is_last and block_bytes < LINE_BYTES:
                block_bytes *= 2
            elif len(data) == block_bytes and not is_last:
                yield data
                position += len(data)
            elif over or is_last:
                if data:
                    yield data
                return
            else:
                yield b""
                over = ended()
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _range(directory: Path, file: Path, query: LogQuery) -> tuple[int, int | None]:
    return _one_range(directory / CLOCKS[file.name], file, query)


def _one_range(
    clock: Path, file: Path, query: LogQuery, root: Path | None = None
) -> tuple[int, int | None]:
    """Return from which byte to which the wanted lines of a log are."""
    size = foreign.file_size(file, root)
    times = _clock(clock, root) if query.since or query.until else ([], [])
    start, stop = _times(times, file if size else None, query.since, query.until)
    if query.last_only:
        start = max(start, size - LAST_BYTES)
    return start, stop


def _times(
    clock: tuple[list[float], list[int]],
    file: Path | None,
    since: datetime | None,
    until: datetime | None,
) -> tuple[int, int | None]:
    if since is None and until is None:
        return 0, None
    times, sizes = clock
    if not times and file is not None:  # as 0.12 left it, or there was no room for a clock
        log.warning("When the lines of %s were written is not known; all are shown.", file)
        return 0, None
    start = 0 if since is None else _size_at(times, sizes, since.timestamp())
    if until is None or until.timestamp() >= time.time():
        return start, None
    return start, _size_at(times, sizes, until.timestamp())


def _clock(path: Path, root: Path | None) -> tuple[list[float], list[int]]:
    data = foreign.read_file(path, root, limit=CLOCK_BYTES) or b""
    text = data.decode("ascii", "replace")
    times, sizes = [], []
    for when, size in _CLOCK_LINE.findall(text):  # a power failure may have left rubbish
        times.append(float(when))
        sizes.append(int(size))
    return times, sizes


def _size_at(times: list[float], sizes: list[int], when: float) -> int:
    position = bisect.bisect_right(times, when)
    return sizes[position - 1] if position else 0
