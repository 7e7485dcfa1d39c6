"""How many examples of odd input to try: few with all the tests, many with `make fuzz`."""

from __future__ import annotations

import os


def count(few: int) -> int:
    return int(os.environ.get("FUZZ_EXAMPLES") or few)
