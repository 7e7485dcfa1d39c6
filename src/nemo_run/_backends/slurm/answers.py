"""What Slurm's commands print, read into values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

SQUEUE_FIELDS = (
    "JobArrayID:80|,State:20|,exit_code:12|,RestartCnt:12|,StartTime:24|,EndTime:24|,"
    "NodeList:200|,Reason:200"
)
SACCT_FIELDS = "JobID,State,ExitCode,Start,End,NodeList,Reason"

ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REVOKED",
        "TIMEOUT",
    }
)
"""The words for a job that is over."""

NOT_FOR_GOOD = frozenset({"BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL", "PREEMPTED"})
"""Those of them after which Slurm starts a job again, unless it was told not to."""

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_LAST_ELEMENT = 4_000_001
"""The largest index of an array that Slurm can be set to take."""
_NUMBER = re.compile(r"[0-9]{1,18}")
# A job writes these itself, so nothing is read that could not be a time or a code.
_EXIT_NAME = re.compile(r"exit(?:-([0-9]{1,9}))?")
_EXIT = re.compile(r"(-?[0-9]{1,4}) +([0-9]{1,9}) +(-?[0-9]{1,9}) +([0-9]{1,11}) +([0-9]{1,11})")
_ELEMENT = re.compile(r"^(\d+)(?:_(\d+|\[.*\])|\+(\d+))?$")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line about a job, an element of an array, or a component of a heterogeneous job.

    Attributes:
        id: as Slurm prints it, such as ``12``, ``12_3`` or ``12+1``.
        state: Slurm's word, such as ``COMPLETED``.
        exit_code: as a shell would give it: 128 and the signal for what a signal ended.
        reason: why it waits, or why it ended.
    """

    id: str
    state: str
    exit_code: int | None = None
    restarts: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    nodes: str = ""
    reason: str = ""

    @property
    def job_id(self) -> str:
        """The number that ``sbatch`` gave."""
        match = _ELEMENT.match(self.id)
        return match[1] if match else self.id

    @property
    def element(self) -> str:
        """What tells elements of one job apart; empty for a plain job."""
        return self.id[len(self.job_id) :]

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


def parse_squeue(text: str) -> list[Row]:
    """Read what ``squeue -O`` prints with `SQUEUE_FIELDS`, times as seconds since the epoch."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|", 7)]
        if len(cells) == 8 and _ELEMENT.match(cells[0]):
            id_, state, status, restarts, start, end, nodes, reason = cells
            rows.append(
                Row(
                    id=id_,
                    state=state.upper(),
                    exit_code=_wait_status(status),
                    restarts=_integer(restarts) or 0,
                    started_at=_time(start),
                    ended_at=_time(end),
                    nodes=nodes,
                    reason="" if reason in ("None", "(null)") else reason,
                )
            )
    return rows


def parse_sacct(text: str) -> list[Row]:
    """Read what ``sacct -P`` prints with `SACCT_FIELDS`, times as seconds since the epoch."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|", 6)]
        if len(cells) == 7 and _ELEMENT.match(cells[0]):
            id_, state, status, start, end, nodes, reason = cells
            rows.append(
                Row(
                    id=id_,
                    # "CANCELLED by 1000" names who did it.
                    state=(state.split() or ["UNKNOWN"])[0].rstrip("+").upper(),
                    exit_code=_code_and_signal(status),
                    started_at=_time(start),
                    ended_at=_time(end),
                    nodes="" if nodes.startswith("None") else nodes,
                    reason="" if reason in ("None", "(null)") else reason,
                )
            )
    return rows


@dataclass(frozen=True, kw_only=True)
class Exit:
    """What a batch script left behind when it ended.

    Attributes:
        asked: Slurm had asked it to end: it was cancelled, preempted, or out of time.
    """

    element: str
    code: int
    restarts: int
    asked: bool
    started_at: float
    ended_at: float


def parse_exit(name: str, text: str) -> Exit | None:
    """Read a file called ``exit`` or ``exit-<element of an array>``; None for half of one."""
    of_element, match = _EXIT_NAME.fullmatch(name), _EXIT.fullmatch(text.strip())
    if of_element is None or match is None:
        return None
    code, restarts, asked, started, ended = map(int, match.groups())
    element = of_element[1]
    return Exit(
        element=f"_{element}" if element else "",
        code=code,
        restarts=restarts,
        asked=bool(asked),
        started_at=started,
        ended_at=ended,
    )


def by_job(rows: Iterable[Row]) -> Mapping[str, Sequence[Row]]:
    """Return rows by the number that ``sbatch`` gave."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.job_id, []).append(row)
    return found


def array_elements(text: str) -> frozenset[str]:
    """Return the elements that ``0-5,8`` or ``[0-15:4%2]`` stands for, as `Row.element` has them.

    None come back for a text that is no such list, or one that Slurm has abbreviated.
    """
    found: set[str] = set()
    for part in text.strip("_[]").partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return frozenset()
        first, last, step = match[1], match[2] or match[1], match[3] or "1"
        numbers = range(int(first), int(last) + 1, max(1, int(step)))
        if int(last) > _LAST_ELEMENT:
            return frozenset()
        found |= {f"_{n}" for n in numbers}
    return frozenset(found)


def _wait_status(text: str) -> int | None:
    status = _integer(text)
    if status is None:
        return None
    return 128 + (status & 0x7F) if status & 0x7F else status >> 8


def _code_and_signal(text: str) -> int | None:
    code, _, signal = text.partition(":")
    number, by_signal = _integer(code), _integer(signal)
    return number if not by_signal or number else 128 + by_signal


def _integer(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _time(text: str) -> float | None:
    return float(_integer(text) or 0) or None
