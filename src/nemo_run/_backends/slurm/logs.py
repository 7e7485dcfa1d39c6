"""Logs of Slurm jobs: read where they are, by byte offsets, and kept here once a job has ended."""

from __future__ import annotations

import bisect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from nemo_run import _shell
from nemo_run._backends.slurm.client import Slurm
from nemo_run._backends.slurm.log_files import LogPart, LogRequest
from nemo_run._files import write_whole
from nemo_run._jobs.log_lines import LogQuery
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import BackendUnavailableError

log = logging.getLogger(__name__)

PAUSE_S = (0.3, 2.0)
LAST_BYTES = 1 << 16
LINE_BYTES = 1 << 24
"""A longer line is shown in pieces."""
KEPT_BYTES = 1 << 26
"""The longest file that is kept here; what is longer is read from the cluster again."""

_BLOCK_BYTES = 1 << 22
_INDEX = "files"
"""Names the files of a task: those that are here, and the paths of those on the cluster."""

_END = "end"
"""Stands for a size in the notes: nothing was written later."""
_ALL_OF_IT = sys.maxsize
_CLOCK = re.compile(r"^clock-\d+-")
_NOTE = re.compile(rf"([0-9]{{1,12}}(?:\.[0-9]{{1,9}})?) ([0-9]{{1,18}}|{_END})")
_ALL = LogQuery(role="")
_NUMBERS = re.compile(r"(\d+)")
# Slurm writes these into the log of a step that it ends; the status says it, too.
_NOTICE = re.compile(
    rb"^(?:slurmstepd|srun)\S*: error: \*\*\* (?:STEP|JOB) .* (?:CANCELLED|FAILED) .*\*\*\*\n",
    re.MULTILINE,
)


def natural(path: str) -> list[tuple[int, str]]:
    """Return a sort key that puts 10 after 9."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in _NUMBERS.split(path)]


class Logs:
    """The log files of one task of a job."""

    def __init__(
        self, client: Slurm, glob: str, *, clock: str = "", kept: Path | None = None
    ) -> None:
        self._client = client
        self._glob = glob
        self._clock = clock
        self._kept = kept

    def read(self, query: LogQuery, ended: Callable[[], bool]) -> Iterator[bytes]:
        """Yield blocks of whole lines; with ``query.follow`` until ``ended`` and all was read."""
        if query.since is not None or query.until is not None:
            yield from _as_lines(self._between(query))
            return
        local = self._local_parts(query)
        if local is not None:
            yield from _as_lines(local)
        else:
            yield from _as_lines(self._stream({}, query, ended), growing=query.follow)

    @property
    def are_kept(self) -> bool:
        """Whether there is nothing to be copied here any more."""
        return self._kept is None or (self._kept / _INDEX).exists()

    def keep(self) -> None:
        """Copy all files here, now that they do not grow any more.

        Those that are very long stay where they are. Nothing of a copy that breaks off is used.
        """
        if self._kept is None:
            return
        self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        found: dict[str, str] = {}
        with _Copies(self._kept) as copies:
            offsets: dict[str, int] = {}
            for part in self._stream(offsets, _ALL, lambda: True):
                if part.size > KEPT_BYTES:
                    found[part.path] = part.path
                    offsets[part.path] = part.size
                    continue
                found[part.path] = PurePosixPath(part.path).name
                copies.append(found[part.path], part.data)
        if found:
            index = "\n".join(found[path] for path in sorted(found, key=natural))
            write_whole(self._kept / _INDEX, index.encode(), sync=False)

    def _local_parts(self, query: LogQuery) -> Iterator[LogPart] | None:
        if self._kept is None:
            return None
        try:
            names = (self._kept / _INDEX).read_text().split("\n")
        except FileNotFoundError:
            return None
        return (part for name in names for part in self._kept_parts(self._kept / name, query))

    def _kept_parts(self, path: Path, query: LogQuery) -> Iterator[LogPart]:
        """Yield a file that was copied here, or that is still on the cluster."""
        if path.parent != self._kept:
            there = Logs(self._client, _shell.render([str(path)]))
            yield from there._stream({}, replace(query, follow=False), lambda: True)
            return
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - LAST_BYTES) if query.last_only else 0)
            while data := file.read(_BLOCK_BYTES):
                start = file.tell() - len(data)
                yield LogPart(path=str(path), start=start, size=size, data=data)

    def _stream(
        self, offsets: dict[str, int], query: LogQuery, ended: Callable[[], bool]
    ) -> Iterator[LogPart]:
        """Yield what comes after ``offsets``, which go along; an empty file comes once, too."""
        waiting = Waiting(*PAUSE_S)
        while True:
            # Asked before reading: what was written until the end is then in the files.
            over = not query.follow or ended()
            try:
                parts = self._client.read_logs(
                    LogRequest(
                        pattern=self._glob,
                        offsets=dict(offsets),
                        last=LAST_BYTES if query.last_only else 0,
                    )
                )
            except BackendUnavailableError as err:
                if not query.follow:
                    raise
                log.warning("%s; trying again", err)
                waiting.pause()
                continue
            ordered = sorted(parts, key=lambda part: natural(part.path))
            new = [part for part in ordered if part.data or part.path not in offsets]
            for part in new:
                offsets[part.path] = part.start + len(part.data)
                yield part
            if any(offsets.get(part.path, 0) < part.size for part in new):
                continue
            if over:
                return
            if new:
                waiting.restart()
            waiting.pause()

    def _between(self, query: LogQuery) -> Iterator[LogPart]:
        """Yield what was written in a time, by the notes that the batch script takes."""
        clocks = {
            _CLOCK.sub("", PurePosixPath(path).name): _parse_clock(data.decode("ascii", "replace"))
            for path, data in self._whole_files(self._clock).items()
        }
        for path, data in self._whole_files(self._glob).items():
            times, sizes = clocks.get(PurePosixPath(path).name, ([], []))
            start = 0 if query.since is None else _size_at(times, sizes, query.since.timestamp())
            stop = (
                len(data)
                if query.until is None
                else _size_at(times, sizes, query.until.timestamp())
            )
            yield _whole(path, data[start:stop])

    def _whole_files(self, glob: str) -> dict[str, bytes]:
        files: dict[str, list[bytes]] = {}
        for part in Logs(self._client, glob)._stream({}, _ALL, lambda: True):
            files.setdefault(part.path, []).append(part.data)
        return {path: b"".join(files[path]) for path in sorted(files, key=natural)}


class _Copies:
    """Files that get their names in a directory when all are whole, and are gone otherwise."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._suffix = f".{os.urandom(8).hex()}.tmp"
        self._staged: dict[str, Path] = {}

    def append(self, name: str, data: bytes) -> None:
        staged = self._directory / f".{len(self._staged)}{self._suffix}"
        with self._staged.setdefault(name, staged).open("ab") as file:
            file.write(data)

    def __enter__(self) -> _Copies:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            while kind is None and self._staged:
                name, staged = next(iter(self._staged.items()))
                staged.replace(self._directory / name)
                del self._staged[name]
        finally:
            for staged in self._staged.values():
                staged.unlink(missing_ok=True)


def _whole(path: str, data: bytes) -> LogPart:
    return LogPart(path=path, start=0, size=len(data), data=data)


def _as_lines(parts: Iterable[LogPart], *, growing: bool = False) -> Iterator[bytes]:
    """Cut files at line ends, and leave out what Slurm wrote between the lines of the job.

    What has no line end yet waits for it, unless its file is not ``growing``: then it gets one
    when another file follows.
    """
    rests: dict[str, bytes] = {}
    over: set[str] = set()
    for part in parts:
        for path in [path for path in rests if path in over and path != part.path]:
            yield rests.pop(path) + b"\n"
        end = part.data.rfind(b"\n") + 1
        before = rests.pop(part.path, b"")
        rest = part.data[end:] if end else before + part.data
        if len(rest) > LINE_BYTES:
            yield rest
        elif rest:
            rests[part.path] = rest
        if not growing and part.start + len(part.data) >= part.size:
            over.add(part.path)
        whole = _NOTICE.sub(b"", before + part.data[:end]) if end else b""
        if whole:
            yield whole
    if rests:
        yield b"\n".join(rests.values())


def _parse_clock(text: str) -> tuple[Sequence[float], Sequence[int]]:
    times: list[float] = []
    sizes: list[int] = []
    for line in text.splitlines():
        match = _NOTE.fullmatch(line)
        if match is None:
            continue
        when, size = match.groups()
        if sizes and sizes[-1] == _ALL_OF_IT:
            # It was not all: a job that was started again went on with the same file.
            sizes[-1] = sizes[-2] if len(sizes) > 1 else 0
        times.append(float(when))
        sizes.append(_ALL_OF_IT if size == _END else int(size))
    return times, sizes


def _size_at(times: Sequence[float], sizes: Sequence[int], when: float) -> int:
    position = bisect.bisect_right(times, when)
    return sizes[position - 1] if position else 0
