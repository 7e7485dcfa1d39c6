"""Ray jobs on an emulated Kubernetes with KubeRay, whose image has a real Ray."""

from __future__ import annotations

import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import patience
from tests.emulators.kubernetes import KubernetesEmulator, Pace
from tests.integration.kuberay.waiting import wait_until

from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.run.ray.job import RayJob

RAY = Path(__file__).parents[3] / ".venv-ray" / "bin"

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("usual_ray_ports"),
]

USES_GPUS = """
import ray
ray.init()
@ray.remote(num_gpus=2)
def where():
    return ray.get_runtime_context().get_node_id()
node = ray.get(where.remote())  # as soon as the worker has joined
print("gpus", int(ray.cluster_resources()["GPU"]), "node", len(node) > 8)
"""


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeRayExecutor]:
    assert (RAY / "ray").exists(), "no Ray: run `make .venv-ray/.installed`"
    # Sockets go below it, so its path must be short.
    with tempfile.TemporaryDirectory(prefix="nr", ignore_cleanup_errors=True) as temp:
        emulator = KubernetesEmulator(
            tmp_path / "k", path=f"{RAY}:/usr/bin:/bin", pace=Pace(grace=2.0)
        )
        monkeypatch.setenv("KUBECONFIG", str(emulator.kubeconfig))
        yield KubeRayExecutor(
            ray_version="2.60.0",
            head_cpu="1",
            env_vars={"RAY_TMPDIR": temp, "TMPDIR": temp, "RAY_enable_metrics_collection": "0"},
            worker_groups=[KubeRayWorkerGroup("gpus", 1, gpus_per_worker=2, cpu_limits="1")],
            volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}],
            volume_mounts=[{"name": "work", "mountPath": "/workspace"}],
        )
        emulator.close()


def test_a_job_uses_the_gpus_of_its_workers_and_rays_own_client_reads_its_log(
    executor: KubeRayExecutor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "uses.py").write_text(USES_GPUS)
    job = RayJob(name="gpus", executor=executor)
    command = """python uses.py && echo "it's  $((40 + 2))"
    until [ -e /workspace/go ]; do sleep 0.2; done; exit 3"""
    job_id = job.start(command=command, workdir=str(tmp_path / "code"))
    wait_until(lambda: _runs(job), "start of the job", 60)
    client = job.backend._ray_client()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{client.get_address()}/api/version", timeout=patience.seconds(10))
    assert refused.value.code == 401
    wait_until(lambda: "gpus 2 node True" in client.get_job_logs(job_id), "line of the job", 60)
    (tmp_path / "k" / "volumes" / "work" / "go").touch()
    job.logs(follow=True, timeout=600)
    said = capfd.readouterr().out
    assert "gpus 2 node True" in said
    assert "it's  42" in said
    assert job.status()["jobStatus"] == "FAILED"
    assert job.stop(wait=True)


def _runs(job: RayJob) -> bool:
    status = job.status(display=False)
    assert status["jobDeploymentStatus"] not in ("Failed", "Complete"), status
    return bool(status["jobStatus"] == "RUNNING")
