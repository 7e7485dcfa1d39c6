"""Jobs in the index that NeMo Run 0.12 left, asked about at Run:ai."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import DGXCloudCluster
from tests.contract.secrets import holds
from tests.emulators.runai import CLIENT_SECRET, RunaiEmulator
from torchx.specs import AppState

from nemo_run._config.buildables import make
from nemo_run.config import Config
from nemo_run.core.execution.dgxcloud import DGXCloudExecutor
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.run.torchx_backend.schedulers import dgxcloud

pytestmark = pytest.mark.slow

SETTINGS = (
    "base_url",
    "kube_apiserver_url",
    "client_id",
    "project_name",
    "container_image",
    "pvc_nemo_run_dir",
    "nodes",
    "pvcs",
    "job_dir",
)


def leave_index(
    executor: DGXCloudExecutor, job_id: str, changes: dict[str, Any] | None = None
) -> str:
    """Write what 0.12 would have written of a job, and return its app id."""
    settings: dict[str | int, Any] = {name: getattr(executor, name) for name in SETTINGS}
    settings["client_secret"] = CLIENT_SECRET
    config = make(Config, DGXCloudExecutor, settings)
    app_id = f"title_17___job___{job_id}"
    entry = {
        "job_status": "Running",
        "job_id": job_id,
        "executor": ZlibJSONSerializer().serialize(config),
        **(changes or {}),
    }
    index = Path(dgxcloud.DGX_JOB_DIRS)
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(json.dumps({app_id: entry}))
    return app_id


@pytest.fixture
def executor(cluster: DGXCloudCluster, nemorun_home: Path) -> DGXCloudExecutor:
    executor = cluster.executor()
    assert isinstance(executor, DGXCloudExecutor)
    directory = nemorun_home / "experiments" / "title" / "title_17"
    executor.assign("title_17", str(directory), "job", "job")
    executor.create_job_dir()
    return executor


def test_a_job_can_be_watched_and_read(
    cluster: DGXCloudCluster, executor: DGXCloudExecutor, nemorun_home: Path
) -> None:
    job_id, _ = executor.launch("job", ["bash", "-c", "echo hi; exit 3"])
    app_id = leave_index(executor, job_id)
    before = Path(dgxcloud.DGX_JOB_DIRS).read_bytes()
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 3)
    assert cluster.lines(app_id) == ["hi\n"]
    assert Path(dgxcloud.DGX_JOB_DIRS).read_bytes() == before
    (record,) = (nemorun_home / "jobs" / "dgx_cloud").iterdir()
    assert not holds(CLIENT_SECRET, record.read_bytes())


def test_a_job_can_be_cancelled_and_read_afterwards(
    cluster: DGXCloudCluster, executor: DGXCloudExecutor, emulator: RunaiEmulator
) -> None:
    job_id, _ = executor.launch("job", ["bash", "-c", "echo up; sleep 60"])
    app_id = leave_index(executor, job_id)
    cluster.wait_for_line(app_id, "up\n")
    cluster.cancel(app_id)
    assert cluster.wait(app_id).state is AppState.CANCELLED
    (job,) = emulator.jobs()
    assert job.phase == "Stopped"
    assert cluster.lines(app_id) == ["up\n"]


@pytest.mark.parametrize("executor_text", ["", "nonsense", None])
def test_an_entry_that_cannot_be_read_is_an_unknown_job(
    cluster: DGXCloudCluster, executor: DGXCloudExecutor, executor_text: str | None
) -> None:
    app_id = leave_index(executor, "some-id", {"executor": executor_text})
    assert cluster.scheduler.describe(app_id) is None
    cluster.cancel(app_id)
