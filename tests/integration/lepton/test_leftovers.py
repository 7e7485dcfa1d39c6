"""Jobs, which a workspace keeps after their end, go with their experiment if that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli import commands
from tests.contract.backends import LeptonCluster
from tests.emulators.lepton import LeptonEmulator

import nemo_run as run

pytestmark = pytest.mark.slow


def test_jobs_are_collected_after_a_dry_run(
    cluster: LeptonCluster, emulator: LeptonEmulator, tmp_path: Path
) -> None:
    executor = cluster.executor()
    with run.Experiment("left", executor=executor, clean_mode=True, check=True) as experiment:
        experiment.add(run.Script(inline="echo hello"), name="one")
        experiment.run()
    words = ("experiment", "gc", "--older-than", "0s", "--json")
    (what,) = commands.nemorun(*words, cwd=tmp_path).json()["leftovers"]
    job = what.removeprefix("job ").removesuffix(" of the Lepton workspace")
    assert not emulator.jobs[job].archived, "it was only looked at"
    done = commands.nemorun(*words, "--yes", cwd=tmp_path)
    assert done.json()["experiments"] == [experiment._id], done.err
    assert emulator.jobs[job].archived, "which is all that a workspace does"
