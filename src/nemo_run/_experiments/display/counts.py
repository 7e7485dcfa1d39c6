"""The states of many jobs in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def shown(state: str) -> str:
    """Return what people see of a state: a job or experiment that is not submitted waits."""
    return "WAITING" if state == "UNSUBMITTED" else state


def counted(states: Mapping[str, int]) -> str:
    """Return how many jobs are in which state: ``3 SUCCEEDED, 1 FAILED``."""
    return ", ".join(f"{count} {shown(state)}" for state, count in states.items()) or "no jobs"


def summary(statuses: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the states of an experiment's jobs in a line: ``4 jobs: 3 SUCCEEDED, 1 FAILED``."""
    states = Counter(status["status"].name for status in statuses.values())
    return f"{plural(len(statuses), 'job')}: {counted(dict(states.most_common()))}"


def counted_parts(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return which parts of a job are in which state: ``SUCCEEDED 0-2 4, FAILED 3``."""
    numbers: dict[str, list[int]] = {}
    for part in parts:
        numbers.setdefault(part["state"], []).append(part["number"])
    return ", ".join(f"{state} {_ranges(those)}" for state, those in numbers.items())


def _ranges(numbers: Sequence[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return " ".join("-".join(map(str, each)) for each in found)
