"""What the files of a local replica mean, as its users read it."""

from __future__ import annotations

import pytest

from nemo_run._backends.local.supervisor.decide import End, Start, decide, describe_exit
from nemo_run._backends.local.supervisor.records import Attempt, Status

AT_10 = 10.0
LOST = "ended without an exit code (killed, or the machine went down)"
EXPIRED = "time limit of 5 s reached"


def attempt(name: str) -> Attempt:
    made = Attempt(name, b"5 6\n7 8\nplace\n1.0\n1.0\n\n")
    made.ended_at = AT_10
    return made


def meaning(last: str | None, cancelled_at: float | None, *, alive: bool, attempts: int = 2) -> str:
    status = Status(token="t", attempts=attempts, limit_s=5, grace_s=1)
    step = decide(status, attempt(last) if last else None, cancelled_at, alive=alive)
    if isinstance(step, End):
        return f"{step.state} {step.exit_code}: {step.message}"
    return f"start {step.number}: {step.reason}" if isinstance(step, Start) else "runs"


@pytest.mark.parametrize(
    ("last", "cancelled_at", "expected"),
    [
        (None, None, "start 1: "),
        (None, 1.0, "cancelled None: cancelled before it started"),
        ("attempt-1.started", None, f"failed None: {LOST}"),
        ("attempt-1.started", 1.0, "cancelled None: cancelled"),
        ("attempt-1.expired", 1.0, f"failed None: {EXPIRED}"),
        ("attempt-1.started.exit.0", None, "succeeded 0: "),
        ("attempt-1.started.exit.0", 11.0, "succeeded 0: "),
        ("attempt-1.started.exit.0", 9.0, "cancelled 0: cancelled"),
        ("attempt-1.started.exit.3", None, "start 2: attempt 1 ended with exit code 3"),
        (
            "attempt-1.started.exit.3",
            11.0,
            "cancelled 3: cancelled after attempt 1 (exit code 3)",
        ),
        ("attempt-1.expired.exit.-15", None, f"failed -15: {EXPIRED}"),
        ("attempt-1.expired.exit.0", None, f"failed 0: {EXPIRED}"),
        ("attempt-2.started.exit.-9", None, "failed -9: signal 9 (SIGKILL) in attempt 2 of 2"),
        ("attempt-2.started.exit.3", 11.0, "failed 3: exit code 3 in attempt 2 of 2"),
    ],
)
def test_an_end_or_the_next_attempt(
    last: str | None, cancelled_at: float | None, expected: str
) -> None:
    assert meaning(last, cancelled_at, alive=False) == expected


@pytest.mark.parametrize("cancelled_at", [None, 1.0])
def test_what_is_alive_runs(cancelled_at: float | None) -> None:
    assert meaning("attempt-1.started", cancelled_at, alive=True) == "runs"


def test_an_only_attempt_is_not_counted() -> None:
    found = meaning("attempt-1.started.exit.3", None, alive=False, attempts=1)
    assert found == "failed 3: exit code 3"


def test_no_limit_is_told_as_none() -> None:
    status = Status(token="t", attempts=1, limit_s=None, grace_s=1)
    step = decide(status, attempt("attempt-1.expired"), None, alive=False)
    assert isinstance(step, End)
    assert step.message == "time limit of 0 s reached"


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exit code 0"), (3, "exit code 3"), (-9, "signal 9 (SIGKILL)"), (-200, "signal 200")],
)
def test_how_a_process_ended(code: int, words: str) -> None:
    assert describe_exit(code) == words
