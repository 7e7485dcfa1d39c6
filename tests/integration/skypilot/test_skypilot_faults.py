"""What SkyPilot and its clusters may do without a job being lost.

These tests stop things that others share, so they are run alone and in this order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.contract.backends import ROOT, SkypilotCluster
from torchx.specs import AppState

import nemo_run as run
from nemo_run._clients import skypilot as client
from nemo_run.core.execution.skypilot import split_app_id

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skypilot,
    pytest.mark.skypilot_alone,
    pytest.mark.timeout(1200),
    # SkyPilot starts an API server by itself, and does not wait for that process.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def cluster(skypilot_bed: Path, tmp_path: Path) -> SkypilotCluster:
    # One that a test before made start has ended with that test.
    environment = {name: os.environ[name] for name in os.environ if name != "NEMORUN_HOME"}
    subprocess.run(["sky", "api", "start"], check=True, capture_output=True, env=environment)
    return SkypilotCluster(tmp_path)


def sky(*arguments: str) -> None:
    subprocess.run(["sky", *arguments], check=True, capture_output=True)


def test_a_job_is_found_after_the_api_server_was_restarted(cluster: SkypilotCluster) -> None:
    app_id = cluster.schedule("echo up; sleep 20; echo done; exit 3")
    cluster.wait_for_line(app_id, "up\n")
    sky("api", "stop")
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 3)
    assert cluster.lines(app_id) == ["up\n", "done\n"]


def test_state_and_logs_outlive_the_cluster(cluster: SkypilotCluster) -> None:
    app_id = cluster.schedule("echo kept; exit 4")
    cluster.wait(app_id)
    sky("down", "-y", os.environ["NEMO_RUN_TEST_SKYPILOT_CLUSTER"])
    seen = cluster.in_new_process().call("seen", app_id)
    assert seen == {"state": "FAILED", "exit_code": 4, "lines": ["kept\n"], "listed": [app_id]}


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
    another = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
    cluster.wait_for_line(another, "up\n")
    assert cluster.scheduler.unused_clusters() == {}
    cluster.cancel(another)
    status = cluster.status(another)
    assert status is not None
    assert status.state is AppState.CANCELLED
    assert run.SkypilotExecutor.status(another) == (None, None)
    assert _unused() == {}
    assert cluster.lines(another) == ["up\n"]


def _unused() -> dict[str, str]:
    """Return what ``nemorun experiment gc`` says is not used."""
    command = [sys.executable, "-m", "nemo_run", "experiment", "gc", "--json"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    unused: dict[str, str] = json.loads(said)["unused"]
    return unused


def _live_launch(cluster: SkypilotCluster) -> str:
    """Wait until a launch is going on, and return the name of its cluster."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for app_id in cluster.listed():
            name, _, _ = split_app_id(app_id)
            if client.live_launches(name) and client.cluster_status(name) == "INIT":
                return name
        time.sleep(0.2)
    raise TimeoutError("nothing was launched")
