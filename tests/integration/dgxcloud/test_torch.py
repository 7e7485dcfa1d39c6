"""Real torch on one node and on two."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli import commands
from tests.contract.backends import ROOT, DGXCloudCluster
from tests.emulators.processes import PATH
from tests.emulators.runai import CLIENT_ID, RunaiEmulator
from tests.integration.torch_task import SUM, TORCH, check_torch
from torchx.specs import AppState

import nemo_run as run
from nemo_run.run.torchx_backend.packaging import package

pytestmark = [pytest.mark.slow, pytest.mark.needs("torch")]


@pytest.fixture(autouse=True)
def with_torch(emulator: RunaiEmulator) -> None:
    check_torch()
    emulator.path = f"{TORCH}:{PATH}"


@pytest.mark.parametrize(("nodes", "processes"), [(1, 2), (2, 1), (2, 2)])
def test_all_processes_of_all_nodes_meet(
    cluster: DGXCloudCluster, tmp_path: Path, nodes: int, processes: int
) -> None:
    executor = cluster.assigned(
        "sum", nodes=nodes, nprocs_per_node=processes, launcher=run.Torchrun()
    )
    task = run.Script(inline=SUM, entrypoint="python")
    app = package("sum", task, executor, serialize_to_file=True)
    app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
    end = cluster.wait(app_id, timeout_s=200)
    described = cluster.scheduler.describe(app_id)
    logs = [
        "".join(cluster.scheduler.log_iter(app_id, "sum", node))
        for node in range(described.roles[0].num_replicas)
    ]
    assert end.state is AppState.SUCCEEDED, "\n".join(logs)
    world = nodes * processes
    total = world * (world + 1) // 2
    said = [line for log in logs for line in log.splitlines() if line.startswith("rank ")]
    assert len(logs) == nodes
    assert sorted(said) == [f"rank {rank} of {world} sum {total}" for rank in range(world)]
    assert all("rank " in log for log in logs)


def test_a_rank_that_fails_fails_the_job_with_its_code(cluster: DGXCloudCluster) -> None:
    executor = cluster.assigned("sum", nodes=2, launcher=run.Torchrun())
    task = run.Script(inline=f"{SUM}\nsys.exit(3)", entrypoint="python")
    app = package("sum", task, executor, serialize_to_file=True)
    app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
    end = cluster.wait(app_id, timeout_s=200)
    assert (end.state, end.exit_code) == (AppState.FAILED, 1)  # torchrun's own


def test_the_example_trains_on_all_ranks(emulator: RunaiEmulator, tmp_path: Path) -> None:
    script = ROOT / "examples" / "dgxcloud.py"
    urls = (emulator.base_url, emulator.kube_url)
    words: list[str | Path] = [sys.executable, script, *urls, "team-a"]
    env = {"RUNAI_CLIENT": CLIENT_ID, "TMPDIR": str(tmp_path)}
    done = commands.run(words, cwd=tmp_path, env=env, timeout_s=250)
    assert done.code == 0, done.out + done.err
    for rank in range(2):
        assert f"rank {rank} of 2\n" in done.out + done.err
