"""A program that runs in a pod of the cluster launches jobs from there."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests import patience
from tests.contract.backends import DGXCloudCluster
from tests.emulators.runai import CLIENT_ID, CLIENT_SECRET, RunaiEmulator
from tests.emulators.runai.emulator import CLUSTER_ID

pytestmark = pytest.mark.slow

LAUNCH = """\
import json, os, sys
import nemo_run as run

executor = run.DGXCloudExecutor(
    **json.loads(os.environ["SETTINGS"]),
    client_secret="file:/workspace/secret",
    launched_from_cluster=True,
    packager=run.Packager(),
)
with run.Experiment("inner", executor=executor, clean_mode=True, log_level="ERROR") as exp:
    exp.add(run.Script(inline="echo hello from $GROUP_RANK; exit 7"), name="bad")
    exp.add(run.Script(inline="echo hello again; sleep 0.3; echo bye"), name="good")
    exp.run(sequential=False, tail_logs=False)
found = {name: entry["status"].name for name, entry in exp.status(return_dict=True).items()}
print("OUTCOME", json.dumps(found))
exp.logs("good", check=True)
"""


@pytest.mark.parametrize("home", ["/workspace/nemo_run", "/workspace/kept/elsewhere"])
def test_jobs_are_launched_watched_and_read(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, home: str
) -> None:
    volume = emulator.volume("work")
    (volume / "launch.py").write_text(LAUNCH)
    (volume / "secret").write_text(CLIENT_SECRET)
    (volume / "secret").chmod(0o600)
    pvcs = [{"name": "work", "path": "/workspace", "existingPvc": True, "claimName": "work"}]
    settings = {
        "base_url": emulator.base_url,
        "kube_apiserver_url": emulator.kube_url,
        "client_id": CLIENT_ID,
        "project_name": "team-a",
        "container_image": "some/image:1",
        "pvcs": pvcs,
        "pvc_nemo_run_dir": "/workspace/nemo_run",
    }
    variables = {"NEMORUN_HOME": home, "SETTINGS": json.dumps(settings)}
    body: dict[str, Any] = {
        "name": "launcher",
        "projectId": "28",
        "clusterId": CLUSTER_ID,
        "spec": {
            "command": "python3 /workspace/launch.py",
            "image": "some/image:1",
            "storage": {"pvc": pvcs},
            "environmentVariables": [{"name": k, "value": v} for k, v in variables.items()],
            "backoffLimit": 0,
        },
    }
    launcher = emulator.create("trainings", body)
    deadline = patience.deadline(120)
    while launcher.phase not in ("Completed", "Failed"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    container = launcher.pods[0].container
    assert container is not None
    said = container.log.text
    assert 'OUTCOME {"bad": "FAILED", "good": "SUCCEEDED"}' in said, said
    assert said.index("hello again\n") < said.index("bye\n")
    assert [w.kind for w in emulator.workloads.values()] == ["trainings"] * 3
