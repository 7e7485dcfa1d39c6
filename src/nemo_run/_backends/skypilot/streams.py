"""Logs as SkyPilot streams them: what it puts before each line, and how a stream may end."""

from __future__ import annotations

import io
import queue
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from nemo_run._backends.skypilot.sdk import BACKEND, asking
from nemo_run.exceptions import BackendUnavailableError

_SILENCE_S = 120.0

# "(train, pid=12) text" of a single node, "(head, rank=0, pid=12) text" of several, in colours; of
# any node's setup, which is read as the first node's, "(setup pid=12) text".
_COLOUR = r"(?:\x1b\[[0-9;]*m)*"
_PREFIX = re.compile(
    rf"^{_COLOUR}\((?:setup |[^()]*?, (?:rank=(?P<rank>\d+), )?)"
    rf"pid=\d+(?:, ip=[^()]*)?\){_COLOUR} ?"
)

# What SkyPilot says of a managed job follows a last line that lacks its newline.
_FINISHED = re.compile(rf"(?=\x1b){_COLOUR}✓ Job finished \(status: \w+\)\.{_COLOUR}\n?$")


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A line of a job's log, without what SkyPilot puts before it."""

    rank: int
    text: str


class _Written(io.TextIOBase):
    """A text file that hands on what is written to it."""

    def __init__(self, parts: queue.Queue[str | None]) -> None:
        self._parts = parts

    def write(self, text: str) -> int:
        self._parts.put(text)
        return len(text)


def written(call: Callable[..., Any]) -> Iterator[str | None]:
    """Yield what SkyPilot before 0.13 only writes to a file, while it writes it."""
    parts: queue.Queue[str | None] = queue.Queue()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(call, output_stream=_Written(parts))
        done.add_done_callback(lambda _: parts.put(None))
        while (part := parts.get()) is not None:
            yield part
        done.result()


def _read(stream: Iterator[str | None]) -> Iterator[str | None]:
    """Yield what is streamed; a connection that breaks on the way raises as every call does."""
    while True:
        with asking("read logs"):
            try:
                part = next(stream)
            except StopIteration:
                return
        yield part


def in_time(stream: Iterator[str | None], silence_s: float = _SILENCE_S) -> Iterator[str | None]:
    """Yield what is streamed of a log up to now, which the API server may forget to end.

    Raises:
        BackendUnavailableError: nothing came for too long.
    """
    parts: queue.Queue[str | BaseException | None] = queue.Queue()

    def fill() -> None:
        try:
            for part in stream:
                parts.put(part or "")
            parts.put(None)
        except BaseException as err:  # noqa: BLE001 - raised where it is read
            parts.put(err)

    threading.Thread(target=fill, daemon=True).start()
    try:
        while (part := parts.get(timeout=silence_s)) is not None:
            if isinstance(part, BaseException):
                raise part
            yield part
    except queue.Empty:
        raise BackendUnavailableError(
            f"The SkyPilot API server has sent nothing of a log for {silence_s:.0f} s.",
            backend=BACKEND,
            operation="read logs",
        ) from None


def lines(stream: Iterator[str | None]) -> Iterator[LogLine]:
    """Yield the lines of the task; SkyPilot's own about the job have no process id before them."""
    rest = ""
    for part in _read(stream):
        if part is None:
            continue
        *whole, rest = (rest + part).split("\n")
        for line in whole:
            if (parsed := parse_line(line + "\n")) is not None:
                yield parsed
    if rest and (parsed := parse_line(rest)) is not None:
        yield parsed


def parse_line(line: str) -> LogLine | None:
    """Return a line of the task's, or None for one of SkyPilot's own."""
    match = _PREFIX.match(line)
    if match is None:
        return None
    text = _FINISHED.sub("", line[match.end() :])
    return LogLine(rank=int(match["rank"] or 0), text=text)
