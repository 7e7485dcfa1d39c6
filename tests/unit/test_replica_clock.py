"""A clock that is set while a replica runs changes neither its outcome nor how long it took."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.unit.test_replica import Replica, eventually, make, replica

from nemo_run._backends.local import replica as local_replica
from nemo_run._backends.local import supervisor as local_supervisor

__all__ = ["make", "replica"]

ENDS_WELL = "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done"


def request_cancel(replica: Replica, ahead_s: float) -> None:
    """Ask for the end by a clock that is ``ahead_s`` before the one that tells the end."""
    replica.files.request_cancel(None)
    then = time.time() + ahead_s
    os.utime(replica.directory / ".replica" / "cancel", (then, then))


@pytest.mark.parametrize("ahead_s", [3600, 0, -3600])
def test_what_was_cancelled_is_no_success_if_the_clock_is_set(
    replica: Replica, ahead_s: float
) -> None:
    replica.sh(ENDS_WELL).running()
    eventually(lambda: "up" in replica.log())
    request_cancel(replica, ahead_s)
    local_replica.stop(replica.directory)
    assert (replica.status.state, replica.status.exit_code) == ("cancelled", 0)


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_what_had_ended_keeps_its_outcome_if_the_clock_is_set(
    replica: Replica, tmp_path: Path, ahead_s: float
) -> None:
    gate = tmp_path / "gate"
    replica.sh(f"while [ ! -e '{gate}' ]; do sleep 0.01; done").running()
    replica.kill_supervisor()
    gate.touch()
    eventually(lambda: replica.status.state == "succeeded")
    request_cancel(replica, ahead_s)
    assert replica.status.state == "succeeded"
    assert local_replica.adopt(replica.directory)
    assert replica.end().state == "succeeded"


def test_no_attempt_ends_before_it_began() -> None:
    started = b"5 6\n7 8\nplace\n1000.0\n50.0\n\nend free 62.5\n"
    attempt = local_supervisor.Attempt("attempt-1.started.exit.0", started)
    attempt.ended(400.0)
    assert attempt.ended_at == 1012.5


def test_ends_that_an_older_version_recorded_are_ordered_by_their_times() -> None:
    started = b"5 6\n7 8\nplace\n1000.0\n50.0\n\n"
    attempt = local_supervisor.Attempt("attempt-1.started.exit.0", started)
    attempt.ended(1010.0)
    assert attempt.ended_at == 1010.0
    assert attempt.ended_before(1011.0)
    assert not attempt.ended_before(1009.0)
