"""What is set on an executor after it was made is there again wherever the executor is read."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.experiments import experiment, script

import nemo_run as run
from nemo_run._config.fiddle import fdl, fiddle_json
from nemo_run._experiments.store.loading import load_job
from nemo_run.core.execution.base import Executor
from nemo_run.core.serialization._envelope import unseal
from nemo_run.core.serialization.build import build_text
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.run.job import Job
from nemo_run.run.plugin import ExperimentPlugin

GOLDEN = Path(__file__).parent / "golden" / "jobs_without_set_later.json"

EXECUTORS: dict[str, Executor] = {
    "local": run.LocalExecutor(),
    "slurm": run.SlurmExecutor(
        account="a", tunnel=run.SSHTunnel(host="h", user="u", job_dir="/jobs")
    ),
    "docker": run.DockerExecutor(container_image="i"),
    "lepton": run.LeptonExecutor(
        container_image="i",
        nemo_run_dir="/v/n",
        resource_shape="s",
        mounts=[{"path": "/", "mount_path": "/v"}],
    ),
    "dgx_cloud": run.DGXCloudExecutor(
        base_url="https://h/api/v1",
        kube_apiserver_url="https://k",
        client_id="c",
        client_secret="env:S",
        project_name="p",
        container_image="i",
        pvc_nemo_run_dir="/v/n",
        pvcs=[{"name": "v", "path": "/v", "existingPvc": True, "claimName": "v"}],
    ),
    "skypilot": run.SkypilotExecutor(),
    "skypilot_jobs": run.SkypilotJobsExecutor(),
    "kubeflow": run.KubeflowExecutor(image="i"),
    "ray": run.RayExecutor(address="http://127.0.0.1:8265"),
}


def assigned(name: str, directory: Path) -> Executor:
    executor = EXECUTORS[name].clone()
    executor.assign("net_17", str(directory), "train", "train")
    return executor


def read_again(executor: Executor) -> Executor:
    """Return the executor of a stored job."""
    return load_job(*Job(id="train", task=script("true"), executor=executor).serialize()).executor


def added(executor: Executor) -> Executor:
    """Return the executor of a job that was added to an experiment."""
    with experiment() as exp:
        exp.add(script("true"), executor=executor, name="train")
    return exp.jobs[0].executor


def public(executor: Executor) -> dict[str, Any]:
    return {name: value for name, value in vars(executor).items() if not name.startswith("_")}


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_attribute_is_as_it_was_when_it_was_stored(name: str, nemorun_home: Path) -> None:
    executor = assigned(name, nemorun_home / "experiments" / "net" / "net_17")
    if hasattr(executor, "stderr_to_stdout"):
        executor.stderr_to_stdout = False
    executor.note_of_a_plugin = {"seed": 7}  # type: ignore[attr-defined]
    assert public(read_again(executor)) == public(executor)


@pytest.mark.parametrize("name", json.loads(GOLDEN.read_text()))
def test_jobs_of_the_release_before_know_their_name_and_place(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMORUN_HOME", "/home/me/.nemo_run")
    directory = Path("/home/me/.nemo_run/experiments/net/net_17")
    executor = load_job(*json.loads(GOLDEN.read_text())[name]).executor
    expected = public(assigned(name, directory))
    assert public(executor) == expected


@pytest.mark.parametrize("id", ["net_17", "plain", "team/net_17"])
def test_a_job_of_the_release_before_stays_where_it_is_on_the_cluster(id: str) -> None:
    executor = EXECUTORS["slurm"].clone()
    executor.assign(id, f"/home/experiments/t/{id}", "train", "train")
    # A config has nothing that its constructor does not take: what releases before wrote.
    stored: run.Config[Job] = run.Config(Job, id="train", task=None, executor=executor.to_config())
    write = ZlibJSONSerializer().serialize
    found = load_job(write(stored), write(script("true"))).executor
    assert isinstance(found, run.SlurmExecutor)
    assert found.remote_dir == executor.remote_dir
    assert (found.job_name, found.job_dir) == ("train", executor.job_dir)


def test_fiddle_reads_past_it_as_0_12_does() -> None:
    executor = EXECUTORS["slurm"].clone()
    assert isinstance(executor, run.SlurmExecutor)
    executor.stderr_to_stdout = False
    document = unseal(ZlibJSONSerializer().serialize(executor))
    assert "set_later" in json.dumps(document)
    config = fiddle_json.load_json(json.dumps(document))
    assert config == executor.to_config()


def test_nothing_but_an_executor_is_stored_with_more_than_its_config() -> None:
    text = ZlibJSONSerializer().serialize(run.Partial(run.LocalTunnel, job_dir="/x"))
    assert "set_later" not in json.dumps(unseal(text))


def test_what_was_read_is_built_in_every_way() -> None:
    executor = EXECUTORS["slurm"].clone()
    assert isinstance(executor, run.SlurmExecutor)
    executor.heterogeneous, executor.het_group_indices = True, [2]
    executor = run.SlurmExecutor.merge([executor], num_tasks=1)
    executor.stderr_to_stdout = False
    text = ZlibJSONSerializer().serialize(executor)
    config = ZlibJSONSerializer().deserialize(text)
    for made in (fdl.build(config), fdl.build(config.clone()), build_text(text)):
        assert made == executor
        assert made.resource_group[0].het_group_index == 2


@dataclass(kw_only=True)
class Own(run.LocalExecutor):
    """An executor of somebody else's, with fields that its constructor does not take."""

    size: int = 1
    doubled: int = field(init=False, default=0)
    lock: Any = field(init=False, default=None, compare=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.size
        self.client = threading.Lock()


class TestOwnExecutors:
    def test_keep_what_was_set(self) -> None:
        executor = Own(size=4)
        executor.doubled = 5
        for other in (read_again(executor), added(executor)):
            assert isinstance(other, Own)
            assert other.doubled == 5

    def test_make_what_cannot_be_kept_by_themselves(self) -> None:
        for other in (read_again(Own()), added(Own())):
            assert isinstance(other, Own)
            assert other.client.acquire(blocking=False)

    def test_are_told_of_a_field_that_cannot_be_kept(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        executor = Own()
        executor.lock = threading.Lock()
        with caplog.at_level(logging.WARNING):
            assert getattr(read_again(executor), "lock", 1) is None
        assert "Own.lock is not kept" in caplog.text


@dataclass(kw_only=True)
class Apart(ExperimentPlugin):
    """Keeps the two outputs of a job apart, and calls it something else."""

    def setup(self, task: Any, executor: Executor) -> None:
        assert isinstance(executor, run.SlurmExecutor)
        executor.stderr_to_stdout = False
        executor.job_name = "renamed"


def test_what_a_plugin_sets_is_there_when_the_experiment_is_read_or_run_again() -> None:
    slurm = EXECUTORS["slurm"].clone()
    assert isinstance(slurm, run.SlurmExecutor)
    slurm.packager = run.Packager()
    with experiment("net", executor=slurm) as exp:
        exp.add(script("true"), name="train", plugins=[Apart()])
        exp.dryrun(log=False, delete_exp_dir=False)
    stored = run.Experiment.from_id(exp._id)
    found = stored.jobs[0].executor
    assert isinstance(found, run.SlurmExecutor)
    assert (found.stderr_to_stdout, found.job_name) == (False, "renamed")
    again = stored.reset().jobs[0].executor
    assert isinstance(again, run.SlurmExecutor)
    assert (again.stderr_to_stdout, again.job_name) == (False, "train")
    assert again.experiment_dir == stored._exp_dir


def test_the_executor_of_an_experiment_is_kept_whole() -> None:
    slurm = EXECUTORS["slurm"].clone()
    assert isinstance(slurm, run.SlurmExecutor)
    slurm.stderr_to_stdout = False
    with experiment("net", executor=slurm) as exp:
        exp.add(script("true"), executor=run.LocalExecutor(), name="here")
        exp.run()
    stored = run.Experiment.from_id(exp._id).executor
    assert isinstance(stored, run.SlurmExecutor)
    assert stored.stderr_to_stdout is False


LAUNCH = """\
from pathlib import Path
import nemo_run as run
from tests.unit.test_code_travels import Elsewhere
executor = Elsewhere(packager=run.PatternPackager(
    include_pattern="common/*", relative_path=str(Path.cwd())))
with run.Experiment("pair", executor=executor, clean_mode=True) as exp:
    lost = Path(exp._exp_dir, "second", {lost!r})
    first = exp.add(run.Script(inline=f"rm -r '{{lost}}'"), name="first")
    exp.add(run.Script(inline="touch ran"), name="second", dependencies=[first])
    exp.run(detach={detach})
print(exp._id)
"""


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("lost", ["second.tar.gz", "code"])
def test_a_job_whose_code_is_gone_is_not_submitted(tmp_path: Path, detach: bool, lost: str) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "a.sh").write_text("true\n")
    (tmp_path / "launch.py").write_text(LAUNCH.format(lost=lost, detach=detach))
    done = subprocess.run(
        [sys.executable, "launch.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=patience.seconds(100),
        check=False,
    )
    exp = run.Experiment.from_title("pair")
    exp.wait()
    status = exp.status(return_dict=True)
    assert status is not None, done.stderr
    assert status["first"]["status"].name == "SUCCEEDED"
    assert status["second"]["status"].name == "FAILED"
    assert "could not be launched: The code of job 'second' is gone" in status["second"]["message"]
    assert lost in status["second"]["message"]
    assert not (tmp_path / "ran").exists()
