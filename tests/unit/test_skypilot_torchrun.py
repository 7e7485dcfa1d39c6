"""How torchrun is told where to meet on several nodes of SkyPilot's."""

from __future__ import annotations

from pathlib import Path

import nemo_run as run
from nemo_run._backends.skypilot.task import run_script
from nemo_run.run.torchx_backend.packaging import package


def test_torchrun_meets_at_the_first_node(tmp_path: Path) -> None:
    executor = run.SkypilotExecutor(
        num_nodes=2, torchrun_nproc_per_node=4, launcher=run.Torchrun(), packager=run.Packager()
    )
    executor.assign("title_1", str(tmp_path), "job", "job")
    app = package("job", run.Script("train.py", entrypoint="python"), executor)
    macros = executor.macro_values()
    assert macros is not None
    role = macros.apply(app.roles[0])
    script = run_script("job", [role.entrypoint, *role.args], retries=0)
    assert '--rdzv-endpoint "${head_node_ip}":' in script
    assert '--node-rank "${SKYPILOT_NODE_RANK}"' in script
    assert "--nnodes 2 --nproc-per-node 4" in script
