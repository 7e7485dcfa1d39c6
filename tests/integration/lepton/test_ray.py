"""Ray clusters and jobs of an emulated Lepton workspace, with a stand-in for Ray or a real one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import patience
from tests.contract.backends import LeptonCluster
from tests.emulators import standin_ray
from tests.emulators.faults import Fault
from tests.emulators.lepton import LeptonEmulator
from tests.emulators.processes import PATH
from tests.integration.kuberay.waiting import wait_until

import nemo_run as run
from nemo_run._jobs.store import JobStore
from nemo_run.exceptions import BackendUnavailableError, ConfigError
from nemo_run.run.ray.cluster import RayCluster
from nemo_run.run.ray.job import RayJob
from nemo_run.run.ray.lepton import LeptonRayCluster, LeptonRayJob

RAY = Path(__file__).parents[3] / ".venv-ray" / "bin"
WAITS = "echo begun; until [ -e /volume/go ]; do sleep 0.05; done; echo done"

pytest.importorskip("ray.job_submission", reason="this generation of the client brings no Ray")


@pytest.fixture
def emulator(cluster: LeptonCluster, tmp_path: Path) -> LeptonEmulator:
    assert cluster.emulator is not None
    cluster.emulator.path = f"{standin_ray.install(tmp_path / 'ray')}:{PATH}"
    return cluster.emulator


def executor(**settings: Any) -> run.LeptonExecutor:
    return run.LeptonExecutor(
        container_image="some/ray",
        nemo_run_dir="/volume/nemo_run",
        node_group="my-group",
        mounts=[{"path": "/", "mount_path": "/volume", "from": "node-nfs:shared"}],
        **{"resource_shape": "cpu.small", "env_vars": {"MODE": "on"}, **settings},
    )


def release(emulator: LeptonEmulator) -> None:
    (emulator.volume("node-nfs:shared") / "go").touch()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(
        "import os; print('training', os.environ['MODE'])\n"
    )
    return tmp_path / "code"


def test_a_job_makes_its_cluster_and_runs_in_the_code_that_was_sent(
    emulator: LeptonEmulator, code: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = executor(nodes=2, resource_shape="gpu.8xh100-sxm", head_resource_shape="cpu.small")
    job = RayJob(name="My_Job", executor=asked)
    job_id = job.start(command="python train.py && echo $COLOUR && exit 3", workdir=str(code))
    assert job_id.startswith("My_Job-")
    job.logs(follow=True, timeout=int(patience.seconds(60)))
    assert capfd.readouterr().out.startswith("training on\n")
    assert job.status() == "FAILED"
    (made,) = emulator.rayclusters.values()
    assert made.name == "my-job"
    head, (worker,) = made.spec["head_group_spec"], made.spec["worker_group_specs"]
    assert (head["resource_shape"], worker["resource_shape"]) == ("cpu.small", "gpu.8xh100-sxm")
    assert (head["min_replicas"], worker["min_replicas"]) == (1, 2)
    assert made.spec["image"] == "some/ray"
    assert made.spec["ray_version"]
    assert made.spec["suspend"] is False
    assert head["affinity"]["allowed_dedicated_node_groups"] == ["my-group-x7k2"]
    assert head["mounts"][0]["mount_path"] == "/volume"
    states = {record.state for record in JobStore().list("lepton_ray")}
    assert states == {"FAILED", "SUBMITTED"}


def test_what_a_public_client_does_with_a_job_works(
    emulator: LeptonEmulator, code: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shared = RayCluster(name="shared", executor=executor())
    shared.start(timeout=int(patience.seconds(60)))
    job = RayJob(name="train", executor=executor(), cluster_name="shared")
    job.start(command=WAITS, workdir=str(code))
    job_id = job.backend.job_id
    other = RayJob(name="other", executor=executor(), cluster_name="shared")
    other.backend.job_id = job_id
    assert other.backend.submission_id == job_id
    client = other.backend._ray_client()
    wait_until(lambda: "begun" in client.get_job_logs(job_id), "first line")
    assert other.backend.status(display=False) == "RUNNING"
    assert [item.submission_id for item in client.list_jobs()] == [job_id]
    release(emulator)
    other.logs(follow=True, timeout=600)
    assert capfd.readouterr().out == "begun\ndone\n"
    assert other.status(display=False) == "SUCCEEDED"
    assert other.stop() is True
    assert set(emulator.rayclusters) == {"shared"}
    shared.stop()
    assert not emulator.rayclusters
    assert shared.status() is None


def test_a_job_is_found_by_another_process_and_stopped_with_confirmation(
    emulator: LeptonEmulator,
) -> None:
    job = LeptonRayJob(name="train", executor=executor())
    job.start(command="sleep 300")
    again = LeptonRayJob(name="train", executor=executor())
    wait_until(lambda: again.status() == "RUNNING", "start of the job")
    assert again.job_id == job.job_id
    assert again.stop(wait=True, timeout=int(patience.seconds(30))) is True
    assert again.status() == "STOPPED"
    stranger = LeptonRayJob(name="stranger", executor=executor(), cluster_name="train")
    assert stranger.status() == "STOPPED"  # the only one that the cluster lists


def test_a_cluster_is_found_by_its_name_waited_for_and_deleted(emulator: LeptonEmulator) -> None:
    emulator.may_start.clear()
    cluster = LeptonRayCluster(name="A_long.Name-" + "x" * 40, executor=executor())
    assert cluster.status() is None
    assert cluster.wait_until_running(timeout=600) is False
    name = cluster.create()
    assert name == cluster.cluster_name
    assert len(name) <= 35
    assert cluster.create() == name
    assert cluster.wait_until_running(timeout=0) is False
    status = cluster.status(display=True)
    assert status == {"state": "Starting", "cluster_name": name, "ray_ready": False}
    threading.Timer(0.2, emulator.may_start.set).start()
    assert cluster.wait_until_running(timeout=int(patience.seconds(60)), delay_between_attempts=1)
    with pytest.raises(NotImplementedError):
        cluster.port_forward(port=1)
    with pytest.raises(NotImplementedError):
        cluster.stop_forwarding()
    assert cluster.delete() is True
    assert cluster.delete(wait=True, timeout=int(patience.seconds(30)), poll_interval=1) is True
    assert cluster.status() is None


def test_a_dry_run_asks_the_workspace_for_nothing(
    emulator: LeptonEmulator, code: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    RayCluster(name="dev", executor=executor()).start(dryrun=True)
    assert yaml.safe_load(capfd.readouterr().out)["metadata"]["name"] == "dev"
    assert RayJob(name="dev", executor=executor()).start("ls", str(code), dryrun=True) is None
    assert not emulator.server.seen


def test_runtime_env_is_used_and_mistakes_are_said_before_anything_is_asked(
    emulator: LeptonEmulator, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for given, said in (("- a", "mapping"), ("a: [", "nor YAML")):
        with pytest.raises(ConfigError, match=said):
            LeptonRayJob(name="dev", executor=executor()).start("ls", runtime_env_yaml=given)
    with pytest.raises(ConfigError, match="no directory"):
        LeptonRayJob(name="dev", executor=executor()).start("ls", workdir="/not/there")
    with pytest.raises(ConfigError, match="starts Ray itself"):
        LeptonRayCluster(name="dev", executor=executor()).create(["true"])
    with pytest.raises(ConfigError, match="does not take"):
        LeptonRayCluster(name="1 2", executor=executor()).create()
    assert not emulator.server.seen
    (tmp_path / "env.yaml").write_text("env_vars: {COLOUR: green}")
    job = LeptonRayJob(name="dev", executor=executor())
    job.start(command="echo $COLOUR", runtime_env_yaml=str(tmp_path / "env.yaml"))
    job.logs(follow=True)
    assert "green" in capfd.readouterr().out


def test_what_lepton_refuses_is_a_runtime_error(emulator: LeptonEmulator) -> None:
    with pytest.raises(RuntimeError, match="unknown resource shape"):
        LeptonRayCluster(name="dev", executor=executor(resource_shape="huge")).create()
    emulator.may_start.clear()
    job = LeptonRayJob(name="dev", executor=executor(), cluster_ready_timeout=0)
    with pytest.raises(RuntimeError, match="is not ready"):
        job.start(command="true")
    with pytest.raises(BackendUnavailableError, match="does not answer"):
        job.logs()


def test_answers_that_are_lost_leave_one_cluster_and_one_job(
    emulator: LeptonEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in ("/rayclusters$", "/api/jobs/$"):
        emulator.faults.add(Fault(method="POST", path=path, times=1, drop=True, handled=True))
    job = LeptonRayJob(name="dev", executor=executor())
    job.start(command="echo once >>/volume/tries; cat /volume/tries")
    job.logs(follow=True)
    assert capfd.readouterr().out == "once\n"
    assert len(emulator.rayclusters) == 1


def test_an_outage_says_nothing_about_a_job_and_is_waited_for(
    emulator: LeptonEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    job = LeptonRayJob(name="dev", executor=executor())
    job.start(command=WAITS)
    wait_until(lambda: job.status() == "RUNNING", "start of the job")
    follower = threading.Thread(target=job.logs, kwargs={"follow": True})
    follower.start()
    with emulator.unreachable():
        assert job.status() is None
        status = LeptonRayCluster(name="dev", executor=executor()).status()
        assert status is not None
        assert status["state"] == "UNKNOWN"
    release(emulator)
    follower.join(patience.seconds(60))
    assert not follower.is_alive()
    assert capfd.readouterr().out == "begun\ndone\n"


STARTS = """
    import os
    import nemo_run as run
    from nemo_run.run.ray.lepton import LeptonRayJob
    from ray.job_submission import JobSubmissionClient

    submit = JobSubmissionClient.submit_job
    def die(*args, **settings):
        submit(*args, **settings)
        os.kill(os.getpid(), 9)
    JobSubmissionClient.submit_job = die
    executor = run.LeptonExecutor(
        container_image="some/ray", nemo_run_dir="/volume/nemo_run", resource_shape="cpu.small",
        mounts=[{"path": "/", "mount_path": "/volume", "from": "node-nfs:shared"}])
    LeptonRayJob(name="dev", executor=executor).start(command="echo found")
"""


def test_a_job_is_found_whose_launcher_was_killed_while_it_submitted(
    emulator: LeptonEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = [sys.executable, "-c", textwrap.dedent(STARTS)]
    done = subprocess.run(argv, check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    capfd.readouterr()
    job = LeptonRayJob(name="dev", executor=executor())
    job.logs(follow=True)
    assert capfd.readouterr().out == "found\n"
    assert job.status() == "SUCCEEDED"


@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("usual_ray_ports")
def test_a_real_ray_runs_a_job_on_two_nodes(
    emulator: LeptonEmulator, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (RAY / "ray").exists(), "no Ray: run `make .venv-ray/.installed`"
    emulator.path = f"{RAY}:/usr/bin:/bin"
    (tmp_path / "code").mkdir()
    text = "import ray; ray.init(); print('nodes', sum(n['Alive'] for n in ray.nodes()))\n"
    (tmp_path / "code" / "count.py").write_text(text)
    cluster = RayCluster(name="real", executor=executor())
    cluster.start(timeout=int(patience.seconds(60)))
    job = RayJob(name="count", executor=executor(), cluster_name="real")
    command = "for n in $(seq 60); do python count.py | grep 'nodes 2' && exit 0; done; exit 1"
    job.start(command=command, workdir=str(tmp_path / "code"))
    job.logs(follow=True, timeout=int(patience.seconds(60)))
    assert "nodes 2" in capfd.readouterr().out
    assert job.status() == "SUCCEEDED"
    cluster.stop()
