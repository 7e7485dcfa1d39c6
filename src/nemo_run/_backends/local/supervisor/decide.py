"""What follows from what is on disk: an end, an attempt to start, or nothing yet."""

from __future__ import annotations

from .records import Attempt, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

LOST = "ended without an exit code (killed, or the machine went down)"


class End:
    """The replica has ended."""

    def __init__(self, state: str, exit_code: int | None, message: str) -> None:
        self.state = state
        self.exit_code = exit_code
        self.message = message


class Start:
    """The next thing to do is to start an attempt."""

    def __init__(self, number: int, reason: str) -> None:
        self.number = number
        self.reason = reason


def decide(
    status: Status, last: Attempt | None, cancelled_at: float | None, *, alive: bool
) -> End | Start | None:
    """What the files mean: an end, an attempt to start, or None while the last one runs.

    ``alive`` says whether anything of the last attempt is left, a keeper included.
    """
    if last is None:
        if cancelled_at is not None:
            return End("cancelled", None, "cancelled before it started")
        return Start(1, "")
    code = last.exit_code
    if code is None:
        if alive:
            return None
        if last.expired:
            return End("failed", None, _limit_message(status))
        if cancelled_at is not None:
            return End("cancelled", None, "cancelled")
        return End("failed", None, LOST)
    if last.expired:
        return End("failed", code, _limit_message(status))
    # What ended by itself before the request came keeps its outcome.
    if cancelled_at is not None and not last.ended_before(cancelled_at):
        return End("cancelled", code, "cancelled")
    if code == 0:
        return End("succeeded", 0, "")
    reason = describe_exit(code)
    if last.number < status.attempts:
        if cancelled_at is not None:
            return End("cancelled", code, f"cancelled after attempt {last.number} ({reason})")
        return Start(last.number + 1, f"attempt {last.number} ended with {reason}")
    if status.attempts > 1:
        reason += f" in attempt {last.number} of {status.attempts}"
    return End("failed", code, reason)


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    for name in dir(signal):
        if name.startswith("SIG") and "_" not in name and getattr(signal, name) == -code:
            return f"signal {-code} ({name})"
    return f"signal {-code}"


def _limit_message(status: Status) -> str:
    return f"time limit of {status.limit_s or 0:g} s reached"
