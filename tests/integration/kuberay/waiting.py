from __future__ import annotations

import time
from collections.abc import Callable

from tests import patience


def wait_until(condition: Callable[[], bool], what: str, quiet_s: float = 20.0) -> None:
    """Wait for a condition; fail with what was waited for."""
    deadline = time.monotonic() + patience.seconds(quiet_s)
    while not condition():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.05)
