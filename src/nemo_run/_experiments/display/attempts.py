"""The attempts of a job, for people."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from nemo_run._experiments.display.durations import elapsed


def told_attempts(attempts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each attempt; none for a job that did not have to be tried again."""
    if not any(attempt["number"] > 1 for attempt in attempts):
        return []
    several = len({attempt["replica"] for attempt in attempts}) > 1
    return [_told(attempt, several=several) for attempt in attempts]


def _told(attempt: Mapping[str, Any], *, several: bool) -> str:
    began, ended, code = attempt["started_at"], attempt["ended_at"], attempt["exit_code"]
    words = [
        f"Attempt {attempt['number']}" + (f" of {attempt['replica']}" if several else "") + ":"
    ]
    if began is not None:
        words.append(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)) + ",")
    if ended is None:
        words.append("runs")
    else:
        words.append("no exit code" if code is None else f"exit code {code}")
    if began is not None and ended is not None:
        words.append(f"after {elapsed(ended - began)}")
    logs = [f"{path} from byte {begin}" for path, begin in attempt["logs"]]
    return " ".join(words) + (f", log: {' and '.join(logs)}" if logs else "")
