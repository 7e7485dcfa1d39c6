"""Names for parametrised cases."""

from __future__ import annotations

import re
from typing import Any


def stable_repr(value: Any) -> str:
    """Return ``repr(value)`` without addresses, the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
