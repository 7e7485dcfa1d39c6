"""Jobs in the index that NeMo Run 0.12 left, asked about in the cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.contract.backends import KubeflowCluster
from tests.emulators.kubernetes import KubernetesEmulator
from torchx.specs import AppState

import nemo_run as run
from nemo_run._backends.kubeflow.site import Site
from nemo_run._config.buildables import make
from nemo_run.config import Config
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import BackendError
from nemo_run.run.torchx_backend.schedulers import kubeflow

pytestmark = pytest.mark.slow


def leave_index(job_name: str) -> str:
    """Write what 0.12 would have written of a job, and return its app id."""
    config = make(Config, run.KubeflowExecutor, {"image": "any:1"})
    app_id = f"title_17___job___{job_name}"
    entry = {
        "job_status": "Running",
        "job_name": job_name,
        "executor": ZlibJSONSerializer().serialize(config),
    }
    index = Path(kubeflow.KUBEFLOW_JOB_DIRS)
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(json.dumps({app_id: entry}))
    return app_id


def submitted_by_0_12(cluster: KubeflowCluster, script: str) -> str:
    """Create a TrainJob as 0.12 would, without a script of ours, and return its name."""
    executor = cluster.executor(workdir_pvc=None)
    assert isinstance(executor, run.KubeflowExecutor)
    body = executor.get_job_body("old-job-1a2b3c", ["sh", "-c", script])
    Site.current("default").cluster().create_trainjob(body)
    return "old-job-1a2b3c"


def test_a_job_of_0_12_is_asked_about_and_its_log_read(cluster: KubeflowCluster) -> None:
    app_id = leave_index(submitted_by_0_12(cluster, "echo from before"))
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["from before\n"]


def test_a_job_of_0_12_that_fails_has_failed_once_kubeflow_gives_up(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    app_id = leave_index(submitted_by_0_12(cluster, "exit 3"))
    assert cluster.wait(app_id).state is AppState.FAILED
    assert emulator.created[0].ended == "Failed"


def test_a_job_of_0_12_is_cancelled(cluster: KubeflowCluster, emulator: KubernetesEmulator) -> None:
    app_id = leave_index(submitted_by_0_12(cluster, "sleep 60"))
    cluster.cancel(app_id)
    assert cluster.wait(app_id).state is AppState.CANCELLED
    assert emulator.trainjobs == {}


def test_a_secret_that_is_called_as_a_job_of_0_12_is_somebody_elses(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    name = submitted_by_0_12(cluster, "true")
    app_id = leave_index(name)
    cluster.wait(app_id)
    theirs = {"metadata": {"name": name, "namespace": "default"}}
    emulator.secrets["default", name] = theirs
    for leftover in cluster.executor().leftovers(f"kubeflow://nemo_run/{app_id}"):
        leftover.remove()
    assert (emulator.trainjobs, emulator.secrets) == ({}, {("default", name): theirs})


def test_a_job_of_0_12_that_this_cluster_does_not_have_may_be_in_another(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    app_id = leave_index(submitted_by_0_12(cluster, "true"))
    other = KubernetesEmulator(tmp_path / "other")
    emulator.write_kubeconfig(server=other.url)
    status = cluster.status(app_id)
    assert status is not None
    assert status.state is AppState.UNKNOWN
    with pytest.raises(BackendError, match="still UNKNOWN"):
        cluster.cancel(app_id)
    emulator.write_kubeconfig()
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    other.close()


def test_an_entry_that_says_too_little_is_left_out(cluster: KubeflowCluster) -> None:
    app_id = leave_index("x")
    index = Path(kubeflow.KUBEFLOW_JOB_DIRS)
    index.write_text(json.dumps({app_id: {"job_name": "x"}}))
    assert cluster.status(app_id) is None
