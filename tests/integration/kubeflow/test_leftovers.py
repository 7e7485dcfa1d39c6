"""TrainJobs, which the cluster keeps, go with their experiment if that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli import commands
from tests.contract.backends import KubeflowCluster
from tests.emulators.kubernetes import KubernetesEmulator
from tests.integration.kubeflow.waiting import until

import nemo_run as run

pytestmark = pytest.mark.slow

GC = ("experiment", "gc", "--older-than", "0s", "--json")


def test_trainjobs_are_collected_after_a_dry_run(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    executor = cluster.executor()
    with run.Experiment("left", executor=executor, clean_mode=True, check=True) as experiment:
        experiment.add(run.Script(inline="echo hello"), name="one")
        experiment.run()
    (job,) = emulator.created
    found = commands.nemorun(*GC, cwd=tmp_path).json()
    assert found["leftovers"] == [f"TrainJob {job.name} of namespace default"]
    assert found["unused"] == {}
    assert len(emulator.trainjobs) == 1, "it was only looked at"
    done = commands.nemorun(*GC, "--yes", cwd=tmp_path)
    assert done.json()["experiments"] == [experiment._id], done.err
    assert (emulator.trainjobs, emulator.secrets) == ({}, {})


def test_a_mover_that_a_killed_launcher_left_is_named(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    cluster.wait(cluster.schedule("true"))
    body = {
        "metadata": {"name": "left-put-1", "labels": {"nemo-run/purpose": "mover"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "mover", "image": "alpine:3.19", "command": ["true"]}],
        },
    }
    pod = emulator.make_pod("default", body)
    until(lambda: pod.phase == "Succeeded")
    found = commands.nemorun(*GC, cwd=tmp_path).json()
    assert found["unused"] == {
        "pod left-put-1 of namespace default": "kubectl delete pod left-put-1 -n default"
    }
