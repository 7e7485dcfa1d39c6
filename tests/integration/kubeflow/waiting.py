"""Wait for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests import patience


def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = patience.deadline(timeout_s)
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
