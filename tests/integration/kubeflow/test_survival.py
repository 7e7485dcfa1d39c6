"""Whoever is killed: every job is found, and none is twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests import patience
from tests.contract.backends import ROOT, KubeflowCluster
from tests.contract.experiments import states
from tests.emulators.faults import Fault
from tests.emulators.kubernetes import TOKEN, KubernetesEmulator
from tests.integration.kubeflow.waiting import until
from torchx.specs import AppState

import nemo_run as run
from nemo_run.exceptions import BackendUnavailableError, SubmitError

pytestmark = pytest.mark.slow

LAUNCH = """\
import sys
from pathlib import Path
import nemo_run as run
from tests.contract.backends import KubeflowCluster

cluster = KubeflowCluster(Path(sys.argv[1]))
title, detach = sys.argv[2], len(sys.argv) > 3
with run.Experiment(title, executor=cluster.executor(), clean_mode=True, log_level="ERROR") as exp:
    for number in range(2):
        task = run.Script(inline=f"echo {exp._id} {number}; exit {number}")
        exp.add(task, name=f"job-{number}")
    exp.run(sequential=False, detach=detach)
print(exp._id)
"""


def launch(tmp_path: Path, title: str, *more: str) -> subprocess.Popen[str]:
    script = tmp_path / "launch.py"
    script.write_text(LAUNCH)
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), title, *more],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_after_creating(emulator: KubernetesEmulator, tmp_path: Path, title: str) -> None:
    """Have a launcher create its jobs, and not live to hear the answers."""
    emulator.faults.add(
        Fault(method="POST", path=r"/trainjobs$", handled=True, delay_s=60, status=503)
    )
    process = launch(tmp_path, title)
    until(lambda: len(emulator.created) == 2)
    process.kill()
    process.communicate()
    emulator.faults.clear()


def test_a_job_whose_launcher_was_killed_after_creating_it_is_found_and_not_repeated(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    kill_after_creating(emulator, tmp_path, "killed")
    exp = run.Experiment.from_title("killed")
    exp.resume()
    assert states(exp) == {"job-0": "SUCCEEDED", "job-1": "FAILED"}
    assert len(emulator.created) == 2
    said = sorted(
        "".join(cluster.scheduler.log_iter(app_id, app_id.split("___")[1]))
        for app_id in cluster.listed()
    )
    assert said == [f"{exp._id} 0\n", f"{exp._id} 1\n"]
    owners = [secret["metadata"].get("ownerReferences") for secret in emulator.secrets.values()]
    assert len(owners) == 2
    assert all(owners), "they go with their jobs"


def test_credentials_that_have_expired_say_nothing_about_a_job_that_may_be_there(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    kill_after_creating(emulator, tmp_path, "expired")
    emulator.token = "renewed"
    asked = len(emulator.server.seen)
    exp = run.Experiment.from_title("expired")
    thread = threading.Thread(target=exp.resume)
    thread.start()
    # Both jobs are asked about twice each round, the second time with credentials read again.
    until(lambda: len(emulator.server.seen) >= asked + 8 or not thread.is_alive())
    emulator.token = TOKEN
    thread.join()
    assert states(exp) == {"job-0": "SUCCEEDED", "job-1": "FAILED"}
    assert len(emulator.created) == 2


def test_a_detached_experiment_outlives_its_launcher(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    launch(tmp_path, "detached", "detach").communicate(timeout=patience.seconds(100))
    exp = run.Experiment.from_title("detached")
    exp.wait()
    assert states(exp) == {"job-0": "SUCCEEDED", "job-1": "FAILED"}
    assert len(emulator.created) == 2


def forget_the_answer(cluster: KubeflowCluster, app_id: str) -> None:
    """Make the record what it is when a launcher dies before the server's answer."""
    path = cluster.scheduler._store.path(app_id, "kubeflow")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "ref": None, "state": "UNSUBMITTED"}))


def test_a_job_that_was_created_but_not_recorded_can_be_seen_and_cancelled(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    app_id = cluster.schedule("echo up; sleep 60")
    forget_the_answer(cluster, app_id)
    status = cluster.status(app_id)
    assert status is not None
    assert status.state in (AppState.PENDING, AppState.SUBMITTED, AppState.RUNNING)
    forget_the_answer(cluster, app_id)
    cluster.cancel(app_id)
    assert emulator.trainjobs == {}
    assert cluster.wait(app_id).state is AppState.CANCELLED


def switch(kubeconfig: Path, current: str, **servers: str) -> None:
    """Write a kubeconfig with a context for each server."""
    config = {
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": servers[name]}} for name in servers],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}} for name in servers],
    }
    kubeconfig.write_text(json.dumps(config))


def test_a_job_that_may_be_in_one_cluster_is_not_submitted_to_another(
    cluster: KubeflowCluster,
    emulator: KubernetesEmulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = KubernetesEmulator(tmp_path / "other")
    servers = {"first": emulator.url, "other": other.url}
    switch(emulator.kubeconfig, "first", **servers)
    planned = cluster.plan("echo once")
    app_id = cluster.scheduler.schedule(planned)
    forget_the_answer(cluster, app_id)
    switch(emulator.kubeconfig, "other", **servers)
    now = time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
        with emulator.unreachable():
            for ask in (cluster.scheduler.submitted, cluster.scheduler.schedule):
                with pytest.raises(BackendUnavailableError):
                    ask(planned)
        switch(emulator.kubeconfig, "other", other=other.url)
        patch.setattr(time, "monotonic", lambda: now() * 3600)  # the kubeconfig is read again
        with pytest.raises(BackendUnavailableError, match="'first'"):
            cluster.scheduler.schedule(planned)
    switch(emulator.kubeconfig, "other", **servers)
    assert cluster.scheduler.submitted(planned) == app_id
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert (len(emulator.created), other.created) == (1, [])
    other.close()


def test_a_plan_that_was_submitted_is_not_submitted_again(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    planned = cluster.plan("echo once")
    first = cluster.scheduler.schedule(planned)
    assert cluster.scheduler.schedule(planned) == first
    cluster.wait(first)
    assert len(emulator.created) == 1


def test_a_job_that_is_cancelled_while_its_files_travel_is_never_created(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    emulator.faults.add(Fault(path="/exec$", delay_s=60))
    planned = cluster.plan("echo ran")
    failures: list[SubmitError] = []

    def schedule() -> None:
        try:
            cluster.scheduler.schedule(planned)
        except SubmitError as err:
            failures.append(err)

    thread = threading.Thread(target=schedule)
    thread.start()
    until(lambda: emulator.server.requests("GET", ".*/exec"))
    (app_id,) = cluster.listed()
    cluster.cancel(app_id)
    emulator.faults.clear()
    thread.join(patience.seconds(60))
    assert [str(err) for err in failures] == [
        "The job was cancelled before its TrainJob was created."
    ]
    assert (emulator.created, emulator.secrets) == ([], {})
    assert cluster.wait(app_id).state is AppState.CANCELLED
