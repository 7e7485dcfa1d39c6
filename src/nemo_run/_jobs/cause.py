"""Why a job failed, as it is shown and stored; `causes` has the rules that find it out.

Apart from these rules, which a job that succeeds does not need.
"""

from __future__ import annotations

from typing import Any, NamedTuple

KINDS = {
    "out_of_memory": "out of memory",
    "gpu_out_of_memory": "out of GPU memory",
    "time_limit": "time limit",
    "import_error": "import error",
    "missing_file": "missing file",
    "command_not_found": "command not found",
    "permission_denied": "permission denied",
    "syntax_error": "syntax error",
    "bad_arguments": "wrong arguments",
    "not_a_number": "not a number",
    "no_gpu": "no GPU",
    "gpu_error": "GPU error",
    "network": "network",
    "disk_full": "disk full",
    "crash": "crashed",
    "killed": "killed",
    "terminated": "asked to end",
    "node_failure": "node failure",
    "preempted": "preempted",
    "image": "image",
    "not_started": "not started",
    "lost": "lost",
    "cancelled": "cancelled",
    "dependency": "dependency",
    "python_error": "error",
    "exit_code": "exit code",
}
"""Every class of cause, as programs and as people see it."""


class Cause(NamedTuple):
    """Why a job failed.

    Attributes:
        kind: one of `KINDS`.
        summary: why, in a line; empty where the exit code says all that is known.
        rank: which rank of a distributed task failed first, where its log says so.
        lines: the last lines of the log of what failed first.
    """

    kind: str
    summary: str = ""
    rank: int | None = None
    lines: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "lines": list(self.lines)}

    @classmethod
    def from_json(cls, data: Any) -> Cause | None:
        """Read what `to_json` gave; None for anything else, since it can be worked out again."""
        try:
            rank = data["rank"]
            return cls(
                kind=str(data["kind"]),
                summary=str(data["summary"]),
                rank=rank if isinstance(rank, int) else None,
                lines=tuple(map(str, data["lines"])),
            )
        except (KeyError, TypeError):
            return None
