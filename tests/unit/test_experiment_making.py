"""Making an experiment and adding jobs to it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.contract import tasks
from tests.contract.experiments import experiment, log_of, script, states
from tests.contract.plugins import Louder, NoteExperiment, SetVariable

import nemo_run as run
from nemo_run.exceptions import ConfigError
from nemo_run.run.job import Job, JobGroup


class TestConstructor:
    def test_has_the_documented_defaults(self) -> None:
        exp = run.Experiment("demo")
        assert exp.executor == run.LocalExecutor()
        assert exp.log_level == "INFO"
        assert exp.clean_mode is False
        assert list(exp.jobs) == []
        assert list(exp.tasks) == []

    def test_the_id_is_the_title_and_the_time(self) -> None:
        before = time.time_ns()
        exp = run.Experiment("my_title")
        title, _, stamp = exp._id.rpartition("_")
        assert title == "my_title"
        assert before <= int(stamp) <= time.time_ns()

    def test_ids_are_unique(self) -> None:
        assert len({run.Experiment("x")._id for _ in range(100)}) == 100

    def test_an_id_can_be_given(self, nemorun_home: Path) -> None:
        exp = run.Experiment("demo", id="mine")
        assert exp._id == "mine"
        assert Path(exp._exp_dir) == nemorun_home / "experiments" / "demo" / "mine"

    def test_nothing_is_written_before_it_runs(self, nemorun_home: Path) -> None:
        with experiment() as exp:
            exp.add(script("true"))
        assert not (nemorun_home / "experiments").exists()

    def test_the_directory_can_be_elsewhere(self, tmp_path: Path) -> None:
        exp = run.Experiment("demo", base_dir=str(tmp_path / "other"))
        assert Path(exp._exp_dir) == tmp_path / "other" / "experiments" / "demo" / exp._id

    def test_a_title_with_slashes_makes_one_directory(self, nemorun_home: Path) -> None:
        exp = run.Experiment("team/net")
        directory = Path(exp._exp_dir)
        assert directory.parent.parent == nemorun_home / "experiments"
        assert directory.parent.name.startswith("team_net-")
        assert directory.parent != Path(run.Experiment("team_net")._exp_dir).parent
        assert exp._title == "team/net"

    @pytest.mark.parametrize("title", ["", "..", ".", "a\0b", "x" * 201])
    def test_a_title_that_is_no_directory_is_refused(self, title: str) -> None:
        with pytest.raises(ConfigError, match="title"):
            run.Experiment(title)

    @pytest.mark.parametrize("id", ["..", ".", "a/b", "a\0b", "x" * 201])
    def test_an_id_that_is_no_directory_is_refused(self, id: str) -> None:
        with pytest.raises(ConfigError):
            run.Experiment("demo", id=id)

    def test_looking_needs_an_id(self) -> None:
        with pytest.raises(ConfigError):
            run.Experiment("demo", _reconstruct=True)


class TestAdding:
    def test_is_for_the_inside_of_the_context(self) -> None:
        exp = run.Experiment("demo")
        with pytest.raises(AssertionError):
            exp.add(script("true"))

    def test_asking_for_status_does_not_open_the_context(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="a")
            exp.run()
        exp.status(return_dict=True)
        exp.logs("a")
        exp.cancel("a")
        with pytest.raises(AssertionError):
            exp.add(script("true"), name="b")

    def test_a_job_is_named_after_its_task(self) -> None:
        with experiment() as exp:
            assert exp.add(run.Partial(tasks.say)) == "tests.contract.tasks.say"
            assert exp.add(run.Script("dir/train.sh")) == "train.sh"
            assert exp.add(script("echo 'hi there'")) == script("echo 'hi there'").get_name()

    def test_the_same_function_twice_makes_two_ids(self) -> None:
        with experiment() as exp:
            first = exp.add(run.Partial(tasks.say))
            second = exp.add(run.Partial(tasks.say))
            third = exp.add(run.Partial(tasks.say))
        assert (first, second) == ("tests.contract.tasks.say", "tests.contract.tasks.say_1")
        assert len({first, second, third}) == 3

    def test_a_number_that_is_taken_is_not_used_again(self) -> None:
        with experiment() as exp:
            ids = [exp.add(script("true"), name=name) for name in ("a", "a_2", "a", "a", "a")]
        assert len(set(ids)) == 5

    def test_jobs_of_one_name_do_not_mix_up_their_logs(self) -> None:
        with experiment() as exp:
            exp.add(script("echo first"), name="same")
            exp.add(script("echo second"), name="same")
            exp.run()
        assert set(states(exp).values()) == {"SUCCEEDED"}
        logs = sorted(log_of(exp, job) for job in states(exp))
        assert logs == ["first\n", "second\n"]

    @pytest.mark.parametrize("name", ["..", ".", "a/b", "a\0b", "x" * 201])
    def test_a_name_that_is_no_directory_is_refused(self, name: str) -> None:
        with experiment() as exp, pytest.raises(ConfigError):
            exp.add(script("true"), name=name)

    def test_a_long_name_that_fits_works(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="x" * 120)
            exp.run()
        assert states(exp) == {"x" * 120: "SUCCEEDED"}

    def test_later_edits_do_not_reach_the_job(self) -> None:
        executor = run.LocalExecutor(env_vars={"A": "before"})
        task = run.Partial(tasks.show_variable, name="A")
        other = script("echo $A")
        with experiment() as exp:
            exp.add(task, executor=executor, name="one")
            exp.add(other, executor=executor, name="two")
            executor.env_vars["A"] = "after"
            task.name = "B"
            other.inline = "echo changed"
            exp.run()
        assert log_of(exp, "one") == "before\n"
        assert log_of(exp, "two") == "before\n"

    def test_the_executor_given_is_not_changed(self) -> None:
        executor = run.LocalExecutor(env_vars={"A": "1"})
        before = executor.clone()
        with experiment(executor=executor) as exp:
            exp.add(script("true"), plugins=[SetVariable(name="X", value="1")])
            exp.run()
        assert executor == before

    def test_a_dependency_has_to_be_there_already(self) -> None:
        with experiment() as exp, pytest.raises(AssertionError, match="nowhere"):
            exp.add(script("true"), dependencies=["nowhere"])

    def test_a_value_that_cannot_travel_is_named(self) -> None:
        with experiment() as exp, pytest.raises(Exception, match="text"):
            exp.add(run.Partial(tasks.say, text=object()))

    def test_a_policy_that_does_not_exist_is_refused(self) -> None:
        with experiment() as exp, pytest.raises(ConfigError, match="always"):
            exp.add(script("true"), run_if="always")  # type: ignore[arg-type]

    def test_what_is_no_task_is_refused(self) -> None:
        with experiment() as exp, pytest.raises((TypeError, ConfigError)):
            exp.add(42)  # type: ignore[arg-type]

    def test_jobs_and_tasks_are_what_was_added(self) -> None:
        with experiment() as exp:
            exp.add(script("echo 1"), name="a")
            exp.add([script("echo 2"), script("echo 3")], name="g")
        job, group = exp.jobs
        assert isinstance(job, Job)
        assert isinstance(group, JobGroup)
        assert exp.tasks[0] == script("echo 1")
        assert list(exp.tasks[1]) == [script("echo 2"), script("echo 3")]

    def test_tasks_can_be_edited_before_running(self) -> None:
        with experiment() as exp:
            exp.add(run.Partial(tasks.say, text="before"), name="a")
            exp.tasks[0].text = "after"
            exp.run()
        assert log_of(exp, "a") == "after\n"

    def test_the_list_of_jobs_is_a_copy(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="a")
            exp.jobs.clear()
            assert len(exp.jobs) == 1


class TestPlugins:
    def test_a_plugin_edits_task_and_executor(self) -> None:
        with experiment() as exp:
            exp.add(run.Partial(tasks.say, text="quiet"), name="a", plugins=[Louder()])
            exp.add(
                script("echo $X"), name="b", plugins=[SetVariable(name="X", value="from plugin")]
            )
            exp.run()
        assert log_of(exp, "a") == "QUIET\n"
        assert log_of(exp, "b") == "from plugin\n"

    def test_plugins_are_applied_in_order(self) -> None:
        plugins: list[run.Plugin] = [SetVariable(name="X", value=x) for x in "12"]
        with experiment() as exp:
            exp.add(script("echo $X"), name="a", plugins=plugins)
            exp.run()
        assert log_of(exp, "a") == "2\n"

    def test_a_plugin_knows_the_experiment(self) -> None:
        with experiment() as exp:
            exp.add(script("echo $NOTED"), name="a", plugins=[NoteExperiment()])
            exp.run()
        assert log_of(exp, "a") == f"{exp._id}\n"

    def test_a_plugin_of_a_group_knows_the_experiment_too(self) -> None:
        with experiment() as exp:
            exp.add([script("echo $NOTED")] * 2, name="g", plugins=[NoteExperiment()])
            exp.run()
        logs = Path(exp._exp_dir).glob("g/nemo_run/*/*/0/combined.log")
        assert [log.read_text() for log in logs] == [f"{exp._id}\n"] * 2

    def test_the_id_is_not_a_setting_of_a_plugin(self) -> None:
        assert NoteExperiment().experiment_id == ""
        with pytest.raises(TypeError):
            NoteExperiment(experiment_id="x")  # type: ignore[call-arg]


def test_jobs_can_be_added_after_asking_for_the_status() -> None:
    with experiment() as exp:
        exp.add(script("true"), name="first")
        assert states(exp) == {"first": "UNSUBMITTED"}
        exp.add(script("true"), name="second")
        exp.run()
    assert states(exp) == {"first": "SUCCEEDED", "second": "SUCCEEDED"}
