"""Many jobs at once on one machine."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script, states
from tests.integration.launching import lines, ours, wait_for

pytestmark = pytest.mark.slow

LIVE = 1000 if os.environ.get("NEMO_RUN_FULL") == "1" else 300


@pytest.mark.timeout(600)
def test_hundreds_of_jobs_live_at_once(tmp_path: Path) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    text = (
        f"echo x >> {shlex.quote(str(started))}; "
        f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 2; done"
    )
    with experiment("many") as exp:
        for number in range(LIVE):
            exp.add(script(text), name=f"job{number}")
        exp.run(detach=True)
    wait_for(lambda: len(lines(started)) == LIVE, f"{LIVE} jobs at once", timeout_s=200)
    assert set(states(exp).values()) == {"RUNNING"}
    go.touch()
    exp.wait()
    assert set(states(exp).values()) == {"SUCCEEDED"}
    assert len(lines(started)) == LIVE
    wait_for(lambda: not ours(), "the end of all processes")


@pytest.mark.timeout(300)
def test_hundreds_of_jobs_are_cancelled(tmp_path: Path) -> None:
    with experiment("many") as exp:
        for number in range(LIVE // 3):
            exp.add(script("sleep 600"), name=f"job{number}")
        exp.run(detach=True)
    for number in range(LIVE // 3):
        exp.cancel(f"job{number}")
    assert set(states(exp).values()) == {"CANCELLED"}
    wait_for(lambda: not ours(), "the end of all processes")
