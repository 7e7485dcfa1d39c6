"""Lines of a pod's log, each after its time and a blank, as Kubernetes shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from nemo_run._transport.timestamps import nanoseconds
from nemo_run.exceptions import BackendUnavailableError


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time that lines are wanted of."""

    since: datetime | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None

    def holds(self, nanoseconds: int) -> bool:
        moment = nanoseconds / 1e9
        return not (
            (self.since is not None and moment < self.since.timestamp())
            or (self.until is not None and moment > self.until.timestamp())
        )


MOST_OF_LINE = 16 << 20
"""Bytes; a container that never ends a line must not fill this machine's memory."""


@dataclass(kw_only=True)
class Position:
    """How far the log of a pod was read: the time of the last line, and how many had that time."""

    stamp: str = ""
    moment: int = 0
    same: int = 0


def new_lines(
    blocks: Iterator[bytes], at: Position, follow: bool, window: Window
) -> Iterator[bytes]:
    """Yield the lines of a pod's log that come after a position, and move it on.

    Raises:
        BackendUnavailableError: what came is no log.
    """
    last, passed = at.moment, 0
    # sinceTime is exact to the second, and lines of one moment may be on both sides of a cut.
    for line in whole_lines(blocks):
        stamp, _, text = line.partition(b" ")
        if follow and not text.endswith(b"\n"):
            return  # the rest is still to come
        try:
            moment = nanoseconds(stamp.decode("ascii", "replace"))
        except ValueError as err:
            # What a kubelet or a gateway says in place of a log has none.
            raise BackendUnavailableError(
                f"Kubernetes sent no log: expected a line with its time, got {line[:200]!r}",
                backend="kubernetes",
                operation="logs",
            ) from err
        if moment == last:
            passed += 1
        if moment < last or (moment == last and passed <= at.same):
            continue
        at.same = at.same + 1 if moment == at.moment else 1
        at.stamp, at.moment = stamp.decode("ascii"), moment
        if window.holds(moment):
            yield text


def whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Cut blocks into lines; only the very last may lack its newline.

    Of a line that is longer than `MOST_OF_LINE` the rest is left out.
    """
    rest: list[bytes] = []
    size = 0
    for block in blocks:
        *lines, last = block.split(b"\n")
        for line in lines:
            yield b"".join([*rest, line, b"\n"])
            rest, size = [], 0
        if last and size < MOST_OF_LINE:
            rest.append(last)
            size += len(last)
    if rest:
        yield b"".join(rest)
