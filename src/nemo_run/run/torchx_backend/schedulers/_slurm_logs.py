"""Logs of Slurm jobs: read where they are, by byte offsets, and kept here once a job has ended."""

from __future__ import annotations

import bisect
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from nemo_run import _shell
from nemo_run._clients._slurm_remote import LogRequest
from nemo_run._clients.slurm import LogPart, Slurm
from nemo_run.exceptions import BackendUnavailableError
from nemo_run.run.torchx_backend.schedulers.api import LogQuery

log = logging.getLogger(__name__)

PAUSE_S = (0.3, 2.0)
LAST_BYTES = 1 << 16
KEPT_BYTES = 1 << 26
"""The most that is kept here of one file; what is longer is read from the cluster again."""

_WILD = re.compile(r"\$\{[^}]*\}|\$\w+|%\d*[A-Za-z]")
_NUMBERS = re.compile(r"(\d+)")
# Slurm writes these into the log of whoever it ends; the status says it, too.
_NOTICE = re.compile(
    rb"^(?:slurmstepd|srun)\S*: error: \*\*\* (?:STEP|JOB) .* (?:CANCELLED|FAILED) .*\*\*\*\n",
    re.MULTILINE,
)


def pattern(path: str, job_id: str, *, array: bool, rank: int | None = None) -> str:
    """Return a pattern for a shell that finds the files srun wrote as ``path``.

    Only what is not known beforehand is a wildcard: restarts, elements, nodes.
    """
    number = f"{job_id}_*" if array else job_id
    text = path.replace("%j", number)
    if rank is not None:
        text = text.replace("%t", str(rank))
    parts = [part for wild in _WILD.split(text) for part in (*wild.split("*"),)]
    stars = "*".join(_shell.render([part]) if part else "" for part in parts)
    return re.sub(r"\*+", "*", stars)


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
        local = self._local_parts(query)
        if local is not None and query.since is None and query.until is None:
            yield from _as_lines(iter(local))
        elif query.since is not None or query.until is not None:
            yield from _as_lines(self._between(query))
        else:
            yield from _as_lines(self._remote(query, ended))

    def keep(self) -> None:
        """Copy all files here, now that they do not grow any more."""
        if self._kept is None:
            return
        self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        offsets: dict[str, int] = {}
        files: dict[str, list[bytes]] = {}
        for part in self._stream({}, offsets, LogQuery(role=""), lambda: True):
            files.setdefault(part.path, []).append(part.data)
            if part.size > KEPT_BYTES:
                return
        for path, blocks in files.items():
            (self._kept / PurePosixPath(path).name).write_bytes(b"".join(blocks))
        names = "\n".join(PurePosixPath(path).name for path in sorted(files, key=natural))
        (self._kept / "files").write_text(names)

    def _local_parts(self, query: LogQuery) -> list[bytes] | None:
        if self._kept is None:
            return None
        try:
            names = (self._kept / "files").read_text().split("\n")
        except FileNotFoundError:
            return None
        blocks = [(self._kept / name).read_bytes() for name in names if name]
        return [block[-LAST_BYTES:] for block in blocks] if query.last_only else blocks

    def _remote(self, query: LogQuery, ended: Callable[[], bool]) -> Iterator[bytes]:
        return (part.data for part in self._stream({}, {}, query, ended))

    def _stream(
        self,
        start: Mapping[str, int],
        offsets: dict[str, int],
        query: LogQuery,
        ended: Callable[[], bool],
    ) -> Iterator[LogPart]:
        offsets.update(start)
        pause_s = PAUSE_S[0]
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
                time.sleep(PAUSE_S[1])
                continue
            new = [part for part in sorted(parts, key=lambda p: natural(p.path)) if part.data]
            for part in new:
                offsets[part.path] = part.start + len(part.data)
                yield part
            if any(offsets.get(part.path, 0) < part.size for part in new):
                continue
            if over:
                return
            pause_s = PAUSE_S[0] if new else min(pause_s * 1.5, PAUSE_S[1])
            time.sleep(pause_s)

    def _between(self, query: LogQuery) -> Iterator[bytes]:
        """Yield what was written in a time, by the notes that the batch script takes."""
        clocks = [_parse_clock(text) for text in self._clock_files()]
        parts = self._whole_files()
        for data, (times, sizes) in zip(parts, [*clocks, *[([], [])] * len(parts)], strict=False):
            start = 0 if query.since is None else _size_at(times, sizes, query.since.timestamp())
            stop = (
                len(data)
                if query.until is None
                else _size_at(times, sizes, query.until.timestamp())
            )
            yield data[start:stop]

    def _whole_files(self) -> list[bytes]:
        files: dict[str, list[bytes]] = {}
        for part in self._stream({}, {}, LogQuery(role=""), lambda: True):
            files.setdefault(part.path, []).append(part.data)
        return [b"".join(files[path]) for path in sorted(files, key=natural)]

    def _clock_files(self) -> list[str]:
        parts = self._client.read_logs(LogRequest(pattern=self._clock))
        ordered = sorted(parts, key=lambda part: natural(part.path))
        return [part.data.decode("ascii", "replace") for part in ordered]


def _as_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Cut blocks at line ends, and leave out what Slurm wrote between the lines of the job."""
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if not end:
            rest += block
            continue
        whole = _NOTICE.sub(b"", rest + block[:end])
        rest = block[end:]
        if whole:
            yield whole
    if rest:
        yield rest


def _parse_clock(text: str) -> tuple[Sequence[float], Sequence[int]]:
    pairs = [line.split() for line in text.splitlines()]
    good = [(float(p[0]), int(p[1])) for p in pairs if len(p) == 2 and p[1].isdigit()]
    return [when for when, _ in good], [size for _, size in good]


def _size_at(times: Sequence[float], sizes: Sequence[int], when: float) -> int:
    position = bisect.bisect_right(times, when)
    return sizes[position - 1] if position else 0
