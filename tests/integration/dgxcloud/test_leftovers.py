"""Workloads, which Run:ai keeps after their end, go with their experiment if that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli import commands
from tests.contract.backends import DGXCloudCluster
from tests.emulators.runai import RunaiEmulator

import nemo_run as run

pytestmark = pytest.mark.slow


def test_workloads_are_collected_after_a_dry_run(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, tmp_path: Path
) -> None:
    executor = cluster.executor()
    with run.Experiment("left", executor=executor, clean_mode=True, check=True) as experiment:
        experiment.add(run.Script(inline="echo hello"), name="one")
        experiment.run()
    words = ("experiment", "gc", "--older-than", "0s", "--json")
    (what,) = commands.nemorun(*words, cwd=tmp_path).json()["leftovers"]
    workload = what.removeprefix("workload ").removesuffix(" of project team-a")
    client = run.DGXCloudExecutor._client(executor)  # type: ignore[arg-type]
    assert client.get("trainings", workload).phase == "Completed", "it was only looked at"
    done = commands.nemorun(*words, "--yes", cwd=tmp_path)
    assert done.json()["experiments"] == [experiment._id], done.err
    with pytest.raises(run.exceptions.JobNotFoundError):
        client.get("trainings", workload)
