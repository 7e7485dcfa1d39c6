"""Read log files on the cluster: the program that prints them, and how its answer is read."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nemo_run import _shell
from nemo_run._backends.slurm.remote import MARK, unavailable

_READ_AT_ONCE = 500
"""With how many arguments log files are read; five for each."""

# With few programs, since there may be many files: one tells the lengths of all, and what has not
# grown is not read. Base64, since what comes back may be any bytes, and passes through a login
# shell's terminal.
_READ = rf"""
line_end='
'
read_log() {{
    if [ "$5" -gt 0 ] && [ "$3" -eq 0 ] && [ "$6" -gt "$5" ]; then
        set -- "$1" "$2" $(($6 - $5)) "$4" "$5" "$6"
    fi
    echo "{MARK} file $1 $3 $6 $2"
    if [ "$3" -eq 0 ] && [ "$6" -gt 0 ] && [ "$6" -le "$4" ]; then
        base64 "$2"
    elif [ "$6" -gt "$3" ]; then
        tail -c +$(($3 + 1)) "$2" | head -c "$4" | base64
    fi
}}
paths() {{
    while [ $# -gt 0 ]; do
        printf '%s\0' "$2"
        shift 5
    done
}}
lengths() {{
    while [ $# -gt 0 ]; do
        size=$(wc -c <"$2") || size=0
        echo $((size))
        shift 5
    done
}}
read_all() {{
    # A file that has gone away meanwhile would put the others out of step.
    sizes=$(paths "$@" | xargs -0 stat -L -c %s 2>/dev/null) || sizes=$(lengths "$@")
    for size in $sizes; do
        read_log "$1" "$2" "$3" "$4" "$5" "$size"
        shift 5
    done
}}
"""


@dataclass(frozen=True, kw_only=True)
class LogRequest:
    """Which files to read from where.

    Attributes:
        pattern: for the shell, quoted but for its wildcards.
        offsets: how many bytes of which file are known.
        limit: read at most this many bytes of each.
        last: start a file that is not known at most this many bytes before its end; 0 for all.
    """

    pattern: str
    offsets: Mapping[str, int] = field(default_factory=dict)
    limit: int = 1 << 22
    last: int = 0


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """A piece of a log file."""

    path: str
    start: int
    size: int
    data: bytes = field(repr=False)


def read_logs(requests: Sequence[LogRequest]) -> str:
    """Print the files of each request, and what is in them after the bytes that are known."""
    lines = [_READ.strip("\n")]
    for number, request in enumerate(requests):
        known = "".join(
            f" {_shell.render([path])}) o={offset} ;;" for path, offset in request.offsets.items()
        )
        lines.append(
            # A name with a line end in it could name, and speak for, the files of another job.
            f'for f in {request.pattern}; do [ -f "$f" ] || continue; o=0; '
            f'case "$f" in *"$line_end"*) continue ;;{known} *) ;; esac; '
            f'set -- "$@" {number} "$f" "$o" {request.limit} {request.last}; '
            # A shell takes the longer for each argument the more there are.
            f'[ $# -lt {_READ_AT_ONCE} ] || {{ read_all "$@"; set --; }}; done'
        )
    return "\n".join([*lines, 'read_all "$@"'])


def log_parts(out: str, count: int) -> list[list[LogPart]]:
    """Return what an answer has of each of ``count`` logs.

    Raises:
        BackendUnavailableError: it is not such an answer.
    """
    parts: list[list[LogPart]] = [[] for _ in range(count)]
    try:
        for block in out.split(f"{MARK} file ")[1:]:
            head, _, encoded = block.partition("\n")
            number, start, size, path = head.split(" ", 3)
            data = base64.b64decode(encoded)
            part = LogPart(path=path, start=int(start), size=int(size), data=data)
            parts[int(number)].append(part)
    except (ValueError, IndexError) as err:
        raise unavailable("read logs", f"the answer cannot be read ({err})") from err
    return parts
