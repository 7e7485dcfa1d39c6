"""Whether this process, and those that it starts, may only show what they would launch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# In the environment, so that launchers that a script starts itself know it too.
VARIABLE = "NEMORUN_ONLY_PLAN"


def only_planning() -> bool:
    """Tell whether nothing is to be launched, whatever else is asked for."""
    return VARIABLE in os.environ


@contextmanager
def planning() -> Iterator[None]:
    """Let nothing be launched, by this process or by those that it starts."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
