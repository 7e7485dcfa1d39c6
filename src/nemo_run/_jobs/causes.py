"""Why a job failed: pure rules over its state, its exit code, its backend's words and its log.

A rule claims a class only where the text is proof: a last exception, a word of Slurm's, a line that
one program alone writes. Where there is no proof the class is ``exit_code``, which claims nothing.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nemo_run._jobs.cause import Cause
from nemo_run._jobs.ranks import first_failure
from nemo_run._jobs.shown_text import plain
from nemo_run._jobs.tracebacks import Raised, last_raised

READ_LINES = 400
"""How many of the last lines of a log are looked at: torchrun writes a page after the error."""
SHOWN_LINES = 20
_LONGEST = 300
_LONGEST_LINE = 2000


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a job that ended without success.

    Attributes:
        state: the name of its state.
        exit_code: as its backend gives it: negative, or 128 and more, for a signal.
        message: what its backend says of the end.
        lines: the end of its log, at most `READ_LINES`.
    """

    state: str
    exit_code: int | None = None
    message: str = ""
    lines: Sequence[str] = ()


def explain(evidence: Evidence) -> Cause:
    """Return why a job failed, as far as the evidence proves it."""
    read = [plain(line[:_LONGEST_LINE]) for line in evidence.lines[-READ_LINES:]]
    first = first_failure(read, evidence.exit_code)
    lines = first.lines
    told = _told(evidence)
    if told is not None:
        # The backend knows why it ended the job; the log only says what the job did until then.
        kind, summary = told
    else:
        kind, summary = _from_log(lines, first.exit_code)
    if kind == "exit_code":
        summary = evidence.message or summary
    return Cause(kind, _short(summary), first.rank, tuple(_excerpt(lines)))


# What the backend says.

_SAID: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("out_of_memory", r"OUT_OF_MEMORY|OOMKilled|killed for want of memory"),
        ("time_limit", r"^TIMEOUT\b|^DEADLINE\b|DeadlineExceeded|time limit of \S+ s reached"),
        ("preempted", r"^PREEMPTED\b|[Pp]reempted|Evicted"),
        ("node_failure", r"^NODE_FAIL\b|^BOOT_FAIL\b|^RECONFIG_FAIL\b|NodeLost|node was lost"),
        ("image", r"ErrImagePull|ImagePullBackOff|InvalidImageName|could not pull image"),
        ("not_started", r"^LAUNCH_FAILED\b|could not be (?:launched|started|submitted)"),
        ("lost", r"ended without an exit code|its container was removed|cannot be read"),
    )
)
_DEPENDENCY = re.compile(r"^not started: |a job it depends on|another task of the group")


def _told(evidence: Evidence) -> tuple[str, str] | None:
    if evidence.state == "CANCELLED":
        kind = "dependency" if _DEPENDENCY.search(evidence.message) else "cancelled"
        return kind, evidence.message or "cancelled"
    for kind, pattern in _SAID:
        if pattern.search(evidence.message):
            return kind, evidence.message
    if evidence.state == "UNKNOWN":
        return "lost", evidence.message
    return None


# What the log says.

_EXCEPTIONS = {
    "ModuleNotFoundError": "import_error",
    "ImportError": "import_error",
    "MemoryError": "out_of_memory",
    "FileNotFoundError": "missing_file",
    "NotADirectoryError": "missing_file",
    "PermissionError": "permission_denied",
    "SyntaxError": "syntax_error",
    "IndentationError": "syntax_error",
    "TabError": "syntax_error",
    "KeyboardInterrupt": "terminated",
    "OutOfMemoryError": "gpu_out_of_memory",
    "ConnectionError": "network",
    "ConnectionRefusedError": "network",
    "ConnectionResetError": "network",
    "ConnectionAbortedError": "network",
    "BrokenPipeError": "network",
    "TimeoutError": "network",
    "ReadTimeout": "network",
    "ConnectTimeout": "network",
    "ConnectError": "network",
    "gaierror": "network",
    "URLError": "network",
    "DistNetworkError": "network",
    "DistStoreError": "network",
    "RendezvousTimeoutError": "network",
    "RendezvousConnectionError": "network",
    "DistBackendError": "network",
}
_NO_NUMBER = re.compile(r"\b(?:nans?|not a number|non-?finite|infinite loss)\b", re.IGNORECASE)
_NO_NUMBER_NAME = re.compile(r"NaN|NonFinite|NotFinite", re.IGNORECASE)

# In texts of exceptions, and in lines that no traceback belongs to. The first that matches counts.
_TEXTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            "gpu_out_of_memory",
            r"(?:CUDA|HIP|GPU|XPU) out of memory|CUDA error: out of memory|"
            r"CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|"
            r"RESOURCE_EXHAUSTED: Out of memory",
        ),
        (
            "no_gpu",
            r"No CUDA GPUs are available|Found no NVIDIA driver|not compiled with CUDA enabled|"
            r"no CUDA-capable device|CUDA driver version is insufficient|invalid device ordinal|"
            r"torch\.cuda\.is_available\(\) is False|but no GPUs (?:were|are) found|"
            r"could not select device driver .*gpu|[Nn]o supported gpu backend found",
        ),
        (
            "out_of_memory",
            r"can't allocate memory|[Cc]annot allocate memory|std::bad_alloc|"
            r"oom[-_]kill event|Detected \d+ oom_kill|Out [Oo]f [Mm]emory: Killed process|"
            r"\bOOM Killed\b",
        ),
        ("killed", r"is killed by signal: Killed"),
        ("disk_full", r"No space left on device|Disk quota exceeded|ENOSPC"),
        (
            "gpu_error",
            r"CUDA error: (?!out of memory)|CUDNN_STATUS_\w+|CUBLAS_STATUS_(?!ALLOC)\w+|"
            r"device-side assert|illegal memory access|uncorrectable ECC|NVRM: Xid",
        ),
        (
            "network",
            r"Connection (?:refused|reset by peer|closed by peer|timed out|aborted)|"
            r"Address already in use|EADDRINUSE|Name or service not known|No route to host|"
            r"Temporary failure in name resolution|Network is unreachable|"
            r"[Ww]atchdog caught collective operation timeout|ncclRemoteError|ncclSystemError|"
            r"ncclUnhandledCudaError|NCCL (?:error|timeout)|Timed out waiting \d+ms for|"
            r"client socket has (?:timed out|failed)|lost communication with a remote daemon",
        ),
        (
            "import_error",
            r"^\S+: No module named |No module named '|"
            r"error while loading shared libraries|cannot open shared object file",
        ),
        ("permission_denied", r"[Pp]ermission denied|Read-only file system"),
        ("missing_file", r"No such file or directory|can't open file "),
    )
)

# Written by shells, interpreters and launchers when a program ends: proof without a traceback.
_LINES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            "crash",
            r"Segmentation fault|Bus error|Illegal instruction|Floating point exception|"
            r"Aborted(?: \(core dumped\)|\s+\S)|^Fatal Python error|"
            r"Signals?.*\bSIG(?:SEGV|ABRT|BUS|ILL)\b|"
            r"[Ss]ignal: (?:Segmentation fault|Aborted)|on signal (?:6|7|11)\b|\(core dumped\)",
        ),
        (
            "killed",
            r": line \d+:\s+\d+ Killed\b|on signal 9\b|[Ss]ignal 9 \(SIGKILL\)|task \d+: Killed",
        ),
        (
            "command_not_found",
            r"(?:command )?not found$|could not find the following executable|"
            r"executable file not found|unable to find the specified executable",
        ),
        (
            "syntax_error",
            r"syntax error (?:near|at|in)|syntax error: |unexpected (?:EOF|end of file)",
        ),
        (
            "bad_arguments",
            r"^\S+: error: |^[Uu]sage: |[Uu]nknown option|^Error: (?:No such|Missing) "
            r"(?:option|command|argument)|unrecognized arguments",
        ),
    )
)
_SIGNALS = {
    signal.SIGKILL: "killed",
    signal.SIGTERM: "terminated",
    signal.SIGINT: "terminated",
    signal.SIGHUP: "terminated",
    signal.SIGSEGV: "crash",
    signal.SIGABRT: "crash",
    signal.SIGBUS: "crash",
    signal.SIGILL: "crash",
    signal.SIGFPE: "crash",
}
_LAST_WORDS = 12
"""How many of the last lines can say why a program ended without a traceback."""


def _from_log(lines: Sequence[str], code: int | None) -> tuple[str, str]:
    by_signal = _from_signal(code)
    if by_signal is not None and by_signal[0] != "crash" and code is not None and code < 0:
        return by_signal  # nothing that a program writes comes after that
    chain = last_raised(lines)
    if chain and _is_the_end(chain[-1], lines):
        return _from_exceptions(chain)
    last = [line for line in lines if any(map(str.isalnum, line))][-_LAST_WORDS:]
    for rules in (_LINES[:2], _TEXTS, _LINES[2:]):
        # The latest line counts; a rule that comes first is only more certain for the same line.
        for line in reversed(last):
            for kind, pattern in rules:
                if pattern.search(line) and _agrees(kind, code):
                    return kind, line.strip()
    if by_signal is not None:
        return by_signal
    if code == 127:
        return "command_not_found", last[-1].strip() if last else "command not found"
    return "exit_code", f"last line: {last[-1].strip()}" if last else ""


def _from_exceptions(chain: Sequence[Raised]) -> tuple[str, str]:
    """Return the class of the last exception, or of one that caused it, and the last one's text."""
    summary = chain[-1].text
    for raised in reversed(chain):
        kind = _of_exception(raised)
        if kind != "python_error":
            return kind, summary if raised is chain[-1] else f"{summary} (from {raised.text})"
    return "python_error", summary


def _of_exception(raised: Raised) -> str:
    if _NO_NUMBER.search(raised.message) or _NO_NUMBER_NAME.search(raised.name):
        return "not_a_number"
    if raised.name.endswith("OutOfMemoryError") or raised.name not in _EXCEPTIONS:
        for kind, pattern in _TEXTS:
            if pattern.search(raised.message):
                return kind
    return _EXCEPTIONS.get(raised.name, "python_error")


def _is_the_end(raised: Raised, lines: Sequence[str]) -> bool:
    """Tell whether a traceback is why the program ended, and not one that it survived."""
    after = [line for line in lines[raised.line + 1 :] if line.strip()]
    return len(after) <= SHOWN_LINES


def _agrees(kind: str, code: int | None) -> bool:
    """Tell whether a program that ends for this reason can have that exit code."""
    if kind == "bad_arguments":
        return code in (1, 2, 64, None)
    if kind == "command_not_found":
        return code in (1, 127, 134, None) or (code is not None and code > 0)
    return True


def _from_signal(code: int | None) -> tuple[str, str] | None:
    if code is None:
        return None
    number = -code if code < 0 else code - 128
    try:
        found = signal.Signals(number)
    except ValueError:
        return None
    kind = _SIGNALS.get(found)
    return None if kind is None else (kind, f"ended by signal {number} ({found.name})")


_SCRIPT = re.compile(r"^/\S*/([^/\s]+): line ")


def _excerpt(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines to show: those around the last exception, or else the last ones."""
    chain = last_raised(lines)
    end = len(lines)
    if chain and _is_the_end(chain[-1], lines):
        end = chain[-1].line + 1
        # Short words that follow belong to it, such as the rest of its message.
        end = min(len(lines), end + 3) if len(lines) - end <= 3 else end
    yield from (line for line in lines[max(0, end - SHOWN_LINES) : end])


def _short(text: str) -> str:
    # Shells name their script by its whole path, which is ours and long.
    text = _SCRIPT.sub(r"\1: line ", " ".join(text.split()))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
