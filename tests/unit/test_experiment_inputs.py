"""What users hand to an experiment by mistake is refused in words, before anything runs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.contract import tasks
from tests.contract.experiments import experiment, log_of, script, states, statuses
from tests.contract.plugins import SetVariable
from tests.unit.config_targets import Box, Model, Size

import nemo_run as run
from nemo_run.exceptions import ConfigError, JobNotFoundError


@dataclass(kw_only=True)
class Homeless(run.LocalExecutor):
    """An executor whose scheduler nobody installed."""

    SCHEDULER: ClassVar[str] = "no_such_scheduler"


class TestAdding:
    def test_is_over_once_the_experiment_runs(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="a")
            exp.run()
            with pytest.raises(ConfigError, match=r"run already.*reset\(\)"):
                exp.add(script("true"), name="b")
        assert states(exp) == {"a": "SUCCEEDED"}

    @pytest.mark.parametrize(
        "executor", ["local", run.LocalExecutor, [run.LocalExecutor(), "local"]], ids=str
    )
    def test_refuses_what_is_no_executor(self, executor: Any) -> None:
        with experiment() as exp, pytest.raises(ConfigError, match=r"run\.LocalExecutor\(\)"):
            exp.add([script("true"), script("true")], executor=executor, name="a")

    def test_names_the_executor_that_was_given_as_text(self) -> None:
        with experiment() as exp, pytest.raises(ConfigError, match="not 'local'"):
            exp.add(script("true"), executor="local", name="a")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "plugins",
        [SetVariable(name="A"), [SetVariable], ["SetVariable"], {"a": 1}, 3],
        ids=["a single one", "a class", "a name", "a dict", "a number"],
    )
    def test_refuses_what_is_no_list_of_plugins(self, plugins: Any) -> None:
        with experiment() as exp, pytest.raises(ConfigError, match=r"list of run\.Plugin"):
            exp.add(script("true"), name="a", plugins=plugins)

    def test_dependencies_are_a_list(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="first")
            with pytest.raises(ConfigError, match=r"\['first'\]"):
                exp.add(script("true"), name="second", dependencies="first")

    def test_an_unknown_dependency_is_named_with_the_job_and_the_known_ones(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="load")
            exp.add(script("true"), name="clean")
            with pytest.raises(ConfigError) as caught:
                exp.add(script("true"), name="train", dependencies=["laod"])
        for word in ("'train'", "'laod'", "'load', 'clean'"):
            assert word in str(caught.value)

    def test_a_group_has_no_gaps(self) -> None:
        with experiment() as exp, pytest.raises(TypeError, match=r"run\.Partial.*None"):
            exp.add([script("true"), None], name="a")  # type: ignore[list-item]

    def test_text_is_no_task(self) -> None:
        with experiment() as exp, pytest.raises(TypeError, match=r"run\.Script.*'echo hi'"):
            exp.add("echo hi", name="a")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "name",
        [
            "_TASKS",
            "_STATE",
            "_SCRIPT",
            "_PROVENANCE",
            "_CHANGES.patch",
            "__main__.py",
            "_CONDUCTOR.log",
        ],
    )
    def test_names_of_our_own_files_are_taken(self, name: str) -> None:
        with experiment() as exp, pytest.raises(ConfigError, match=name):
            exp.add(script("true"), name=name)

    @pytest.mark.parametrize("name", ["two\nlines", "bell\a", "one\u2028two", "\x1b[31mred"])
    def test_names_that_would_break_lines_are_refused(self, name: str) -> None:
        with experiment() as exp, pytest.raises(ConfigError, match="control character") as caught:
            exp.add(script("true"), name=name)
        assert "\n" not in str(caught.value)
        with pytest.raises(ConfigError, match="control character"):
            run.Experiment(name)

    def test_arguments_of_a_script_are_a_list(self) -> None:
        with pytest.raises(ConfigError, match=r"list.*'--a b'"):
            run.Script("train.sh", args="--a b")  # type: ignore[arg-type]


class TestBeforeAnythingRuns:
    """A mistake in the second job keeps the first from being started."""

    def refused(self, tmp_path: Path, task: Any, executor: run.Executor) -> str:
        ran = tmp_path / "ran"
        with experiment() as exp:
            exp.add(script(f"touch '{ran}'"), name="first")
            exp.add(task, executor=executor, name="second")
            with pytest.raises(ConfigError) as caught:
                exp.run()
        assert list(tmp_path.glob("nemorun_home/jobs/*/*")) == []
        assert not ran.exists()
        return str(caught.value)

    def test_a_variable_that_is_not_text_is_named_with_its_job(self, tmp_path: Path) -> None:
        executor = run.LocalExecutor(env_vars={"WORLD_SIZE": 3})  # type: ignore[dict-item]
        said = self.refused(tmp_path, script("true"), executor)
        assert "'WORLD_SIZE'" in said
        assert "'second'" in said

    def test_a_variable_of_a_script_that_is_not_text_is_named(self, tmp_path: Path) -> None:
        task = script("true", env={"DEBUG": True})
        said = self.refused(tmp_path, task, run.LocalExecutor())
        assert "'DEBUG'" in said
        assert "'second'" in said

    def test_an_argument_that_is_not_text_is_named_with_its_job(self, tmp_path: Path) -> None:
        task = script("true", args=["--lr", 0.5])
        said = self.refused(tmp_path, task, run.LocalExecutor())
        assert "0.5" in said
        assert "'second'" in said

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("retries", -1),
            ("retries", "2"),
            ("retries", 1.5),
            ("time_limit_s", "1h"),
            ("time_limit_s", -5),
            ("time_limit_s", 0),
            ("gpus", 1),
            ("jobs_at_a_time", 0),
        ],
    )
    def test_settings_that_cannot_be_are_named(
        self, setting: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        executor = run.LocalExecutor(**{setting: value})  # type: ignore[arg-type]
        assert setting in self.refused(tmp_path, script("true"), executor)

    def test_a_required_argument_that_is_not_set_is_named_with_its_job(
        self, tmp_path: Path
    ) -> None:
        said = self.refused(tmp_path, run.Partial(tasks.append, text="x"), run.LocalExecutor())
        for word in ("'second'", "append", "'path'"):
            assert word in said

    def test_a_required_argument_deep_inside_is_named(self, tmp_path: Path) -> None:
        task = run.Partial(tasks.say, text=[{"box": run.Config(Size, width=1)}])
        said = self.refused(tmp_path, task, run.LocalExecutor())
        assert "Size needs 'height'" in said

    def test_a_script_that_is_not_there_is_named_with_its_job(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for task in (run.Script("train.sh"), run.Script("python train.sh --fast")):
            said = self.refused(tmp_path, task, run.LocalExecutor())
            assert "'second'" in said
            assert "'train.sh'" in said

    def test_a_scheduler_that_is_not_installed_is_named_with_its_group(
        self, tmp_path: Path
    ) -> None:
        said = self.refused(tmp_path, script("true"), Homeless())
        for word in ("'no_such_scheduler'", "Homeless", "torchx.schedulers"):
            assert word in said


class TestHints:
    def test_an_experiment_that_was_not_run_says_so(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with experiment(clean_mode=False) as exp:
            exp.add(script("true"), name="a")
        assert "call run()" in capsys.readouterr().out

    def test_one_that_was_only_planned_does_not(self, capsys: pytest.CaptureFixture[str]) -> None:
        with experiment(clean_mode=False) as exp:
            exp.add(script("true"), name="a")
            exp.dryrun()
        assert "call run()" not in capsys.readouterr().out

    def test_a_group_that_failed_says_by_whom(self) -> None:
        with experiment() as exp:
            exp.add([script("sleep 30"), script("exit 3")], name="pair")
            exp.run()
        assert states(exp) == {"pair": "FAILED"}
        assert "task 1 ended with 3" in statuses(exp)["pair"]["message"]


class TestUnusualButRight:
    def test_a_command_line_too_long_to_be_a_path(self) -> None:
        task = run.Script("python -c 'print(1) #" + "x" * 500 + "'")
        assert task.resolved().entrypoint == "python"
        with experiment() as exp:
            exp.add(task, name="a")
            exp.run()
        assert log_of(exp, "a") == "1\n"

    def test_a_function_whose_job_is_called_like_an_option(self) -> None:
        with experiment() as exp:
            exp.add(run.Partial(tasks.say, text="fine"), name="-debug")
            exp.run()
        assert states(exp) == {"-debug": "SUCCEEDED"}
        assert log_of(exp, "-debug") == "fine\n"

    def test_a_parameter_called_is_lazy(self) -> None:
        with experiment() as exp:
            exp.add(run.Partial(load, is_lazy=True), name="a")
            exp.run()
        assert log_of(exp, "a") == "lazy True\n"

    def test_a_parameter_called_is_lazy_in_this_process(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run.run(run.Partial(load, is_lazy=True), direct=True)
        assert capsys.readouterr().out == "lazy True\n"

    def test_a_partial_inside_of_a_task_gets_its_arguments_later(self) -> None:
        with experiment() as exp:
            exp.add(run.Partial(call, function=run.Partial(shout)), name="a")
            exp.run()
        assert log_of(exp, "a") == "NOW\n"

    def test_a_script_that_a_job_before_writes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with experiment() as exp:
            exp.add(script("echo 'echo written' > late.sh"), name="write")
            exp.add(run.Script("late.sh"), name="read", dependencies=["write"])
            exp.run()
        assert log_of(exp, "read") == "written\n"

    def test_a_script_on_the_path(self, tmp_path: Path) -> None:
        program = tmp_path / "bin" / "greet.sh"
        program.parent.mkdir()
        program.write_text("echo hello")
        program.chmod(0o755)
        executor = run.LocalExecutor(env_vars={"PATH": f"{program.parent}:/usr/bin:/bin"})
        with experiment() as exp:
            exp.add(run.Script("greet.sh"), executor=executor, name="a")
            exp.run()
        assert log_of(exp, "a") == "hello\n"

    def test_broadcasting_leaves_methods_alone(self) -> None:
        config = run.Config(Box, value=run.Config(Model, width=1))
        config.broadcast(clone=3, width=4)
        assert config == run.Config(Box, value=run.Config(Model, width=4))
        assert config.clone() == config


def load(is_lazy: bool = False) -> None:
    print("lazy", is_lazy)


def shout(text: str) -> None:
    print(text.upper())


def call(function: Any) -> None:
    function(text="now")


class TestAskingForAJobThatIsNotThere:
    @pytest.mark.parametrize("ask", ["logs", "cancel"])
    def test_is_said_even_where_nothing_else_is_printed(
        self, ask: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="train")
            exp.run()
        monkeypatch.setattr(logging.getLogger("nemo_run"), "propagate", True)
        getattr(exp, ask)("trian")
        assert "There is no job 'trian'" in caplog.text
        assert "Jobs: train" in caplog.text

    @pytest.mark.parametrize("ask", ["logs", "cancel"])
    def test_is_an_error_for_those_who_check(self, ask: str) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="train")
            exp.run()
        with pytest.raises(JobNotFoundError, match="'trian'"):
            getattr(exp, ask)("trian", check=True)

    def test_a_log_of_what_was_never_started_is_an_error_for_those_who_check(self) -> None:
        with experiment() as exp:
            exp.add(script("false"), name="first")
            exp.add(script("true"), name="never", dependencies=["first"])
            exp.run()
        with pytest.raises(JobNotFoundError, match="not been started"):
            exp.logs("never", check=True)
