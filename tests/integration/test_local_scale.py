"""Many jobs at once on one machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script, states
from tests.integration.launching import lines, ours, wait_for

pytestmark = pytest.mark.slow

LIVE = 1000
CANCELLED = 100


@pytest.mark.timeout(600)
def test_a_thousand_jobs_live_at_once(tmp_path: Path) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    # Opening a pipe that nobody writes to blocks without costing anything.
    os.mkfifo(go)
    text = f"echo x >> {shlex.quote(str(started))}; exec cat {shlex.quote(str(go))}"
    with experiment("many") as exp:
        for number in range(LIVE):
            exp.add(script(text), name=f"job{number}")
        exp.run(detach=True)
    wait_for(lambda: len(lines(started)) == LIVE, f"{LIVE} jobs at once", timeout_s=300)
    assert set(states(exp).values()) == {"RUNNING"}
    # Only those that have opened the pipe are let go, so it is done until all have ended.
    while set(states(exp).values()) != {"SUCCEEDED"}:
        with contextlib.suppress(OSError):
            os.close(os.open(go, os.O_WRONLY | os.O_NONBLOCK))
        time.sleep(0.1)
    exp.wait()
    assert len(lines(started)) == LIVE
    wait_for(lambda: not ours(), "the end of all processes")


@pytest.mark.timeout(300)
def test_hundreds_of_jobs_are_cancelled(tmp_path: Path) -> None:
    with experiment("many") as exp:
        for number in range(CANCELLED):
            exp.add(script("sleep 600"), name=f"job{number}")
        exp.run(detach=True)
    for number in range(CANCELLED):
        exp.cancel(f"job{number}")
    assert set(states(exp).values()) == {"CANCELLED"}
    wait_for(lambda: not ours(), "the end of all processes")
