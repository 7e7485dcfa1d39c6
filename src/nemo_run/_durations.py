"""Durations as people write them."""

from __future__ import annotations

import re
import reprlib

from nemo_run.exceptions import ConfigError

_LONGEST_S = 100 * 365 * 86400
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def is_duration(text: str) -> bool:
    return _DURATION.fullmatch(text.strip()) is not None


def seconds(text: str) -> float:
    """Read a duration such as ``90s``, ``10m``, ``2h``, ``3d`` or ``1w``.

    Raises:
        ConfigError: it is none.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not a duration. Write it like 90s, 10m, 2h, 3d or 1w.")
    found = float(match[1]) * _UNITS_S[match[2]]
    if found > _LONGEST_S:
        raise ConfigError(f"{reprlib.repr(text)} is longer than anything takes. Use a week or so.")
    return found
