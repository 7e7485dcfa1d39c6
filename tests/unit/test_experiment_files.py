"""The directory of an experiment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import fiddle as fdl
import pytest
from tests.conftest import in_home
from tests.contract import tasks
from tests.contract.experiments import experiment, script
from tests.contract.plugins import SetVariable
from torchx.specs import AppState

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.run.experiment import Experiment
from nemo_run.run.job import Job, JobGroup


def unpacked(text: str) -> Any:
    return ZlibJSONSerializer().deserialize(text)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an experiment that has ended; for reading only."""
    home = tmp_path_factory.mktemp("original") / "home"
    executor = run.LocalExecutor(ntasks_per_node=2)
    with in_home(home), experiment("demo", executor=executor) as exp:
        one = exp.add(script("echo one"), name="one")
        exp.add(
            run.Partial(tasks.fit, net=run.Config(tasks.Net, width=4)),
            name="two",
            dependencies=[one],
            plugins=[SetVariable(name="X", value="1")],
        )
        exp.add([script("true"), script("true")], name="pair")
        exp.run()
    return Path(exp._exp_dir)


@pytest.fixture
def ran(original: Path, nemorun_home: Path) -> Path:
    """The same directory, its home in use."""
    run.config.set_nemorun_home(str(original.parents[2]))
    return original


@pytest.fixture
def copied(original: Path, nemorun_home: Path) -> Path:
    """A copy of it in this test's home, to be changed."""
    run.config.set_nemorun_home(str(nemorun_home))
    shutil.copytree(original.parents[2], nemorun_home)
    return nemorun_home / original.relative_to(original.parents[2])


def test_lies_below_the_home_by_title_and_id(ran: Path) -> None:
    assert ran.parent == Path(run.config.get_nemorun_home()) / "experiments" / "demo"


def test_a_task_stays_as_it_was_launched() -> None:
    with experiment("demo") as exp:
        task = run.Partial(tasks.fit, net=run.Config(tasks.Net, width=4))
        exp.add(task, name="one")
        exp.run()
        exp.jobs[0].task.net.width = 5  # type: ignore[union-attr]
    ((job, stored),) = json.loads((Path(exp._exp_dir) / "_TASKS").read_text())
    assert unpacked(stored).net.width == 4
    assert unpacked(job).state is AppState.SUCCEEDED


def test_the_config_is_that_of_the_experiment(ran: Path) -> None:
    text = (ran / "_CONFIG").read_text()
    config = unpacked(text)
    assert not text.endswith("\n")
    assert config.__fn_or_cls__ is Experiment
    assert list(config.__arguments__)[:9] == [
        "title",
        "executor",
        "id",
        "log_level",
        "clean_mode",
        "enable_goodbye_message",
        "threadpool_workers",
        "skip_status_at_exit",
        "serialize_metadata_for_scripts",
    ]
    assert config.title == "demo"
    assert config.id == ran.name
    assert config.clean_mode is True
    assert fdl.build(config.executor) == run.LocalExecutor(ntasks_per_node=2)


def test_the_version_is_that_of_the_package(ran: Path) -> None:
    assert (ran / "_VERSION").read_text() == f"{run.__version__}\n"


def test_jobs_and_tasks_are_pairs_of_texts(ran: Path) -> None:
    pairs = json.loads((ran / "_TASKS").read_text())
    assert [len(pair) for pair in pairs] == [2, 2, 2]
    (one, one_task), (two, two_task), (pair, pair_tasks) = [
        (unpacked(job), unpacked(task)) for job, task in pairs
    ]
    assert one.__fn_or_cls__ is Job
    assert list(one.__arguments__)[:10] == [
        "id",
        "task",
        "executor",
        "handle",
        "launched",
        "state",
        "plugins",
        "tail_logs",
        "dependencies",
        "name",
    ]
    assert one.task is None
    assert fdl.build(one_task) == script("echo one")
    assert two.dependencies == ["one"]
    assert fdl.build(two.plugins) == [SetVariable(name="X", value="1")]
    assert two_task == run.Partial(tasks.fit, net=run.Config(tasks.Net, width=4))
    assert pair.__fn_or_cls__ is JobGroup
    assert list(pair.tasks) == [None, None]
    assert fdl.build(pair_tasks) == [script("true"), script("true")]


def test_final_states_and_handles_are_stored(ran: Path) -> None:
    jobs = [unpacked(job) for job, _ in json.loads((ran / "_TASKS").read_text())]
    assert [job.state for job in jobs[:2]] == [AppState.SUCCEEDED] * 2
    assert list(jobs[2].states) == [AppState.SUCCEEDED] * 2
    assert all(job.launched for job in jobs)
    assert jobs[0].handle.startswith("local_persistent://nemo_run/one-")


def test_stored_executors_know_their_job(ran: Path) -> None:
    job = unpacked(json.loads((ran / "_TASKS").read_text())[0][0])
    assert job.executor.experiment_id == ran.name
    assert job.executor.job_dir == str(ran / "one")


def test_there_are_no_tunnels(ran: Path) -> None:
    assert (ran / "_TUNNELS").read_text() == "{}"


def test_the_end_is_marked(ran: Path) -> None:
    assert (ran / "_DONE").read_bytes() == b""


def test_job_directories_hold_what_runs(ran: Path) -> None:
    assert (ran / "one" / "scripts" / "one.sh").read_text() == "#!/usr/bin/bash\necho one"
    assert {path.name for path in (ran / "one" / "configs").iterdir()} == {
        "one_config.yaml",
        "one_executor.yaml",
    }
    assert {path.name for path in (ran / "two" / "configs").iterdir()} == {
        "two_config.yaml",
        "two_executor.yaml",
        "two_fn_or_script",
        "two_packager",
    }
    assert {path.name for path in (ran / "pair" / "scripts").iterdir()} == {
        "pair-0.sh",
        "pair-1.sh",
    }


def test_logs_lie_where_they_always_did(ran: Path) -> None:
    (combined,) = (ran / "one" / "nemo_run").glob("one-*/one/0/combined.log")
    assert combined.read_text() == "one\n"
    assert combined.with_name("stdout.log").exists()
    assert combined.with_name("stderr.log").exists()


def test_copies_for_scripts_can_be_left_out() -> None:
    with experiment(serialize_metadata_for_scripts=False) as exp:
        exp.add(script("true"), name="one")
        exp.run()
    assert not (Path(exp._exp_dir) / "one" / "configs").exists()


def test_the_end_is_marked_when_detached_too() -> None:
    with experiment() as exp:
        exp.add(script("true"), name="one")
        exp.run(detach=True)
    assert (Path(exp._exp_dir) / "_DONE").exists()
    exp.wait()


def test_nothing_but_whole_files_is_left(ran: Path) -> None:
    left = [path for path in ran.parent.parent.parent.rglob("*") if "tmp" in path.name.lower()]
    assert left == []


def test_handles_are_stored_while_jobs_run() -> None:
    with experiment() as exp:
        exp.add(script("sleep 60"), name="one")
        exp.run(detach=True)
    seen = run.Experiment.from_id(exp._id)
    assert seen.jobs[0].handle.startswith("local_persistent://nemo_run/one-")
    exp.cancel("one")
    exp.wait()


class TestOlderDirectories:
    def test_arguments_that_are_missing_have_their_defaults(self, copied: Path) -> None:
        config = unpacked((copied / "_CONFIG").read_text())
        for name in ("serialize_metadata_for_scripts", "threadpool_workers", "check"):
            if name in config.__arguments__:
                delattr(config, name)
        (copied / "_CONFIG").write_text(ZlibJSONSerializer().serialize(config))
        assert run.Experiment.from_id(copied.name)._id == copied.name

    def test_tunnels_may_be_missing(self, copied: Path) -> None:
        (copied / "_TUNNELS").unlink()
        assert len(run.Experiment.from_id(copied.name).jobs) == 3

    def test_only_what_counts_needs_to_be_there(self, copied: Path) -> None:
        for path in list(copied.iterdir()):
            if path.is_file() and path.name not in {"_CONFIG", "_TASKS"}:
                path.unlink()
        exp = run.Experiment.from_id(copied.name)
        status = exp.status(return_dict=True)
        assert status is not None
        assert {entry["status"] for entry in status.values()} == {AppState.SUCCEEDED}
