"""Ray clusters and jobs: a real Ray on a real Slurm."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import patience
from tests.cli import commands
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.jobs import wait_until
from tests.integration.slurm.slow import SlowSbatch

import nemo_run as run
from nemo_run.core.execution.slurm import SlurmJobDetails
from nemo_run.exceptions import BackendError
from nemo_run.run.ray import slurm as slurm_ray
from nemo_run.run.ray.cluster import RayCluster
from nemo_run.run.ray.job import RayJob

RAY = Path(__file__).parents[3] / ".venv-ray" / "bin"

Executor = Callable[..., run.SlurmExecutor]


@pytest.fixture
def executor(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """Makes executors whose jobs have Ray on their path, and few processes of it."""
    assert (RAY / "ray").exists(), "no Ray: run `make .venv-ray/.installed`"
    remote = tmp_path_factory.mktemp("remote")

    def make(**settings: object) -> run.SlurmExecutor:
        return run.SlurmExecutor(
            account="root",
            tunnel=run.SSHTunnel(host="loop", user="root", job_dir=str(remote)),
            packager=run.Packager(),
            env_vars={"PATH": f"{RAY}:/usr/bin:/bin", "CPUS_PER_WORKER": "1", "RAY_TEMP_DIR": temp},
            **settings,  # type: ignore[arg-type]  # whatever the executor takes
        )

    # Sockets go below it, so its path must be short.
    with tempfile.TemporaryDirectory(prefix="nr", ignore_cleanup_errors=True) as temp:
        yield make


def dashboard_says(port: int, token: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/jobs/")
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=patience.seconds(20)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as err:
        return err.code


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


USES_BOTH_NODES = """
import ray
ray.init()
@ray.remote(num_cpus=1, resources={"worker_units": 2})
def where():
    import time
    time.sleep(2)
    return ray.get_runtime_context().get_node_id()
nodes = set(ray.get([where.remote(), where.remote()]))
print("gpus", int(ray.cluster_resources()["GPU"]), "nodes", len(nodes))
print("it's", "a \\"quoted\\" word")
"""


@pytest.mark.timeout(300)
def test_a_job_uses_all_its_nodes_and_another_process_reads_its_log(
    executor: Executor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "both.py").write_text(USES_BOTH_NODES)
    asked = executor(nodes=2, gpus_per_node=2)
    job = RayJob(name="both", executor=asked)
    job.start(command="python both.py && exit 3", workdir=str(tmp_path / "code"))
    again = RayJob(name="both", executor=asked)
    again.logs(follow=True, timeout=int(patience.seconds(120)))
    said = capfd.readouterr().out
    assert "gpus 4 nodes 2" in said
    assert """it's a "quoted" word""" in said
    wait_until(lambda: again.status(display=False)["state"] == "FAILED", "end of the job")
    assert again.backend.job_id == job.backend.job_id


@pytest.mark.timeout(300)
def test_clusters_share_a_node_and_their_dashboards_want_their_own_tokens(
    executor: Executor, slurm: SlurmCluster, tmp_path: Path
) -> None:
    asked = executor(cpus_per_task=2)
    asked.additional_parameters = {"nodelist": "node1"}
    clusters = [RayCluster(name=f"shared{n}", executor=asked) for n in range(3)]
    for cluster in clusters:
        cluster.start(wait_until_ready=False)
    for cluster in clusters:
        assert cluster.backend.wait_until_running(timeout=int(patience.seconds(150)))
    first, second, third = (cluster.backend for cluster in clusters)
    port = free_port()
    clusters[0].port_forward(port=port)
    assert dashboard_says(port, first.token()) == 200
    assert dashboard_says(port, second.token()) == 403
    with pytest.raises(BackendError, match="Is the port free"):
        clusters[1].port_forward(port=port)

    # The head of the second is killed, the third is cancelled by its user.
    pattern = f"gcs_server.*/ray-{second.status()['job_id']}-"
    gcs = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True)
    subprocess.run(["kill", "-9", *gcs.stdout.split()], check=True)
    slurm.run("scancel", third.status()["job_id"])
    wait_until(lambda: second.status()["state"] == "FAILED", "end of the cluster without head", 90)
    wait_until(lambda: third.status()["state"] == "CANCELLED", "end of the cancelled one", 90)
    assert "the Ray head on node1 has ended by itself" in _batch_log(second.cluster_dir)

    # Another process needs no more than the name.
    listed = commands.nemorun("ray", "list", "--json", cwd=tmp_path).json()
    assert {each["name"]: each["state"] for each in listed} == {
        "shared0": "RUNNING",
        "shared1": "FAILED",
        "shared2": "CANCELLED",
    }
    assert commands.nemorun("ray", "status", "shared1", cwd=tmp_path).code == 1
    with forwarded("shared0", tmp_path) as other:
        assert dashboard_says(other, first.token()) == 200
    with forwarded("shared0", tmp_path):
        pass  # Ctrl-C as soon as the address is to be read
    done = commands.nemorun("ray", "stop", "shared0", cwd=tmp_path)
    assert (done.code, done.out) == (0, "shared0: CANCELLED\n")
    assert (first.status()["state"], first.status()["ray_ready"]) == ("CANCELLED", False)


@contextmanager
def forwarded(name: str, directory: Path) -> Iterator[int]:
    """Have ``nemorun ray forward`` run, and return its port."""
    port = free_port()
    argv = [str(commands.BIN / "nemorun"), "ray", "forward", name, "--port", str(port)]
    with subprocess.Popen(argv, cwd=directory, stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None
            assert f"127.0.0.1:{port} leads to {name}" in forward.stdout.readline()
            yield port
        finally:
            forward.send_signal(signal.SIGINT)
    assert forward.returncode == 0


def _batch_log(cluster_dir: str) -> str:
    return "".join(path.read_text() for path in Path(cluster_dir, "logs").glob("sbatch_*.out"))


STARTS = """
    import sys
    import nemo_run as run
    from nemo_run.run.ray.cluster import RayCluster

    job_dir, before = sys.argv[1:]
    tunnel = run.SSHTunnel(host="loop", user="root", job_dir=job_dir, pre_command=before)
    executor = run.SlurmExecutor(account="root", tunnel=tunnel, packager=run.Packager())
    RayCluster(name="left", executor=executor).start()
"""


@pytest.mark.timeout(120)
def test_a_cluster_whose_launcher_was_killed_is_found_and_ended(
    executor: Executor, tmp_path: Path
) -> None:
    asked = executor()
    asked.env_vars = {}
    slow = SlowSbatch(tmp_path / "slow", "after")
    argv = [sys.executable, "-c", textwrap.dedent(STARTS), asked.tunnel.job_dir, slow.command]
    with subprocess.Popen(argv) as launcher:
        wait_until(slow.reached, "sbatch")
        launcher.kill()  # Slurm has the job, and its number has not come back
    cluster = RayCluster(name="left", executor=asked)
    found = cluster.status(display=False)
    assert found["job_id"] is not None
    cluster.stop()
    assert cluster.status(display=False)["state"] in ("CANCELLED", "FAILED")


@pytest.mark.timeout(300)
def test_a_ray_job_runs_in_an_experiment_after_what_it_depends_on(executor: Executor) -> None:
    asked = executor()
    asked.job_details = SlurmJobDetails(ray_log_prefix="ray-%j-")
    says = """import ray, os; ray.init(); print("ray", len(ray.nodes()), os.environ["LOG_DIR"])"""
    ray_job = RayJob(name="job", executor=asked)
    script = ray_job.as_task(f"python -c {shlex.quote(says)}")
    with run.Experiment("with-ray") as exp:
        before = exp.add(run.Script(inline="echo first"), executor=executor(), name="before")
        exp.add(script, executor=ray_job.executor, name=ray_job.name, dependencies=[before])
        exp.run()
    told = exp.status(return_dict=True)
    assert told is not None
    _, job = told.values()
    assert job["status"].name == "SUCCEEDED"
    (log,) = Path(asked.tunnel.job_dir).rglob(f"logs/ray-{job['job_id']}-job.log")
    assert f"ray 1 {log.parent}" in log.read_text()


@pytest.mark.timeout(300)
def test_two_jobs_with_the_launcher_for_ray_share_a_node(executor: Executor) -> None:
    says = shlex.quote("import ray; ray.init(); print('nodes', len(ray.nodes()))")
    asked = executor(launcher=run.SlurmRay(head_init_wait_time=1), cpus_per_task=2)
    asked.additional_parameters = {"nodelist": "node1"}
    ups = [Path(asked.tunnel.job_dir, name) for name in ("one", "two")]
    with run.Experiment("sharing") as exp:
        for mine, other in (ups, ups[::-1]):
            # Both have their Ray when either asks for it.
            wait = f"touch {mine}; until [ -e {other} ]; do sleep 0.2; done"
            script = run.Script(inline=f"{wait}; python -c {says}")
            exp.add(script, executor=asked, name=mine.name)
        exp.run(sequential=False)
    told = exp.status(return_dict=True)
    assert told is not None
    assert [job["status"].name for job in told.values()] == ["SUCCEEDED", "SUCCEEDED"]


def test_a_program_may_submit_clusters_in_its_own_way(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(self: slurm_ray.SlurmRayCluster, **asked: object) -> str:
        directory = f"{self.executor.tunnel.job_dir}/{self.name}"
        request = slurm_ray.SlurmRayRequest(
            name=self.name,
            cluster_dir=directory,
            template_name=self.executor.ray_template,
            executor=self.executor,
            command=str(asked["command"]),
            launch_cmd=["sbatch", "--parsable"],
        )
        tunnel = self.executor.tunnel
        tunnel.run(f"mkdir -p {directory}/logs {directory}/code")
        tunnel.write(f"{directory}/ray.sub", request.materialize())
        job_id = tunnel.run(f"sbatch --parsable {directory}/ray.sub").stdout.strip()
        slurm_ray.logger.info("own job %s", job_id)
        self.cluster_map[self.name] = job_id
        return job_id

    monkeypatch.setattr(slurm_ray.SlurmRayCluster, "create", create)
    asked = executor()
    asked.env_vars["PATH"] = "/usr/bin:/bin"  # where no Ray is
    job = RayJob(name="own", executor=asked)
    job.start(command="true", workdir="")
    assert job.backend.job_id.isdigit()
    wait_until(lambda: job.backend.status(display=False)["state"] == "FAILED", "end of the job")
    again = RayJob(name="own", executor=asked)
    assert again.status(display=False)["job_id"] == job.backend.job_id
    assert "the Ray head on node" in _batch_log(again.backend.cluster_dir)


def test_the_packager_sends_the_code_where_no_directory_is_given(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("1\n")
    monkeypatch.chdir(tmp_path)
    asked = executor()
    asked.packager = run.PatternPackager(include_pattern="mine.py", relative_path=str(tmp_path))
    asked.env_vars["PATH"] = "/usr/bin:/bin"  # where no Ray is
    job = RayJob(name="packed", executor=asked)
    job.start(command="true", workdir="")
    assert Path(job.backend.cluster_dir, "code", "mine.py").read_text() == "1\n"
    assert Path(asked.tunnel.job_dir, ".archives").is_dir()
    job.stop(wait=True)


def test_code_of_a_running_job_is_left_alone(executor: Executor, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text("1\n")
    asked = executor()
    asked.additional_parameters = {"hold": True}
    job = RayJob(name="held", executor=asked)
    job.start(command="true", workdir=str(tmp_path / "code"))
    (tmp_path / "code" / "mine.py").write_text("2\n")
    again = RayJob(name="held", executor=asked)
    assert again.start(command="true", workdir=str(tmp_path / "code")) == job.backend.job_id
    assert Path(job.backend.cluster_dir, "code", "mine.py").read_text() == "1\n"
    assert again.stop(wait=True)
    assert again.status(display=False)["state"] == "CANCELLED"
