"""Ray jobs of an emulated Run:ai, with a stand-in for Ray in their pods, or a real one."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.backends import DGXCloudCluster
from tests.emulators import standin_ray
from tests.emulators.processes import PATH
from tests.emulators.runai import RunaiEmulator
from tests.emulators.service import free_port
from tests.integration.kuberay.waiting import wait_until

import nemo_run as run
from nemo_run._jobs.store import JobStore
from nemo_run.exceptions import ConfigError
from nemo_run.run.ray.cluster import RayCluster
from nemo_run.run.ray.dgxcloud import DGXCloudRayJob, build_ray_bootstrap_script
from nemo_run.run.ray.job import RayJob

RAY = Path(__file__).parents[3] / ".venv-ray" / "bin"
WAITS = "echo begun; until [ -e /workspace/go ]; do sleep 0.05; done; echo done"


@pytest.fixture
def emulator(cluster: DGXCloudCluster, tmp_path: Path) -> RunaiEmulator:
    assert cluster.emulator is not None
    cluster.emulator.path = f"{standin_ray.install(tmp_path / 'ray')}:{PATH}"
    return cluster.emulator


def executor(cluster: DGXCloudCluster, **settings: Any) -> run.DGXCloudExecutor:
    # Pods have the network of this machine.
    here = {
        "RAY_NODE_IP": "127.0.0.1",
        "RAY_HEAD_PORT": str(free_port()),
        "RAY_DASHBOARD_PORT": str(free_port()),
        "RAY_BOOTSTRAP_PAUSE_S": "0.1",
        **settings.pop("env_vars", {}),
    }
    made = cluster.executor(env_vars=here, **settings)
    assert isinstance(made, run.DGXCloudExecutor)
    return made


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(
        "import os; print('training', os.environ['MODE'])\n"
    )
    (tmp_path / "code" / ".gitignore").write_text("large\n")
    (tmp_path / "code" / "large").touch()
    return tmp_path / "code"


def test_a_cluster_is_a_part_of_its_job(cluster: DGXCloudCluster, emulator: RunaiEmulator) -> None:
    ray = RayCluster(name="dev", executor=executor(cluster))
    ray.start()
    assert ray.status() == {"state": "Implicit", "cluster_name": "dev", "ray_ready": True}
    with pytest.raises(NotImplementedError):
        ray.port_forward()
    with pytest.raises(NotImplementedError):
        ray.backend.stop_forwarding()
    ray.stop()
    assert not emulator.server.seen


def test_a_job_runs_on_all_its_nodes_in_the_code_that_was_sent(
    cluster: DGXCloudCluster,
    emulator: RunaiEmulator,
    code: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked = executor(cluster, nodes=2, gpus_per_node=4, env_vars={"MODE": "on"})
    job = RayJob(name="My train", executor=asked)
    command = 'ls; python train.py && ray status && echo "it\'s $COLOUR"; exit 3'
    workload_id = job.start(
        command=command, workdir=str(code), pre_ray_start_commands=["export COLOUR=red"]
    )
    assert job.backend.job_id == job.backend.submission_id == workload_id
    job.logs(follow=True, timeout=int(patience.seconds(60)))
    said = capfd.readouterr().out
    assert "train.py\ntraining on\n" in said
    assert "large" not in said
    assert "0.0/2.0 nemo_run_node" in said
    assert "it's red" in said
    assert "--num-gpus=4" in said
    wait_until(lambda: job.status(display=False)["state"] == "Failed", "end of the job")
    (made,) = [w for w in emulator.workloads.values() if w.kind == "distributed"]
    assert made.replicas == 2
    # Run:ai may end the other pod when the first has failed.
    codes = [pod.container.exit_code for pod in made.pods if pod.container is not None]
    assert codes in ([3, 3], [3, 143])
    with pytest.raises(RuntimeError, match="ended as Failed"):
        job.backend.wait(poll=0.1)
    assert [record.state for record in JobStore().list("dgx_cloud_ray")] == ["FAILED"]
    assert job.stop() is True


def test_what_a_public_client_does_with_a_job_works(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = executor(cluster)
    job = DGXCloudRayJob(name="train", executor=asked)
    job.start(command=WAITS)
    again = RayJob(name="train", executor=asked)
    wait_until(lambda: again.status(display=False)["state"] == "Running", "start of the job")
    assert again.backend.workload_id == job.workload_id
    assert again.backend.start(command="echo other") == job.workload_id
    other = DGXCloudRayJob(name="other", executor=asked)
    other.job_id = job.job_id
    assert other.status(display=False)["state"] == "Running"
    (emulator.volume("work") / "go").touch()
    again.logs(follow=True, timeout=600)
    assert "begun\ndone\n" in capfd.readouterr().out
    assert again.backend.wait(poll=0.1) == "Completed"
    again.logs(lines=1)
    assert len(capfd.readouterr().out.splitlines()) == 1


def test_a_job_is_stopped_with_confirmation(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    job = DGXCloudRayJob(name="train", executor=executor(cluster))
    with pytest.raises(RuntimeError, match="Start it first"):
        job.stop()
    job.start(command="sleep 300")
    wait_until(lambda: job.status(display=False)["state"] == "Running", "start of the job")
    assert job.stop(wait=True) is True
    assert job.status()["state"] == "Stopped"


def test_a_dry_run_shows_the_script_and_asks_for_nothing(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    job = DGXCloudRayJob(name="train", executor=executor(cluster))
    assert job.start(command="echo hello", dryrun=True) is None
    assert "echo hello" in caplog.text
    with pytest.raises(ConfigError, match="empty"):
        job.start(command=" ")
    with pytest.raises(ConfigError, match="no directory"):
        job.start(command="ls", workdir="/not/there")
    assert not emulator.server.seen
    assert not list(JobStore().list("dgx_cloud_ray"))


def test_a_project_that_is_not_there_is_a_runtime_error(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    job = DGXCloudRayJob(name="train", executor=executor(cluster, project_name="nowhere"))
    with pytest.raises(RuntimeError, match="no project"):
        job.start(command="true")


def test_nodes_that_do_not_come_fail_the_job(tmp_path: Path) -> None:
    script = build_ray_bootstrap_script("touch was", 0, 2, str(tmp_path / "dir"))
    done = bootstrapped(script.replace("seq 120", "seq 3"), "j-worker-0", tmp_path)
    assert done.returncode == 1
    assert "1 of 2 nodes have joined" in done.stdout
    assert (tmp_path / "dir" / ".ray_done_j").read_text().startswith("1 ")
    assert not (tmp_path / "was").exists()


def test_workers_end_with_the_code_of_a_command_that_fails(tmp_path: Path) -> None:
    script = build_ray_bootstrap_script("exit 3", 0, 2, str(tmp_path / "dir"))
    ports = (free_port(), free_port())
    with ThreadPoolExecutor() as threads:
        pods = [
            threads.submit(bootstrapped, script, f"j-worker-{n}", tmp_path, ports) for n in range(2)
        ]
    assert [pod.result().returncode for pod in pods] == [3, 3]


def test_the_end_of_a_job_asks_for_the_end_of_no_other_ray() -> None:
    lines = build_ray_bootstrap_script("true", 0, 2, "/dir").splitlines()
    assert not [line for line in lines if "ray stop" in line and not line.lstrip().startswith("#")]


def test_a_worker_without_a_head_ends(tmp_path: Path) -> None:
    script = build_ray_bootstrap_script("true", 0, 2, str(tmp_path / "dir"))
    done = bootstrapped(script.replace("seq 120", "seq 3"), "j-worker-1", tmp_path)
    assert done.returncode == 1
    assert "did not say where it is" in done.stdout


def test_a_command_before_ray_that_fails_ends_the_job(tmp_path: Path) -> None:
    script = build_ray_bootstrap_script("true", 0, 1, str(tmp_path), before_ray=["false"])
    done = bootstrapped(script, "j-0-0", tmp_path)
    assert done.returncode == 1
    assert "before Ray failed" in done.stdout


def test_what_an_earlier_run_left_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / ".ray_done_j-0-0").write_text("0 127.0.0.1:1\n")
    (tmp_path / ".ray_head_ip_j-0-0").write_text("127.0.0.1:1\n")
    done = bootstrapped(
        build_ray_bootstrap_script("exit 5", 0, 1, str(tmp_path)), "j-0-0", tmp_path
    )
    assert done.returncode == 5


def bootstrapped(
    script: str, host: str, directory: Path, ports: tuple[int, int] | None = None
) -> subprocess.CompletedProcess[str]:
    head, dashboard = ports or (free_port(), free_port())
    path = f"{standin_ray.install(directory / 'ray')}:{PATH}"
    env = {
        "PATH": path,
        "HOSTNAME": host,
        "RAY_NODE_IP": "127.0.0.1",
        "RAY_HEAD_PORT": str(head),
        "RAY_DASHBOARD_PORT": str(dashboard),
        "RAY_BOOTSTRAP_PAUSE_S": "0.3",
    }
    argv = ["bash", "-c", script]
    return subprocess.run(
        argv,
        env=env,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=patience.seconds(60),
        check=False,
    )


STARTS = """
    import json, os, sys
    import nemo_run as run
    from nemo_run._backends.runai.client import RunAI
    from nemo_run.run.ray.dgxcloud import DGXCloudRayJob

    create = RunAI.create_named
    def die(client, kind, *args, **settings):
        made = create(client, kind, *args, **settings)
        if kind != "workspaces":
            os.kill(os.getpid(), 9)
        return made
    RunAI.create_named = die
    executor = run.DGXCloudExecutor(**json.loads(sys.argv[1]))
    DGXCloudRayJob(name="train", executor=executor).start(command="echo found")
"""


def test_a_job_is_found_whose_launcher_was_killed_while_it_submitted(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = executor(cluster)
    names = (
        *("base_url", "kube_apiserver_url", "client_id", "client_secret", "project_name"),
        *("container_image", "pvcs", "pvc_nemo_run_dir", "env_vars"),
    )
    settings = json.dumps({name: getattr(asked, name) for name in names})
    argv = [sys.executable, "-c", textwrap.dedent(STARTS), settings]
    done = subprocess.run(argv, check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    job = DGXCloudRayJob(name="train", executor=asked)
    job.logs(follow=True)
    assert "found" in capfd.readouterr().out
    assert job.wait(poll=0.1) == "Completed"


def test_an_outage_says_nothing_about_a_job_and_is_waited_for(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    job = DGXCloudRayJob(name="train", executor=executor(cluster))
    job.start(command=WAITS)
    wait_until(lambda: job.status(display=False)["state"] == "Running", "start of the job")
    follower = threading.Thread(target=job.logs, kwargs={"follow": True})
    follower.start()
    wait_until(lambda: "begun" in capfd.readouterr().out, "first line")
    with emulator.unreachable():
        assert DGXCloudRayJob(name="train", executor=job.executor).status()["state"] == "Unknown"
    (emulator.volume("work") / "go").touch()
    follower.join(patience.seconds(60))
    assert not follower.is_alive()
    assert "done\n" in capfd.readouterr().out


@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("usual_ray_ports")
def test_a_real_ray_runs_a_job_on_two_nodes(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (RAY / "ray").exists(), "no Ray: run `make .venv-ray/.installed`"
    emulator.path = f"{RAY}:/usr/bin:/bin"
    # Sockets go below it, so its path must be short.
    with tempfile.TemporaryDirectory(prefix="nr", ignore_cleanup_errors=True) as temp:
        places = {"RAY_TMPDIR": temp, "TMPDIR": temp, "RAY_BOOTSTRAP_PAUSE_S": "1"}
        asked = executor(cluster, nodes=2, gpus_per_node=2, env_vars=places)
        job = RayJob(name="gpus", executor=asked)
        text = "import ray; ray.init(); print('gpus', int(ray.cluster_resources()['GPU']))"
        job.backend.start(command=f'python -c "{text}" && exit 3')
        job.logs(follow=True, timeout=int(patience.seconds(120)))
        assert "gpus 4" in capfd.readouterr().out
        wait_until(lambda: job.status(display=False)["state"] == "Failed", "end of the job")
        emulator.close()
