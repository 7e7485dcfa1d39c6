"""Ray clusters and jobs, as far as they need neither a cluster nor Ray."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests import patience

import nemo_run as run
from nemo_run.exceptions import BackendError, ConfigError, UnsupportedError
from nemo_run.run.ray._forward import Forwarding, way_to
from nemo_run.run.ray.cluster import RayCluster
from nemo_run.run.ray.job import RayJob
from nemo_run.run.ray.slurm import SlurmRayCluster, SlurmRayJob, SlurmRayRequest, get_last_job_id

# Each of these says what Ray's own would, as far as the script listens.
FAKES = {
    "ray": """
case "$1" in
    start)
        shift; echo "$@" >>{directory}/started
        [ ! -e {directory}/broken ] || exit 5
        case "$*" in *--head*)
            for word; do case "$word" in --temp-dir=*) temp=${{word#*=}};; esac; done
            mkdir -p "$temp"; echo 127.0.0.1:7777 >"$temp/ray_current_cluster";; esac
        trap 'exit 0' TERM; while :; do sleep 0.1; done ;;
    status) echo " 0.0/64.0 worker_units" ;;
esac
""",
    "srun": 'while :; do case "$1" in --output=*) out=${{1#*=}}; shift;; '
    '--chdir) cd "$2"; shift 2;; --*) shift;; *) break;; esac; done; exec "$@" >>"$out" 2>&1',
    "scontrol": "printf 'node1\\nnode2\\n'",
}


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    """An environment whose Slurm and Ray are small scripts on this machine."""
    (tmp_path / "bin").mkdir()
    for name, text in FAKES.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/bash\n{text.format(directory=tmp_path)}\n")
        path.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "RAY_TEMP_DIR": str(tmp_path),
    }


def request(tmp_path: Path, **settings: Any) -> SlurmRayRequest:
    executor = settings.pop("executor", None) or run.SlurmExecutor(
        account="team_ab", nodes=2, gpus_per_node=2, tunnel=run.LocalTunnel(job_dir=str(tmp_path))
    )
    (tmp_path / "c").mkdir(exist_ok=True)
    return SlurmRayRequest(
        name="c",
        cluster_dir=str(tmp_path / "c"),
        template_name="ray.sub.j2",
        executor=executor,
        launch_cmd=["sbatch", "--parsable"],
        **settings,
    )


def script_run(script: str, here: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        env=here,
        capture_output=True,
        text=True,
        timeout=patience.seconds(60),
        check=False,
    )


@pytest.mark.slow
def test_a_command_runs_once_all_nodes_have_joined(tmp_path: Path, here: dict[str, str]) -> None:
    command = """printf '%s\\n' "it's $RAY_ADDRESS" >out; cp ../ray_cluster_info.json .; exit 4"""
    code = tmp_path / "c" / "code"
    asked = request(tmp_path, command=command, workdir=str(code), pre_ray_start_commands=["date"])
    done = script_run(asked.materialize(), here)
    assert done.returncode == 4, done.stdout + done.stderr
    started = (tmp_path / "started").read_text().splitlines()
    assert len(started) == 2
    assert all("--num-gpus=2" in line and '"worker_units": 2' in line for line in started)
    assert "--port=0" in started[0]
    assert "--address=127.0.0.1:7777" in started[1]
    assert json.loads((tmp_path / "c" / "job_ids.json").read_text()) == ["17"]
    # It tells where Ray is only as long as Ray is there.
    assert not (tmp_path / "c" / "ray_cluster_info.json").exists()
    assert (tmp_path / "c" / ".nemo_run" / "job-17" / "exit").read_text().startswith("4 ")


@pytest.mark.slow
def test_a_head_that_does_not_start_fails_the_job(tmp_path: Path, here: dict[str, str]) -> None:
    (tmp_path / "broken").touch()
    done = script_run(request(tmp_path).materialize(), here)
    assert done.returncode == 1
    assert "nemo_run: error: the Ray head on node1 has ended by itself" in done.stdout
    # Each try has ports of its own.
    started = (tmp_path / "started").read_text().splitlines()
    ports = [word for line in started for word in line.split() if "--dashboard-port" in word]
    assert len(started) == len(set(ports)) == 3


@pytest.mark.slow
def test_clusters_started_one_after_the_other_are_all_listed(
    tmp_path: Path, here: dict[str, str]
) -> None:
    for number in ("17", "18"):
        script_run(
            request(tmp_path, command="true").materialize(), {**here, "SLURM_JOB_ID": number}
        )
    executor = run.SlurmExecutor(account="a", tunnel=run.LocalTunnel(job_dir=str(tmp_path)))
    assert json.loads((tmp_path / "c" / "job_ids.json").read_text()) == ["17", "18"]
    assert get_last_job_id(str(tmp_path / "c"), executor) == 18


@pytest.mark.parametrize(
    ("settings", "gpus"),
    [
        ({"gpus_per_node": 4}, "--num-gpus=4"),
        ({"gpus_per_task": 1, "ntasks_per_node": 2}, "--num-gpus=2"),
        ({"gres": "gpu:h100:3"}, "--num-gpus=3"),
        ({}, None),
    ],
)
def test_ray_has_as_many_gpus_as_were_asked_for(
    tmp_path: Path, settings: dict[str, Any], gpus: str | None
) -> None:
    executor = run.SlurmExecutor(
        account="a", tunnel=run.LocalTunnel(job_dir=str(tmp_path)), **settings
    )
    script = request(tmp_path, executor=executor).materialize()
    assert (gpus or "--num-gpus") in script if gpus else "--num-gpus" not in script


def test_scripts_are_bash_with_and_without_containers(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    for template in ("ray.sub.j2", "ray_enroot.sub.j2"):
        for runtime in (None, "pyxis", "apptainer"):
            executor = run.SlurmExecutor(
                account="a",
                container_image="an image",
                container_runtime=runtime,
                tunnel=run.LocalTunnel(job_dir=str(tmp_path)),
            )
            asked = request(tmp_path, executor=executor, command="echo 'a b'; it=1")
            asked.template_name = template
            script = asked.materialize()
            subprocess.run([bash, "-n"], input=script, text=True, check=True)
            assert ("enroot exec" in script) == (template == "ray_enroot.sub.j2")
            assert ("apptainer exec" in script) == (runtime == "apptainer")
            assert ('ray-head-"${SLURM_JOB_ID}"' in script) == (runtime != "apptainer")


def test_what_cannot_be_a_ray_cluster_is_refused(tmp_path: Path) -> None:
    tunnel = run.LocalTunnel(job_dir=str(tmp_path))
    array = run.SlurmExecutor(account="a", array="0-3", tunnel=tunnel)
    with pytest.raises(UnsupportedError, match="array"):
        request(tmp_path, executor=array).materialize()
    apart = run.SlurmExecutor(
        account="a", container_image="i", container_runtime="docker", tunnel=tunnel
    )
    with pytest.raises(UnsupportedError, match="docker"):
        request(tmp_path, executor=apart).materialize()
    with pytest.raises(ValueError, match="LocalExecutor"):
        RayCluster(name="c", executor=run.LocalExecutor())
    job = SlurmRayJob(name="c", executor=run.SlurmExecutor(account="a", tunnel=tunnel))
    with pytest.raises(ConfigError, match="working_dir"):
        job.start("true", None, runtime_env_yaml="working_dir: .\n", dryrun=True)


def test_a_dry_run_shows_the_script_but_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = run.SlurmExecutor(
        account="team_ab",
        env_vars={"API_TOKEN": "hidden-value-1"},
        tunnel=run.LocalTunnel(job_dir=str(tmp_path)),
    )
    job = RayJob(name="dry", executor=executor, pre_ray_start_commands=["echo before"])
    job.start("echo now", "", dryrun=True)
    shown = capsys.readouterr().out
    assert "#SBATCH --job-name=team_ab-ab.dry" in shown
    assert "echo before" in shown
    assert "echo now" in shown
    assert "hidden-value-1" not in shown
    assert not list(tmp_path.iterdir())


def test_a_script_that_a_program_submits_itself_has_the_variables(tmp_path: Path) -> None:
    executor = run.SlurmExecutor(
        account="a",
        env_vars={"WHERE": "$HOME/x y"},
        tunnel=run.LocalTunnel(job_dir=str(tmp_path)),
    )
    assert "export WHERE=\"${HOME}\"'/x y'" in request(tmp_path, executor=executor).materialize()


def test_the_number_of_a_job_may_be_assigned(tmp_path: Path) -> None:
    executor = run.SlurmExecutor(account="a", tunnel=run.LocalTunnel(job_dir=str(tmp_path)))
    job = RayJob(name="j", executor=executor)
    assert job.backend.job_id is None
    job.backend.job_id = 42
    assert job.backend._cluster().cluster_map == {"j": "42"}
    assert SlurmRayCluster(name="j", executor=executor).cluster_dir == f"{tmp_path}/j"


def test_tasks_of_a_group_run_beside_the_ray_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = run.SlurmExecutor(account="a", tunnel=run.LocalTunnel(job_dir=str(tmp_path)))
    first = run.Script(inline="echo one", env={"ONE": "1"}, metadata={"use_with_ray_cluster": True})
    with run.Experiment("group", base_dir=str(tmp_path)) as exp:
        exp.add([first, run.Script(inline="echo two")], executor=executor, name="both")
        exp.dryrun()
    script = capsys.readouterr().out
    assert "ray start --head" in script
    assert "nemo_run_environment env-0" in script
    assert "overlap-1.out" in script


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"dashboard")

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_a_local_port_leads_to_the_cluster_until_it_is_stopped(tmp_path: Path) -> None:
    tunnel = run.LocalTunnel(job_dir=str(tmp_path))
    with HTTPServer(("127.0.0.1", 0), Answer) as server, socket.socket() as probe:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        target = server.server_address[1]
        forwarding = Forwarding(way_to(tunnel, "127.0.0.1", target, local_port=port), port)
        forwarding.start()
        forwarding.wait_until_up()
        url = f"http://127.0.0.1:{port}/"
        with urllib.request.urlopen(url, timeout=patience.seconds(10)) as answer:
            assert answer.read() == b"dashboard"
        second = Forwarding(way_to(tunnel, "127.0.0.1", target, local_port=port), port)
        second.start()
        with pytest.raises(BackendError, match="Is the port free"):
            second.wait_until_up()
        forwarding.stop_forwarding()
        assert not forwarding.is_alive()
        server.shutdown()
