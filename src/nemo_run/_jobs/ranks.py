"""Which rank of a distributed task failed first, and what that one wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_RANK = re.compile(r"^\[(?:rank|default)(\d{1,6})\]:? ?")
# The agent of torchrun writes these when one of its processes has ended.
_AGENT = re.compile(
    r"torch/distributed/elastic/\S+ (?:\[\S+\] )?failed \(exitcode: |"
    r"torch\.distributed\.elastic\.multiprocessing\.api: ?\[?ERROR|"
    r"ERROR:torch\.distributed\.elastic\.multiprocessing\.api:failed|"
    r"^Sending process \d+ closing signal"
)
_ROOT_CAUSE = re.compile(r"^Root Cause \(first observed failure\):|^Root Cause:")
_ROOT_RANK = re.compile(r"^\s+rank\s*: (\d{1,6})\b")
_ROOT_CODE = re.compile(r"^\s+exitcode\s*: (-?\d{1,4})\b")
_REPORT_LINES = 8


class FirstFailure(NamedTuple):
    """What failed first.

    Attributes:
        rank: None where the log does not say it.
        exit_code: of that rank, or else of the job.
        lines: what that rank wrote, or else everything; not what a launcher wrote afterwards.
    """

    rank: int | None
    exit_code: int | None
    lines: Sequence[str]


def first_failure(lines: Sequence[str], exit_code: int | None) -> FirstFailure:
    """Return what failed first, by what torchrun reports of its ranks."""
    rank = None
    # The last report counts: a task that is tried again has several.
    for number in reversed(range(len(lines))):
        if _ROOT_CAUSE.match(lines[number]):
            report = lines[number + 1 : number + _REPORT_LINES]
            rank = _number(_ROOT_RANK, report)
            code = _number(_ROOT_CODE, report)
            exit_code = exit_code if code is None else code
            lines = lines[: _first_word_of_agent(lines, number)]
            break
    else:
        ranks = {int(m[1]) for line in lines if "Traceback" in line and (m := _RANK.match(line))}
        rank = ranks.pop() if len(ranks) == 1 else None
    return FirstFailure(rank, exit_code, _of_rank(lines, rank))


def _number(pattern: re.Pattern[str], lines: Sequence[str]) -> int | None:
    return next((int(match[1]) for line in lines if (match := pattern.match(line))), None)


def _first_word_of_agent(lines: Sequence[str], end: int) -> int:
    """Return where the agent began to report a failure, at or before ``end``."""
    found = (number for number, line in enumerate(lines[:end]) if _AGENT.search(line))
    return next(found, end)


def _of_rank(lines: Sequence[str], rank: int | None) -> list[str]:
    """Return what one rank wrote, where lines say whose they are; else all of them."""
    marks = [_RANK.match(line) for line in lines]
    if rank is None or not any(marks):
        return [
            line[mark.end() :] if mark else line for line, mark in zip(lines, marks, strict=True)
        ]
    own = [
        line[mark.end() :]
        for line, mark in zip(lines, marks, strict=True)
        if mark and int(mark[1]) == rank
    ]
    # A rank that was killed wrote no traceback; what others wrote since is not about it.
    return own or [line for line, mark in zip(lines, marks, strict=True) if not mark]
