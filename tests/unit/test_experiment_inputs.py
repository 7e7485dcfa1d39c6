"""What users hand to an experiment by mistake is refused in words, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.contract import tasks
from tests.contract.experiments import experiment, log_of, script, states, statuses
from tests.contract.plugins import SetVariable
from tests.unit.config_targets import Box, Model

import nemo_run as run
from nemo_run.exceptions import ConfigError


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

    @pytest.mark.parametrize("name", ["_TASKS", "_STATE", "__main__.py", "_CONDUCTOR.log"])
    def test_names_of_our_own_files_are_taken(self, name: str) -> None:
        with experiment() as exp, pytest.raises(ConfigError, match=name):
            exp.add(script("true"), name=name)

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
        [("retries", -1), ("time_limit_s", -5), ("gpus", 1), ("jobs_at_a_time", 0)],
    )
    def test_settings_that_cannot_be_are_named(
        self, setting: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        executor = run.LocalExecutor(**{setting: value})  # type: ignore[arg-type]
        assert setting in self.refused(tmp_path, script("true"), executor)

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

    def test_broadcasting_leaves_methods_alone(self) -> None:
        config = run.Config(Box, value=run.Config(Model, width=1))
        config.broadcast(clone=3, width=4)
        assert config == run.Config(Box, value=run.Config(Model, width=4))
        assert config.clone() == config


def load(is_lazy: bool = False) -> None:
    print("lazy", is_lazy)
