"""How often backends are asked."""

from __future__ import annotations

from pathlib import Path

from tests.contract.experiments import experiment, script, states
from tests.contract.paces import SeldomAsked
from tests.integration.launching import wait_for

import nemo_run as run


def test_each_backend_is_asked_at_its_own_pace(tmp_path: Path) -> None:
    go = tmp_path / "go"
    text = f"while [ ! -e '{go}' ]; do sleep 0.02; done"
    with experiment() as exp:
        exp.add(script(text), name="often")
        exp.add(script(text), executor=SeldomAsked(), name="seldom")
        exp.run(detach=True)
    watch = run.Experiment.from_id(exp._id)._watch
    assert not any(state.ended for state in watch.states(paced=True))
    go.touch()
    others = run.Experiment.from_id(exp._id)
    wait_for(lambda: set(states(others).values()) == {"SUCCEEDED"}, "the end of both")

    often, seldom = watch.states(paced=True)

    assert often.ended
    assert not seldom.ended
    assert watch.conductor.pause_s() == 600
    assert all(state.ended for state in watch.states())
