"""Whoever is killed, and however many start at once: every job is found, and none is twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import fiddle as fdl
import pytest
from tests import patience
from tests.contract.backends import ROOT, DGXCloudCluster
from tests.contract.experiments import states
from tests.emulators.faults import Fault
from tests.emulators.runai import RunaiEmulator
from torchx.specs import AppState

import nemo_run as run
from nemo_run.exceptions import ConfigError, ConnectionLostError, SubmitError

pytestmark = pytest.mark.slow

TRAININGS = r"/workloads/trainings$"

LAUNCH = """\
import sys
from pathlib import Path
import nemo_run as run
from tests.contract.backends import DGXCloudCluster

cluster = DGXCloudCluster(Path(sys.argv[1]))
title, detach = sys.argv[2], len(sys.argv) > 3
with run.Experiment(title, executor=cluster.executor(), clean_mode=True, log_level="ERROR") as exp:
    for number in range(3):
        task = run.Script(inline=f"echo {exp._id} {number} $GROUP_RANK; exit {number}")
        exp.add(task, name=f"job-{number}")
    exp.run(sequential=False, detach=detach)
print(exp._id)
"""


def launch(tmp_path: Path, title: str, *more: str) -> subprocess.Popen[str]:
    script = tmp_path / "launch.py"
    if not script.exists():
        script.write_text(LAUNCH)
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), title, *more],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def until(condition: object, timeout_s: float = 60) -> None:
    deadline = patience.deadline(timeout_s)
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.mark.timeout(280)
def test_two_experiments_that_eight_processes_launch_at_once_are_all_right(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, tmp_path: Path
) -> None:
    processes = [launch(tmp_path, title) for title in ("red", "blue") * 4]
    ids = [process.communicate(timeout=patience.seconds(240))[0].strip() for process in processes]
    assert len(set(ids)) == 8
    for id in ids:
        exp = run.Experiment.from_id(id)
        assert states(exp) == {"job-0": "SUCCEEDED", "job-1": "FAILED", "job-2": "FAILED"}
    assert len(emulator.jobs()) == 24
    listed = cluster.listed()
    assert len(listed) == 24
    said = sorted(
        "".join(cluster.scheduler.log_iter(app_id, app_id.split("___")[1])) for app_id in listed
    )
    assert said == sorted(f"{id} {number} 0\n" for id in ids for number in range(3))
    exit_codes = sorted(str(cluster.status(app_id).exit_code) for app_id in listed)  # type: ignore[union-attr]
    assert exit_codes == ["0"] * 8 + ["1"] * 8 + ["2"] * 8
    movers = [w for w in emulator.workloads.values() if w.kind == "workspaces"]
    assert len(movers) <= 2


class TestKilledLaunchers:
    def test_a_job_whose_launcher_was_killed_after_creating_it_is_found_and_not_repeated(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, tmp_path: Path
    ) -> None:
        # The job is created, but the answer takes longer than the launcher lives.
        emulator.faults.add(
            Fault(method="POST", path=TRAININGS, handled=True, delay_s=30, status=503)
        )
        process = launch(tmp_path, "killed")
        until(lambda: emulator.server.requests("POST", f".*{TRAININGS}"))
        process.kill()
        process.communicate()
        emulator.faults.clear()
        exp = run.Experiment.from_title("killed")
        exp.resume()
        assert states(exp) == {"job-0": "SUCCEEDED", "job-1": "FAILED", "job-2": "FAILED"}
        assert len(emulator.jobs()) == 3
        assert outcomes(cluster) == {
            0: f"{exp._id} 0 0\n",
            1: f"{exp._id} 1 0\n",
            2: f"{exp._id} 2 0\n",
        }

    def test_a_plan_that_was_submitted_is_not_submitted_again(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        planned = cluster.plan("echo once")
        first = cluster.scheduler.schedule(planned)
        assert cluster.scheduler.schedule(planned) == first
        cluster.wait(first)
        assert len(emulator.jobs()) == 1

    def test_a_job_that_was_created_but_not_recorded_can_be_seen_and_cancelled(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        planned = cluster.plan("echo up; sleep 60")
        app_id = cluster.scheduler.schedule(planned)
        forget_the_answer(cluster, app_id)
        status = cluster.status(app_id)
        assert status is not None
        assert status.state in (AppState.PENDING, AppState.SUBMITTED, AppState.RUNNING)
        forget_the_answer(cluster, app_id)
        cluster.cancel(app_id)
        (job,) = emulator.jobs()
        assert job.phase == "Stopped"
        assert cluster.wait(app_id).state is AppState.CANCELLED


def outcomes(cluster: DGXCloudCluster) -> dict[int | None, str]:
    """Return what each job said, by its exit code."""
    found = {}
    for app_id in cluster.listed():
        end = cluster.wait(app_id)
        found[end.exit_code] = "".join(cluster.lines(app_id))
    return found


def forget_the_answer(cluster: DGXCloudCluster, app_id: str) -> None:
    """Make the record what it is when a launcher dies before the server's answer."""
    store = cluster.scheduler._store
    path = store.path(app_id, "dgx_cloud")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "ref": None, "state": "UNSUBMITTED"}))


def test_a_job_of_which_nobody_could_say_that_it_was_created_is_found_later(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.wait(cluster.schedule("true", name="first"))  # leaves the mover running
    planned = cluster.plan("echo once")
    emulator.faults.add(Fault(method="POST", path=TRAININGS, handled=True, delay_s=100))

    def cut() -> None:
        until(lambda: len(emulator.jobs()) == 2, timeout_s=100 * 60)
        emulator.server.stop()

    thread = threading.Thread(target=cut)
    now = time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now() * 60)  # a second is a minute
        thread.start()
        with pytest.raises(ConnectionLostError, match="not known whether"):
            cluster.scheduler.schedule(planned)
        thread.join()
    emulator.faults.clear()
    emulator.server.start()
    app_id = cluster.scheduler.submitted(planned)
    assert app_id is not None
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.scheduler.schedule(planned) == app_id
    assert len(emulator.jobs()) == 2


def test_a_job_that_another_process_launches_finds_its_files(
    cluster: DGXCloudCluster, emulator: RunaiEmulator
) -> None:
    executor = cluster.executor(packager=run.Packager())
    with run.Experiment("later", executor=executor, clean_mode=True, log_level="ERROR") as exp:
        exp.add(run.Script(inline="echo first"), name="first")
        task = run.Script(inline="pwd; ls /nemo_run/scripts; exit 3")
        exp.add(task, name="second", dependencies=["first"])
        exp.run(detach=True)
    exp.wait()
    assert states(exp) == {"first": "SUCCEEDED", "second": "FAILED"}
    place = f"/workspace/nemo_run/experiments/later/{exp._id}/second"
    assert outcomes(cluster)[3] == f"{place}/code\nsecond.sh\n"


class TestStored:
    def test_an_executor_that_was_stored_knows_where_its_job_lives(
        self, cluster: DGXCloudCluster
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.DGXCloudExecutor)
        built = fdl.build(executor.to_config())
        assert built.place == executor.place == executor.pvc_job_dir

    def test_nothing_is_written_for_an_executor_without_a_job(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        executor = cluster.executor()
        assert isinstance(executor, run.DGXCloudExecutor)
        with pytest.raises(ConfigError, match="assign"):
            executor.launch("job", ["true"])
        with pytest.raises(ConfigError, match="assign"):
            executor.move_data("token", "28", "cluster")
        assert emulator.workloads == {}


class TestCancelledWhileLaunching:
    def test_a_job_that_is_cancelled_while_its_files_travel_is_never_created(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        emulator.faults.add(Fault(path="/exec$", delay_s=20))
        planned = cluster.plan("echo ran")
        failures: list[BaseException] = []

        def schedule() -> None:
            try:
                cluster.scheduler.schedule(planned)
            except SubmitError as err:
                failures.append(err)

        thread = threading.Thread(target=schedule)
        thread.start()
        until(lambda: emulator.server.requests("GET", ".*/exec"))
        (app_id,) = cluster.listed()
        assert cluster.listed() == {app_id: AppState.UNSUBMITTED}
        cluster.cancel(app_id)
        emulator.faults.clear()
        thread.join(patience.seconds(60))
        assert [str(err) for err in failures] == [
            "The job was cancelled before its workload was created."
        ]
        assert emulator.jobs() == []
        assert cluster.wait(app_id).state is AppState.CANCELLED


def test_a_detached_experiment_outlives_its_launcher(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, tmp_path: Path
) -> None:
    process = launch(tmp_path, "detached", "detach")
    process.communicate(timeout=patience.seconds(60))
    exp = run.Experiment.from_title("detached")
    exp.wait()
    assert states(exp) == {"job-0": "SUCCEEDED", "job-1": "FAILED", "job-2": "FAILED"}
    assert len(emulator.jobs()) == 3
    below = f"nemo_run/experiments/detached/{exp._id}/job-0/scripts/job-0.sh"
    assert list(tmp_path.glob(f"runai/**/{below}")), "its files are not where they belong"
