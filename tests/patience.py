"""How long tests wait for what has to happen.

Times in tests are those of a quiet machine. This stretches them by how slow this one is: by how
long it takes to start a process, measured once, and by how many processes wait for a processor now.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

QUIET_S = 0.05
"""How long a Python that does nothing takes on a quiet machine."""

MOST = 20.0
"""No machine is slower than that; something is wrong with the product, or with the test."""

_VARIABLE = "NEMO_RUN_TEST_SLOWNESS"


def measure() -> None:
    """Measure how slow this machine is, for all processes of a session."""
    if _VARIABLE in os.environ:
        return
    times = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
        times.append(time.monotonic() - began)
    os.environ[_VARIABLE] = f"{max(1.0, sorted(times)[1] / QUIET_S):.2f}"


def slowness() -> float:
    """Return how many times slower than a quiet machine this one is."""
    measured = float(os.environ.get(_VARIABLE, "1"))
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(MOST, measured * max(1.0, waiting))


def seconds(quiet: float) -> float:
    """Return how long to wait for what takes less than ``quiet`` seconds on a quiet machine."""
    return quiet * slowness()


def deadline(quiet: float) -> float:
    """Return the time, of the monotonic clock, at which to give up."""
    return time.monotonic() + seconds(quiet)


@contextmanager
def quick_retries() -> Iterator[None]:
    """Have a faster clock where calls are repeated, while entered, so that we give up sooner."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nemo_run._transport.waiting.time", _QuickClock())
        yield


class _QuickClock:
    """Stands in for the module ``time``: each of its seconds is a hundredth of one."""

    FASTER = 100

    def monotonic(self) -> float:
        return time.monotonic() * self.FASTER

    def sleep(self, quiet: float) -> None:
        time.sleep(quiet / self.FASTER)


def wait_for(
    condition: Callable[[], object], what: str, *, within_s: float = 30, pause_s: float = 0.02
) -> None:
    """Wait until ``condition()`` is true."""
    end = deadline(within_s)
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {within_s} s, nor a while later")
        time.sleep(pause_s)
