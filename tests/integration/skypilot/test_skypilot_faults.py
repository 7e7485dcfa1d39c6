"""What SkyPilot and its clusters may do without a job being lost.

These tests stop things that others share, so they are run alone and in this order.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests import patience
from tests.contract.backends import ROOT, SkypilotCluster, SkypilotJobs
from tests.integration.skypilot.late import late_answers
from torchx.specs import AppState

import nemo_run as run
from nemo_run._backends.skypilot import client, launches
from nemo_run._backends.skypilot.jobs import ref_of
from nemo_run.core.execution.skypilot import split_app_id
from nemo_run.exceptions import BackendError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skypilot,
    pytest.mark.skypilot_alone,
    pytest.mark.timeout(1200),
    # SkyPilot starts an API server by itself, and does not wait for that process.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def server(skypilot_bed: Path) -> None:
    # One that a test before made start has ended with that test.
    environment = {name: os.environ[name] for name in os.environ if name != "NEMORUN_HOME"}
    command = [str(skypilot_bed / "node" / "bin" / "sky"), "api", "start"]
    subprocess.run(command, check=True, capture_output=True, env=environment)


@pytest.fixture
def cluster(tmp_path: Path) -> SkypilotCluster:
    return SkypilotCluster(tmp_path)


KINDS = pytest.mark.parametrize("kind", [SkypilotCluster, SkypilotJobs])


NEMORUN = [sys.executable, "-m", "nemo_run"]


def sky(*arguments: str) -> None:
    subprocess.run(["sky", *arguments], check=True, capture_output=True)


@KINDS
def test_a_job_is_found_after_the_api_server_was_restarted(
    kind: type[SkypilotCluster], tmp_path: Path
) -> None:
    cluster = kind(tmp_path)
    app_id = cluster.schedule("echo up; sleep 20; echo done; exit 3")
    cluster.wait_for_line(app_id, "up\n")
    sky("api", "stop")
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 3)
    assert cluster.lines(app_id) == ["up\n", "done\n"]


@contextlib.contextmanager
def server_stands_still() -> Iterator[None]:
    """Stop the API server until a client has tried in vain to start another."""
    server = _api_servers()
    for pid in server:
        os.kill(pid, signal.SIGSTOP)
    done = threading.Event()

    def wait_for_another() -> None:
        while not _api_servers() - server and not done.wait(0.05):
            pass
        while _api_servers() - server and not done.wait(0.05):
            pass
        for pid in server:
            os.kill(pid, signal.SIGCONT)

    waiting = threading.Thread(target=wait_for_another)
    waiting.start()
    try:
        yield
    finally:
        was_in_vain = not waiting.is_alive()
        done.set()
        waiting.join()
    assert was_in_vain


def _api_servers() -> set[int]:
    found = subprocess.run(["pgrep", "-f", "sky[.]server[.]server"], capture_output=True, text=True)
    return {int(pid) for pid in found.stdout.split()}


def test_a_job_is_launched_once_an_api_server_answers_again(cluster: SkypilotCluster) -> None:
    with server_stands_still():
        app_id = cluster.schedule("echo up")
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["up\n"]


def test_a_job_whose_cluster_is_lost_is_not_waited_for(cluster: SkypilotCluster) -> None:
    with run.Experiment("lost", executor=cluster.executor()) as exp:
        exp.add(run.Script(inline="echo up; sleep 600"), name="job")
        exp.run(detach=True)
    (app_id,) = cluster.listed()
    cluster.wait_for_line(app_id, "up\n")
    sky("down", "-y", os.environ["NEMO_RUN_TEST_SKYPILOT_CLUSTER"])
    waited = subprocess.run(
        [*NEMORUN, "experiment", "wait", exp._id, "--json"], stdout=subprocess.PIPE, text=True
    )
    (said,) = json.loads(waited.stdout)[exp._id].values()
    assert (waited.returncode, said["status"]) == (1, "UNKNOWN")
    assert "is gone, and how the job ended is not known" in said["message"]
    cluster.cancel(app_id)
    subprocess.run([*NEMORUN, "experiment", "rm", exp._id, "--yes"], check=True)
    assert cluster.listed() == {}


def test_state_and_logs_outlive_the_cluster(cluster: SkypilotCluster) -> None:
    app_id = cluster.schedule("echo kept; exit 4")
    cluster.wait(app_id)
    sky("down", "-y", os.environ["NEMO_RUN_TEST_SKYPILOT_CLUSTER"])
    seen = cluster.in_new_process().call("seen", app_id)
    assert seen == {"state": "FAILED", "exit_code": 4, "lines": ["kept\n"], "listed": [app_id]}


@pytest.fixture
def drained() -> Iterator[None]:
    """No node takes jobs, so that no cluster comes up."""
    nodes = ["scontrol", "update", "nodename=ALL"]
    subprocess.run([*nodes, "state=drain", "reason=full"], check=True)
    yield
    subprocess.run([*nodes, "state=resume"], check=True)


@pytest.mark.usefixtures("drained")
def test_a_job_whose_launch_was_lost_with_the_api_server_is_known_and_can_be_cancelled(
    cluster: SkypilotCluster,
) -> None:
    app_id = cluster.schedule("true", cluster_name=None, cpus=1, memory=1)
    name = _live_launch(cluster)
    sky("api", "stop")
    deadline = patience.deadline(300)
    status = cluster.status(app_id)
    # For a few seconds SkyPilot's client believes that the server is there.
    while status is not None and "cannot be reached" in status.message:
        assert time.monotonic() < deadline
        time.sleep(1)
        status = cluster.status(app_id)
    assert status is not None
    assert status.state is AppState.UNKNOWN
    assert "not made to the end" in status.message
    # A cluster that is in trouble does not say what runs on it.
    beside = cluster.plan("true", name="beside", cluster_name=None)
    record = cluster.scheduler._new_record(beside, beside.request.app_id)
    running = replace(record, state="RUNNING", ref=ref_of("request", record.app_id, ""))
    cluster.scheduler._put(running)
    with pytest.raises(BackendError, match="still UNKNOWN"):
        cluster.cancel(app_id)
    assert client.cluster_status(name) == "INIT"
    cluster.scheduler._store.delete(record.app_id, "skypilot")
    cluster.cancel(app_id)
    assert _left_of(name) == []
    status = cluster.status(app_id)
    assert status is not None
    assert "is gone" in status.message


GIVE_UP = """\
import sys
from sky.server.uvicorn import Server
Server.interrupt_request_for_retry(None, sys.argv[1], should_retry=False)
"""
"""What an API server that is stopped does about a request that does not end in time."""


@pytest.mark.usefixtures("drained")
def test_a_launch_that_the_api_server_gave_up_is_not_called_cancelled(
    cluster: SkypilotCluster,
) -> None:
    app_id = cluster.schedule("true", cluster_name=None, cpus=1, memory=1)
    name = _live_launch(cluster)
    (request,) = launches.live_launches(name)
    subprocess.run([sys.executable, "-c", GIVE_UP, request.id], check=True)
    status = cluster.status(app_id)
    assert status is not None
    assert status.state is AppState.FAILED
    assert "API server was stopped" in status.message
    assert cluster.scheduler.unused_clusters().keys() == {name}
    sky("down", "-y", name)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, drained: None, tmp_path: Path) -> None:
    """No node takes jobs, and clients say that SkyPilot is not to wait for one."""
    config = tmp_path / "sky.yaml"
    config.write_text("slurm: {provision_timeout: 2}\n")
    monkeypatch.setenv("SKYPILOT_PROJECT_CONFIG", str(config))


@pytest.mark.usefixtures("full")
def test_a_job_that_waits_until_there_are_machines_can_be_cancelled(
    cluster: SkypilotCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = cluster.in_new_process().schedule(
        "true", cluster_name=None, retry_until_up=True, cpus=1, memory=1
    )
    name, _, _ = split_app_id(app_id)
    deadline = patience.deadline(300)
    while "WAITING" not in [request.status for request in launches.live_launches(name)]:
        assert time.monotonic() < deadline, cluster.status(app_id)
        time.sleep(1)
    status = cluster.status(app_id)
    assert status is not None
    assert status.state is AppState.PENDING
    assert "retrying" in status.message
    # Also by a server that is so busy that SkyPilot's client does not wait for its answer.
    with late_answers(b"POST /api/cancel") as address, monkeypatch.context() as there:
        there.setenv("SKYPILOT_API_SERVER_ENDPOINT", address)
        cluster.in_new_process().cancel(app_id)
    status = cluster.status(app_id)
    assert status is not None
    assert status.state is AppState.CANCELLED
    assert launches.live_launches(name) == []
    assert client.cluster_status(name) is None
    assert _left_of(name) == []


def _left_of(cluster: str) -> list[str]:
    """Return the jobs of Slurm that make up a cluster."""
    queue = subprocess.run(["squeue", "-h", "-o", "%j"], check=True, capture_output=True, text=True)
    return [job for job in queue.stdout.split() if job.startswith(cluster)]


MANAGED = """\
import pathlib, sys
import nemo_run as run
from tests.contract.backends import SkypilotJobs
executor = SkypilotJobs(pathlib.Path(sys.argv[1])).executor()
with run.Experiment("own", executor=executor) as exp:
    exp.add(run.Script(inline="echo found; exit 3"), name="job")
    exp.run()
"""


def test_a_managed_job_is_found_whose_launcher_was_killed_while_its_cluster_was_made(
    tmp_path: Path,
) -> None:
    cluster = SkypilotJobs(tmp_path)
    launcher = subprocess.Popen([sys.executable, "-c", MANAGED, str(tmp_path)], cwd=ROOT)
    try:
        deadline = patience.deadline(120)
        while [job.status for job in client.managed_jobs()[:1]] != ["STARTING"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        launcher.kill()
        launcher.wait()
    (app_id,) = cluster.listed()
    seen = cluster.in_new_process().call("seen", app_id)
    assert seen == {"state": "FAILED", "exit_code": 3, "lines": ["found\n"], "listed": [app_id]}


def test_a_managed_job_whose_cluster_is_lost_is_started_again(tmp_path: Path) -> None:
    jobs = SkypilotJobs(tmp_path)
    again = jobs.scratch / "again"
    app_id = jobs.schedule(
        f"echo up; test -e {again} || {{ touch {again}; sleep 600; }}; echo done"
    )
    jobs.wait_for_line(app_id, "up\n")
    (job,) = [job for job in client.managed_jobs() if job.status == "RUNNING"]
    (lost,) = _left_of(job.name[:15])  # SkyPilot cuts names
    subprocess.run(["scancel", "--name", lost], check=True)
    end = jobs.wait(app_id)
    assert (end.state, end.restarts) == (AppState.SUCCEEDED, 1)
    assert jobs.lines(app_id) == ["up\n", "done\n"]


LAUNCHER = """\
import pathlib, sys
import nemo_run as run
from tests.contract.backends import SkypilotCluster
executor = SkypilotCluster(pathlib.Path(sys.argv[1])).executor(
    cluster_name=None, cpus=1, memory=1, autodown=True, idle_minutes_to_autostop=30
)
with run.Experiment("own", executor=executor) as exp:
    exp.add(run.Script(inline="echo found"), name="job")
    exp.run()
"""


def test_a_job_is_found_whose_launcher_was_killed_while_its_cluster_was_made(
    cluster: SkypilotCluster, tmp_path: Path
) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path)], cwd=ROOT)
    try:
        name = _live_launch(cluster)
    finally:
        launcher.kill()
        launcher.wait()
    (app_id,) = cluster.listed()
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["found\n"]

    import sky

    (made,) = sky.get(sky.status(cluster_names=[name]))
    assert (made["autostop"], made["to_down"]) == (30, True)

    # Nothing else runs on the cluster that was made for the experiment, and it costs money.
    assert cluster.scheduler.unused_clusters() == {name: "UP"}
    assert _unused() == {f"SkyPilot cluster {name} (UP)": f"sky down {name}"}
    experiment = app_id.partition("___")[0]
    executor = cluster.executor(cluster_name=None)
    executor.assign(experiment, str(tmp_path / "own"), "next", "next")
    executor.create_job_dir()
    app = cluster.app("echo up; sleep 600", executor=executor)
    planned = cluster.scheduler.submit_dryrun(app, executor)
    # A launcher that dies before it asks for anything leaves this.
    cluster.scheduler._put(cluster.scheduler._new_record(planned, planned.request.app_id))
    assert cluster.scheduler.unused_clusters() == {name: "UP"}
    another = cluster.scheduler.schedule(planned)
    cluster.wait_for_line(another, "up\n")
    assert cluster.scheduler.unused_clusters() == {}
    remove = [*NEMORUN, "experiment", "rm", experiment, "--remote", "--yes"]
    refused = subprocess.run(remove, stderr=subprocess.PIPE, text=True)
    assert refused.returncode != 0
    assert f"Cluster {name} is left up" in " ".join(refused.stderr.split())
    cluster.cancel(another)
    status = cluster.status(another)
    assert status is not None
    assert status.state is AppState.CANCELLED
    assert run.SkypilotExecutor.status(another) == (None, None)
    assert _unused() == {}
    assert cluster.lines(another)[0] == "up\n"  # its shell may say that it was killed


def _unused() -> dict[str, str]:
    """Return what ``nemorun experiment gc`` says is not used."""
    command = [*NEMORUN, "experiment", "gc", "--json"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    unused: dict[str, str] = json.loads(said)["unused"]
    return unused


def _live_launch(cluster: SkypilotCluster) -> str:
    """Wait until a launch is going on, and return the name of its cluster."""
    deadline = patience.deadline(120)
    while time.monotonic() < deadline:
        for app_id in cluster.listed():
            name, _, _ = split_app_id(app_id)
            if launches.live_launches(name) and client.cluster_status(name) == "INIT":
                return name
        time.sleep(0.2)
    raise TimeoutError("nothing was launched")
