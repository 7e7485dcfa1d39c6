"""Real torch on one node and on two, and the example."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience
from tests.cli import commands
from tests.contract.backends import ROOT, KubeflowCluster
from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.processes import PATH
from tests.emulators.service import free_port
from tests.integration.torch_task import SUM, TORCH, check_torch
from torchx.specs import AppState

import nemo_run as run
from nemo_run.run.torchx_backend.packaging import package

pytestmark = [pytest.mark.slow, pytest.mark.needs("torch")]

EXAMPLE = ROOT / "examples" / "kubeflow.py"


@pytest.fixture(autouse=True)
def with_torch(emulator: KubernetesEmulator) -> None:
    check_torch()
    emulator.path = f"{TORCH}:{PATH}"


@pytest.mark.parametrize(("nodes", "processes"), [(1, 2), (2, 2)])
def test_all_processes_of_all_nodes_meet(
    cluster: KubeflowCluster, nodes: int, processes: int
) -> None:
    executor = cluster.assigned(
        "sum",
        num_nodes=nodes,
        nprocs_per_node=processes,
        launcher=run.Torchrun(rdzv_port=free_port()),
    )
    task = run.Script(inline=SUM, entrypoint="python")
    app = package("sum", task, executor, serialize_to_file=True)
    app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
    end = cluster.wait(app_id, timeout_s=80)
    logs = ["".join(cluster.scheduler.log_iter(app_id, "sum", node)) for node in range(nodes)]
    assert end.state is AppState.SUCCEEDED, "\n".join(logs)
    world = nodes * processes
    said = [
        line.partition("rank ")[2]
        for log in logs
        for line in log.splitlines()
        if "rank " in line and " sum " in line
    ]
    total = world * (world + 1) // 2
    assert sorted(said) == [f"{rank} of {world} sum {total}" for rank in range(world)]
    assert all(" sum " in log for log in logs)


def words(*more: str) -> list[str | Path]:
    options = ["--image", "any:1", "--claim", "work", "--port", str(free_port()), *more]
    return [sys.executable, EXAMPLE, *options]


def test_the_example_trains_on_all_ranks(emulator: KubernetesEmulator, tmp_path: Path) -> None:
    done = commands.run(words(), cwd=tmp_path, env={"TMPDIR": str(tmp_path)}, timeout_s=250)
    assert done.code == 0, done.out + done.err
    for rank in range(2):
        assert f"rank {rank} of 2\n" in done.out + done.err
    (job,) = emulator.created
    assert job.pods[0].spec["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_the_example_deletes_its_job_when_it_is_told_to_end(
    emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [str(word) for word in words("--seconds", "600")],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "rank 0 of 2" in line:
                break
        else:
            pytest.fail("it did not train")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=patience.seconds(100))
    finally:
        process.kill()
    assert "train was deleted: True" in out
    assert process.returncode == 128 + signal.SIGTERM
    (job,) = emulator.created
    assert job.present == []
    assert emulator.trainjobs == {}
