"""Code gets to the job, and what the job wrote comes back."""

from __future__ import annotations

import getpass
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from getpass import getuser
from pathlib import Path

import pytest
from tests.contract.backends import KubeflowCluster
from tests.contract.experiments import states
from tests.emulators.faults import Fault
from tests.emulators.kubernetes import KubernetesEmulator

import nemo_run as run
from nemo_run._backends.kubeflow.volume import MoverError
from nemo_run.exceptions import SubmitError

pytestmark = pytest.mark.slow


def packager(directory: Path) -> run.PatternPackager:
    directory.mkdir()
    (directory / "mod.py").write_text("print('the code came along')\n")
    return run.PatternPackager(include_pattern="*.py", relative_path=str(directory))


def launched(executor: object, script: run.Script) -> run.Experiment:
    with run.Experiment("files", executor=executor, clean_mode=True, check=True) as exp:  # type: ignore[arg-type]
        exp.add(script, name="job")
        exp.run()
    return exp


@pytest.mark.parametrize("kind", ["cluster", "bare"])
def test_the_code_that_the_packager_takes_is_where_the_job_starts(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: KubeflowCluster = request.getfixturevalue(kind)
    source = tmp_path / "source"
    executor = place.executor(packager=packager(source))
    monkeypatch.chdir(source)
    launched(executor, run.Script("mod.py", entrypoint="python3"))
    (app_id,) = place.listed()
    assert place.lines(app_id) == ["the code came along\n"]


@pytest.mark.parametrize("settings", [{}, {"workdir_pvc_path": "/nemo_run"}, {"workdir_pvc": None}])
def test_a_function_finds_its_configuration(
    cluster: KubeflowCluster, settings: dict[str, str | None]
) -> None:
    executor = cluster.executor(**settings)
    with run.Experiment("function", executor=executor, clean_mode=True, check=True) as exp:
        exp.add(run.Partial(logging.error, msg="called"), name="job")
        exp.run()
    (app_id,) = cluster.listed()
    assert "ERROR:root:called\n" in cluster.lines(app_id)


def test_the_files_of_a_job_are_below_user_experiment_and_job(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    exp = launched(cluster.executor(), run.Script(inline="ls /nemo_run; pwd; echo out > result"))
    user = getpass.getuser()
    place = emulator.volume("work") / user / exp._id / "job" / "code"
    assert (place / "scripts" / "job.sh").exists()
    assert (place / "code" / "result").read_text() == "out\n"
    (app_id,) = cluster.listed()
    assert cluster.lines(app_id)[-1] == f"/workspace/{user}/{exp._id}/job/code/code\n"
    assert not list(place.glob("launch.sh")), "it holds the environment"


def test_results_are_pulled_by_an_executor_that_was_stored(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    exp = launched(cluster.executor(), run.Script(inline="echo out > result"))
    (app_id,) = cluster.listed()
    stored = run.Experiment.from_id(exp._id).jobs[0].executor
    assert isinstance(stored, run.KubeflowExecutor)
    assert stored.job_name == "job"
    stored.pull_results(app_id)
    assert (Path(stored.job_dir) / "code" / "result").read_text() == "out\n"
    fresh = cluster.executor()
    assert isinstance(fresh, run.KubeflowExecutor)
    fresh.pull_results(app_id, str(tmp_path / "there"))
    assert (tmp_path / "there" / "code" / "result").read_text() == "out\n"
    assert not [pod for pod in emulator.movers if not pod.deleted_at]


def test_without_a_volume_there_is_nothing_to_pull(
    bare: KubeflowCluster, caplog: pytest.LogCaptureFixture
) -> None:
    executor = bare.executor()
    assert isinstance(executor, run.KubeflowExecutor)
    executor.pull_results("any")
    assert "nothing to pull" in caplog.text


def test_where_to_put_results_must_be_known(cluster: KubeflowCluster) -> None:
    executor = cluster.executor()
    assert isinstance(executor, run.KubeflowExecutor)
    with pytest.raises(RuntimeError, match="dest_dir"):
        executor.pull_results("never-submitted")


def test_a_local_directory_goes_along_and_its_path_becomes_that_of_the_job(
    cluster: KubeflowCluster, tmp_path: Path
) -> None:
    local = tmp_path / "mine"
    local.mkdir()
    (local / "data.txt").write_text("from here\n")
    executor = cluster.executor(workdir_local_path=str(local))
    launched(executor, run.Script(inline=f"cat {local}/data.txt"))
    (app_id,) = cluster.listed()
    assert cluster.lines(app_id) == ["from here\n"]


def test_more_than_fits_without_a_volume_is_refused(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    executor = bare.assigned("job")
    (Path(executor.job_dir) / "big").write_bytes(os.urandom(1_200_000))
    app = bare.app(["true"], executor=executor)
    with pytest.raises(SubmitError, match="Set workdir_pvc"):
        bare.scheduler.schedule(bare.scheduler.submit_dryrun(app, executor))
    assert (emulator.created, emulator.secrets) == ([], {})


def test_directories_are_copied_both_ways_by_several_at_once(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    executor = cluster.executor()
    assert isinstance(executor, run.KubeflowExecutor)
    for number in range(3):
        (tmp_path / f"in-{number}" / "deep").mkdir(parents=True)
        (tmp_path / f"in-{number}" / "deep" / "a b").write_bytes(os.urandom(300_000))

    def there_and_back(number: int) -> bool:
        source, back = tmp_path / f"in-{number}", tmp_path / f"out-{number}"
        executor.copy_to_workspace(str(source), f"/workspace/x/{number}")
        executor.copy_from_workspace(f"/workspace/x/{number}", str(back))
        return (back / "deep" / "a b").read_bytes() == (source / "deep" / "a b").read_bytes()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(there_and_back, range(3))) == [True] * 3
    assert len({pod.name for pod in emulator.movers}) >= 6
    assert all(pod.deleted_at for pod in emulator.movers)


def test_a_transfer_that_is_cut_is_begun_again(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    emulator.faults.add(Fault(path="/exec$", times=1, drop=True))
    app_id = cluster.schedule("echo hi")
    cluster.wait(app_id)
    assert cluster.lines(app_id) == ["hi\n"]
    assert len(emulator.created) == 1


def test_a_mover_that_fails_says_what_it_said(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    (emulator.volume("work") / getuser()).write_text("a file is in the way")
    with pytest.raises(SubmitError, match="was not submitted to Kubernetes"):
        cluster.schedule("true")
    assert emulator.created == []
    assert all(pod.deleted_at for pod in emulator.movers)


def test_a_mover_that_does_not_start_is_not_waited_for_for_ever(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic
    executor = cluster.executor()
    assert isinstance(executor, run.KubeflowExecutor)
    with emulator.held(), monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now() * 600)  # a second is ten minutes
        with pytest.raises(MoverError, match="instead of Running"):
            executor.copy_to_workspace(str(cluster.scratch), "/workspace/x")
    assert issubclass(MoverError, RuntimeError)


def test_experiments_of_a_group_each_have_their_files(cluster: KubeflowCluster) -> None:
    with run.Experiment("pair", executor=cluster.executor(), clean_mode=True) as exp:
        exp.add(
            [run.Script(inline="echo left"), run.Script(inline="echo right")],
            name="both",
        )
        exp.run()
    assert set(states(exp).values()) == {"SUCCEEDED"}
    said = sorted(
        "".join(cluster.scheduler.log_iter(app_id, app_id.split("___")[1]))
        for app_id in cluster.listed()
    )
    assert said == ["left\n", "right\n"]
