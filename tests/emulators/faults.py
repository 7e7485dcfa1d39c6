"""What can go wrong between a client and a cluster, to be switched on by a test.

A fault applies to requests whose method and path match, for a number of times or until it is taken
away. The latest that matches wins.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Fault:
    """One kind of trouble.

    Attributes:
        method: of the requests that meet it; empty for any.
        path: a pattern, searched in the path.
        skip: how many of those it lets pass first.
        times: how often after that; None for until it is removed.
        status: answer with this.
        drop: close the connection instead of answering.
        handled: do what was asked before answering with ``status`` or closing the connection.
        delay_s: answer later: what was asked is done then, or before where ``handled``.
        cut_after: close the connection after so many bytes of the body.
        answer: a body to answer with instead, as it is; with ``status``, or 200.
        headers: to answer with.
        drip_s: send one byte after another, with such a pause before each.
    """

    method: str = ""
    path: str = ""
    skip: int = 0
    times: int | None = None
    status: int | None = None
    message: str = "injected fault"
    drop: bool = False
    handled: bool = False
    delay_s: float = 0
    cut_after: int | None = None
    answer: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    drip_s: float = 0
    met: int = 0

    def applies(self, method: str, path: str) -> bool:
        return self.method in ("", method) and re.search(self.path, path) is not None


class Faults:
    """The faults that are switched on."""

    def __init__(self) -> None:
        self._active: list[Fault] = []
        self._lock = threading.Lock()
        self._cleared = threading.Event()

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._cleared.clear()
            self._active.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._active = [active for active in self._active if active is not fault]

    def clear(self) -> None:
        """Remove all, and end the delays that are being waited for."""
        with self._lock:
            self._active.clear()
            self._cleared.set()

    @contextlib.contextmanager
    def on(self, fault: Fault) -> Iterator[Fault]:
        """Have ``fault`` while entered."""
        self.add(fault)
        try:
            yield fault
        finally:
            self.remove(fault)

    def take(self, method: str, path: str) -> Fault | None:
        """Return the fault this request meets, and count it."""
        with self._lock:
            for fault in reversed(self._active):
                if fault.applies(method, path):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.met += 1
                    if fault.times is not None and fault.met >= fault.times:
                        self._active.remove(fault)
                    return fault
        return None

    def sleep(self, seconds: float) -> None:
        self._cleared.wait(seconds)
