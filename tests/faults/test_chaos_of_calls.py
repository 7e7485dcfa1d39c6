"""Calls fail, clocks jump, processes are stopped or killed, others look: all outcomes are right."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.injection import Injection
from tests.faults.storms import Storm
from tests.integration import test_local_chaos as chaos
from tests.integration.launching import ours, wait_for, write

pytestmark = [pytest.mark.slow, pytest.mark.needs("cc")]

FAULTS = int(os.environ.get("NEMO_RUN_CHAOS_FAULTS", "40"))
KILLS = int(os.environ.get("NEMO_RUN_CHAOS_KILLS", "4"))
SEED = int(os.environ.get("NEMO_RUN_CHAOS_SEED", "1"))
JOBS = int(os.environ.get("NEMO_RUN_CHAOS_JOBS", "6"))
RETRIES = 50

LAUNCH = """
import random
title, notes, detach, *resume = sys.argv[1:]
if resume:
    run.Experiment.from_title(title).resume()
    sys.exit()
rng = random.Random(title)
local = run.LocalExecutor(retries=%(retries)d)
with run.Experiment(title, executor=local, clean_mode=True) as exp:
    ids = []
    for number in range(%(jobs)d):
        text = (
            f"echo start $NEMO_RUN_ATTEMPT $$ >> '{notes}/{number}'; "
            f"sleep {rng.uniform(0.05, 1.0):.2f}; "
            f"echo end $NEMO_RUN_ATTEMPT $$ >> '{notes}/{number}'"
        )
        needed = rng.sample(ids[-6:], rng.randint(0, min(2, len(ids))))
        ids.append(exp.add(script(text), name=f"job{number}", dependencies=needed))
    exp.run(detach=detach == "detach")
"""


@pytest.mark.timeout(120 + 4 * (FAULTS + 4 * KILLS))
def test_no_trouble_of_this_machine_changes_what_runs_or_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    injection = Injection(tmp_path / "shim", Path(os.environ["NEMORUN_HOME"]))
    monkeypatch.setattr(sys, "executable", injection.reach_supervisors())
    for name, value in injection.environment.items():
        monkeypatch.setenv(name, value)
    rng = random.Random(SEED)
    path = write(tmp_path, LAUNCH % {"jobs": JOBS, "retries": RETRIES})
    done: Counter[str] = Counter()
    number = 0
    while done["killed"] < KILLS or injection.met().total() < FAULTS:
        title = f"chaos{SEED}x{number}"
        notes = tmp_path / f"notes of {title}"
        notes.mkdir()
        detach = "detach" if number % 2 else "attach"
        storm = Storm(path, [title, str(notes), detach], rng, injection)
        done += storm.rage_on(KILLS - done["killed"])
        storm.clear_up()
        storm.calm_down()
        chaos.check(title, notes, storm.unwatched, jobs=JOBS)
        wait_for(lambda: not ours(), f"the end of all processes, {ours()}", 20)
        number += 1
    print("experiments:", number, "done:", dict(done), "met:", dict(injection.met()))
