"""Real torch in a container."""

from __future__ import annotations

import pytest
from tests.contract.backends import ROOT, DockerCluster
from tests.integration.torch_task import SUM
from torchx.specs import AppState

import nemo_run as run
from nemo_run.run.torchx_backend.packaging import package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TORCH = ROOT / ".venv-torch"


def test_the_processes_that_torchrun_starts_meet(cluster: DockerCluster) -> None:
    assert (TORCH / "bin" / "torchrun").exists(), "no torch: run `make .venv-torch/.installed`"
    torch, libraries = TORCH.resolve(), "/usr/lib/x86_64-linux-gnu"
    executor = cluster.assigned(
        "sum",
        launcher="torchrun",
        ntasks_per_node=2,
        env_vars={"PATH": f"{torch}/bin:/usr/local/bin:/bin"},
        volumes=[f"{torch}:{torch}:ro", f"{libraries}:{libraries}:ro"],
    )
    task = run.Script(inline=SUM, entrypoint="python")
    app = package("sum", task, executor, serialize_to_file=True)
    app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
    end = cluster.wait(app_id, timeout_s=80)
    lines = cluster.lines(app_id)
    assert end.state is AppState.SUCCEEDED, "".join(lines)
    said = [line[line.index("rank ") :] for line in lines if "rank " in line and " sum " in line]
    assert sorted(said) == ["rank 0 of 2 sum 3\n", "rank 1 of 2 sum 3\n"]
