"""Lines of a pod's log, each after its time and a blank, as Kubernetes shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from nemo_run._clients.rfc3339 import nanoseconds


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


@dataclass(kw_only=True)
class Position:
    """How far the log of a pod was read: the time of the last line, and how many had that time."""

    stamp: str = ""
    moment: int = 0
    same: int = 0


def new_lines(
    blocks: Iterator[bytes], at: Position, follow: bool, window: Window
) -> Iterator[bytes]:
    """Yield the lines of a pod's log that come after a position, and move it on."""
    last, passed = at.moment, 0
    # sinceTime is exact to the second, and lines of one moment may be on both sides of a cut.
    for line in whole_lines(blocks):
        stamp, _, text = line.partition(b" ")
        if follow and not text.endswith(b"\n"):
            return  # the rest is still to come
        moment = nanoseconds(stamp.decode("ascii", "replace"))
        if moment == last:
            passed += 1
        if moment < last or (moment == last and passed <= at.same):
            continue
        at.same = at.same + 1 if moment == at.moment else 1
        at.stamp, at.moment = stamp.decode("ascii"), moment
        if window.holds(moment):
            yield text


def whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Cut blocks into lines; only the very last may lack its newline."""
    rest: list[bytes] = []
    for block in blocks:
        *lines, last = block.split(b"\n")
        for line in lines:
            yield b"".join([*rest, line, b"\n"])
            rest = []
        if last:
            rest.append(last)
    if rest:
        yield b"".join(rest)
