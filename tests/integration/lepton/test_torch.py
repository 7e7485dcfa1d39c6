"""Real torch on the nodes of a Lepton job."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.contract.backends import LeptonCluster
from tests.emulators.processes import PATH
from tests.integration.torch_task import SUM, TORCH, check_torch
from torchx.specs import AppState

import nemo_run as run
from nemo_run.run.torchx_backend.packaging import package

pytestmark = [pytest.mark.slow, pytest.mark.needs("torch")]


@pytest.mark.parametrize(("nodes", "processes"), [(1, 2), (2, 1), (2, 2)])
def test_processes_of_all_nodes_find_each_other(
    cluster: LeptonCluster, nodes: int, processes: int
) -> None:
    check_torch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    executor = cluster.assigned(
        "sum",
        nodes=nodes,
        nprocs_per_node=processes,
        launcher="torchrun",
        # On real nodes every job has a network of its own, and the port needs no choosing.
        env_vars={"PATH": f"{TORCH}:{PATH}", "MASTER_PORT": str(port)},
    )
    code = Path(executor.job_dir) / "code"
    code.mkdir()
    (code / "sum.py").write_text(SUM)
    task = run.Script("sum.py", entrypoint="python")
    app = package("sum", task, executor, serialize_to_file=True)
    app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
    end = cluster.wait(app_id, timeout_s=240)
    lines = [line for k in range(nodes) for line in cluster.lines(app_id, k=k)]
    assert end.state is AppState.SUCCEEDED, "".join(lines)
    world = nodes * processes
    total = sum(range(1, world + 1))
    wanted = [f"rank {rank} of {world} sum {total}\n" for rank in range(world)]
    assert sorted(line for line in lines if line.startswith("rank")) == wanted
