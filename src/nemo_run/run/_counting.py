"""The states of many jobs in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any


def plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def counted(states: Mapping[str, int]) -> str:
    """Return how many jobs are in which state: ``3 SUCCEEDED, 1 FAILED``."""
    return ", ".join(f"{count} {state}" for state, count in states.items()) or "no jobs"


def summary(statuses: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the states of an experiment's jobs in a line: ``4 jobs: 3 SUCCEEDED, 1 FAILED``."""
    states = Counter(status["status"].name for status in statuses.values())
    return f"{plural(len(statuses), 'job')}: {counted(dict(states.most_common()))}"
