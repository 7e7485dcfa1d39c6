"""Ray jobs on an emulated Kubernetes with KubeRay, whose image has a stand-in for Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests import patience
from tests.cli import commands
from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.kubernetes.ray_job import RayJob as EmulatedJob
from tests.emulators.service import free_port
from tests.integration.kuberay.conftest import MakeExecutor
from tests.integration.kuberay.waiting import wait_until

from nemo_run._jobs.store import JobStore
from nemo_run.core.execution.kuberay import KubeRayWorkerGroup, sync_workdir_via_pod
from nemo_run.exceptions import ConfigError, SubmitError
from nemo_run.run.ray.job import RayJob
from nemo_run.run.ray.kuberay import KubeRayJob

JOB = "ann-lee-train-rayjob"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A directory of code, some of which git ignores."""
    directory = tmp_path / "project"
    (directory / "out").mkdir(parents=True)
    (directory / "train.py").write_text("print('training')\n")
    (directory / "out" / "large.bin").write_text("x")
    (directory / ".gitignore").write_text("out/\n")
    return directory


def followed(job: RayJob, capfd: pytest.CaptureFixture[str]) -> str:
    job.logs(follow=True, timeout=int(patience.seconds(60)))
    return capfd.readouterr().out


def test_a_job_runs_in_the_code_that_was_sent_and_its_log_is_followed(
    emulator: KubernetesEmulator,
    executor: MakeExecutor,
    code: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    group = KubeRayWorkerGroup("gpus", 2, gpus_per_worker=3)
    job = RayJob(name="train", executor=executor(worker_groups=[group]))
    command = """pwd; ls; python train.py && echo "it's  $MODE"; exit 3"""
    job.executor.env_vars = {"MODE": "on", "HF_TOKEN": "hf_abcdefabcdef"}
    job_id = job.start(command=command, workdir=str(code))
    said = followed(job, capfd)
    assert "/workspace/ann-lee/code/project\ntrain.py\ntraining\nit's  on\n" in said
    status = job.status(display=False)
    assert status["jobStatus"] == "FAILED"
    assert status["jobDeploymentStatus"] == "Failed"
    assert "AppFailed" in status["message"]
    assert job.backend.job_id == job.backend.submission_id == job_id
    made = next(iter(emulator.ray.jobs.values()))
    assert isinstance(made, EmulatedJob)
    assert "hf_abcdefabcdef" not in str(made.body)
    assert len(made.submitters) == 1
    wait_until(lambda: made.cluster is None, "end of the job's cluster")
    heads = [o for o in emulator.ray.created if o.kind == "RayCluster"]
    assert len(heads) == 1
    # Ray's number of GPUs is what was asked for.
    workers = [pod for pod in heads[0].pods if "worker" in pod.name]
    assert len(workers) == 2
    assert all("--num-gpus=3" in str(pod.spec) for pod in workers)
    assert job.stop(wait=True) is True
    assert not emulator.pods
    assert not [name for _, name in emulator.secrets if name.startswith(JOB)]
    assert job.stop() is None


def test_code_that_is_gone_here_is_removed_there(emulator: KubernetesEmulator, code: Path) -> None:
    volumes = [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}]
    mounts = [{"name": "work", "mountPath": "/workspace"}]
    (code / "sub").mkdir()
    subprocess.run(["git", "init", "-q", str(code / "sub")], check=True)
    (code / "sub" / "inner.py").touch()
    for names in ({".gitignore", "train.py", "sub"}, {".gitignore", "sub"}):
        sync_workdir_via_pod(
            pod_name="sync",
            namespace="default",
            user_workspace_path="/workspace/there",
            workdir=str(code),
            volumes=volumes,
            volume_mounts=mounts,
        )
        there = emulator.volume("work") / "there"
        assert {path.name for path in there.iterdir()} == names
        assert (there / "sub" / "inner.py").exists()
        (code / "train.py").unlink(missing_ok=True)
    assert not emulator.pods


def test_a_job_without_code_runs_in_workspace(
    executor: MakeExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    job = KubeRayJob(name="train", executor=executor(volumes=[], volume_mounts=[]))
    job.start(command="pwd")
    job.logs(follow=True)
    assert "\n/workspace\n" in capfd.readouterr().out
    assert job.status()["jobStatus"] == "SUCCEEDED"


def test_code_without_a_volume_is_refused(executor: MakeExecutor, code: Path) -> None:
    job = RayJob(name="train", executor=executor(volumes=[], volume_mounts=[]))
    with pytest.raises(ValueError, match="volumes"):
        job.start(command="true", workdir=str(code))
    with pytest.raises(ConfigError, match="no directory"):
        RayJob(name="train", executor=executor()).start(command="true", workdir="/not/there")
    with pytest.raises(ConfigError, match="empty"):
        RayJob(name="train", executor=executor()).start(command=" ", workdir=str(code))


def test_a_dry_run_shows_the_job_and_asks_for_nothing(
    emulator: KubernetesEmulator,
    executor: MakeExecutor,
    code: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    body = RayJob(name="train", executor=executor()).start("ls", str(code), dryrun=True)
    assert yaml.safe_load(capfd.readouterr().out) == body
    assert body["metadata"]["name"] == JOB
    assert not emulator.server.seen
    assert not list(JobStore().list("kuberay"))


def test_runtime_env_is_a_file_or_its_text(
    executor: MakeExecutor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "env_vars:\n  COLOUR: green\n"
    (tmp_path / "env.yaml").write_text(text)
    for given in (text, str(tmp_path / "env.yaml")):
        job = KubeRayJob(name="train", executor=executor())
        job.start(command="echo $COLOUR", runtime_env_yaml=given)
        job.logs(follow=True)
        assert "green" in capfd.readouterr().out


def test_lines_run_before_ray_or_keep_it_from_starting(
    emulator: KubernetesEmulator, executor: MakeExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    job = RayJob(name="train", executor=executor(), pre_ray_start_commands=["export COLOUR=red"])
    job.backend.start(command="echo $COLOUR", pre_ray_start_commands=job.pre_ray_start_commands)
    assert "red" in followed(job, capfd)
    other = KubeRayJob(name="other", executor=executor())
    other.start(command="echo $COLOUR", pre_ray_start_commands=["false", "touch /workspace/was"])
    made = emulator.ray.jobs["default", "ann-lee-other-rayjob"]
    assert isinstance(made, EmulatedJob)
    wait_until(lambda: bool(made.cluster and made.cluster.head), "head")
    assert made.cluster is not None
    head = made.cluster.head
    assert head is not None
    wait_until(lambda: head.restarts > 0, "second start of the head")
    assert other.status()["jobDeploymentStatus"] == "Initializing"
    assert not (emulator.volume("work") / "was").exists()
    assert other.stop(wait=True)


def test_what_a_public_client_does_with_a_job_works(
    executor: MakeExecutor, code: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = RayJob(name="train", executor=executor(), cluster_name="ignored-here")
    job.start(command="echo one; while [ ! -e stop ]; do sleep 0.1; done", workdir=str(code))
    wait_until(lambda: job.status(display=False)["jobStatus"] == "RUNNING", "start of the job")
    job_id = job.backend.job_id
    other = RayJob(name="train", executor=executor())
    other.backend.job_id = job_id
    assert other.backend.status(display=False)["jobStatus"] == "RUNNING"
    client = other.backend._ray_client()
    wait_until(lambda: "one" in client.get_job_logs(job_id), "first line")
    assert [item.submission_id for item in client.list_jobs()] == [job_id]
    client.stop_job(job_id)
    assert "one" in followed(other, capfd)
    assert other.status()["jobStatus"] == "STOPPED"
    wait_until(lambda: not _has_cluster(other.backend), "end of the cluster")
    with pytest.raises(RuntimeError, match=r"logs\(\) shows"):
        other.backend._ray_client()
    other.stop()


def test_nemorun_ray_finds_follows_reaches_and_ends_a_job(
    emulator: KubernetesEmulator, executor: MakeExecutor, code: Path, tmp_path: Path
) -> None:
    RayJob(name="train", executor=executor()).start(
        command="echo begun; sleep 300", workdir=str(code)
    )
    wait_until(
        lambda: "RUNNING" in commands.nemorun("ray", "list", cwd=tmp_path).out, "running job", 60
    )
    made = emulator.ray.jobs["default", JOB]
    assert isinstance(made, EmulatedJob)
    wait_until(lambda: "begun" in _said_by(made), "first line")
    assert "begun" in commands.nemorun("ray", "logs", "train", cwd=tmp_path).out
    shown = commands.nemorun("ray", "status", "train", "--json", cwd=tmp_path).json()
    assert shown["details"]["jobDeploymentStatus"] == "Running"
    port = str(free_port())
    argv = [sys.executable, "-m", "nemo_run", "ray", "forward", "train", "--port", port]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        assert "leads to train" in forward.stdout.readline()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=30)
        forward.send_signal(signal.SIGINT)
    assert "NOT_FOUND" in commands.nemorun("ray", "stop", "train", cwd=tmp_path).out
    assert not emulator.pods
    gone = commands.nemorun("ray", "forward", "train", cwd=tmp_path)
    assert "has no cluster now" in gone.err


def _said_by(job: EmulatedJob) -> str:
    container = job.submitters[0].container if job.submitters else None
    return container.log.text if container is not None else ""


def _has_cluster(backend: KubeRayJob) -> bool:
    api = backend._api()
    there = backend._object(api)
    return there is not None and api.head(there.said("rayClusterName")) is not None


def test_a_job_is_started_once_and_an_ended_one_is_replaced(
    emulator: KubernetesEmulator, executor: MakeExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    job = KubeRayJob(name="train", executor=executor())
    first = job.start(command="until [ -e /workspace/go ]; do sleep 0.05; done; echo first")
    again = KubeRayJob(name="train", executor=executor())
    assert again.start(command="echo other") == first
    (emulator.volume("work") / "go").touch()
    again.follow_logs_until_completion(poll_interval=1, delete_on_finish=False)
    assert "first" in capfd.readouterr().out
    assert again.start(command="echo second") != ""
    again.follow_logs_until_completion(poll_interval=1)
    assert "second" in capfd.readouterr().out
    assert again.status()["jobStatus"] == "NOT_FOUND"
    assert [record.state for record in JobStore().list("kuberay")] == ["SUCCEEDED"]


STARTS = """
    import os, sys
    from nemo_run._backends.ray.kuberay import objects as kuberay_objects
    from nemo_run.core.execution.kuberay import KubeRayExecutor
    from nemo_run.run.ray.kuberay import KubeRayJob

    submit = kuberay_objects.submit
    def die(*args):
        submit(*args)
        os.kill(os.getpid(), 9)
    kuberay_objects.submit = die
    KubeRayJob(name="train", executor=KubeRayExecutor(ray_version="2.60.0")).start(
        command="echo found")
"""


def test_a_job_is_found_whose_launcher_was_killed_while_it_submitted(
    executor: MakeExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    code = textwrap.dedent(STARTS)
    done = subprocess.run([sys.executable, "-c", code], check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    (record,) = JobStore().list("kuberay")
    assert record.ref is not None
    job = KubeRayJob(name="train", executor=executor())
    job.logs(follow=True)
    assert "found" in capfd.readouterr().out
    assert job.job_id == record.ref.native_id
    assert job.status()["jobStatus"] == "SUCCEEDED"
    assert job.stop(wait=True)


def test_a_job_is_looked_for_where_it_was_submitted_to(
    emulator: KubernetesEmulator,
    executor: MakeExecutor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = KubeRayJob(name="train", executor=executor())
    job.start(command="true")
    other = KubernetesEmulator(tmp_path / "other")
    try:
        monkeypatch.setenv("KUBECONFIG", str(other.kubeconfig))
        assert KubeRayJob(name="train", executor=executor()).status()["jobStatus"] != "NOT_FOUND"
        assert KubeRayJob(name="train", executor=executor()).stop(wait=True)
    finally:
        other.close()
    assert not emulator.ray.jobs


def test_a_cluster_without_kuberay_is_said_before_code_is_sent(
    emulator: KubernetesEmulator, executor: MakeExecutor, code: Path
) -> None:
    emulator.ray.installed = False
    with pytest.raises(SubmitError, match="KubeRay is not installed"):
        RayJob(name="train", executor=executor()).start(command="true", workdir=str(code))
    assert not emulator.movers


def test_what_the_cluster_refuses_is_a_runtime_error_and_leaves_nothing(
    emulator: KubernetesEmulator, executor: MakeExecutor
) -> None:
    settings = {"env_vars": {"API_KEY": "0123456789abcdef"}, "container_kwargs": {"nonsense": 1}}
    job = KubeRayJob(name="train", executor=executor(**settings))
    with pytest.raises(RuntimeError, match="nonsense"):
        job.start(command="true")
    assert not emulator.secrets
    assert [record.state for record in JobStore().list("kuberay")] == ["FAILED"]
    assert job.status()["jobStatus"] == "NOT_FOUND"
