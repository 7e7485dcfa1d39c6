"""run.run(): one task, here or as an experiment of one job."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest
from tests.contract import tasks
from tests.contract.plugins import Refuse, SetVariable
from torchx.specs import AppState

import nemo_run as run
from nemo_run.exceptions import JobFailedError


def only_experiment() -> run.Experiment:
    (title,) = run.Experiment.catalog()
    (found,) = run.Experiment.catalog(title)
    return run.Experiment.from_id(found)


class TestDirect:
    def test_without_an_executor_the_task_runs_here(self, tmp_path: Path) -> None:
        file = tmp_path / "pid"
        run.run(run.Partial(tasks.note_process, path=str(file)))
        assert int(file.read_text()) == os.getpid()

    def test_direct_wins_over_an_executor(self, tmp_path: Path) -> None:
        file = tmp_path / "pid"
        task = run.Partial(tasks.note_process, path=str(file))
        run.run(task, executor=run.LocalExecutor(), direct=True)
        assert int(file.read_text()) == os.getpid()

    def test_leaves_no_experiment(self) -> None:
        run.run(run.Partial(tasks.say), direct=True)
        assert run.Experiment.catalog() == []

    def test_an_exception_comes_through(self) -> None:
        with pytest.raises(LookupError, match="nothing there"):
            run.run(run.Partial(tasks.explode))

    def test_a_script_runs_as_a_child(self, capfd: pytest.CaptureFixture[str]) -> None:
        run.run(run.Script(inline='echo "it\'s" $((1 + 1))'), direct=True)
        assert capfd.readouterr().out == "it's 2\n"

    def test_a_script_that_fails_raises(self) -> None:
        with pytest.raises(JobFailedError) as caught:
            run.run(run.Script(inline="exit 4"), direct=True)
        assert caught.value.exit_code == 4

    def test_a_dry_run_shows_the_arguments(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "ran"
        task = run.Partial(tasks.append, path=str(file), text="special")
        run.run(task, direct=True, dryrun=True)
        assert "special" in capsys.readouterr().out
        assert not file.exists()

    def test_a_dry_run_of_a_script_is_refused(self) -> None:
        with pytest.raises(TypeError):
            run.run(run.Script(inline="true"), direct=True, dryrun=True)

    @pytest.mark.parametrize("what", [3, "text", tasks.say])
    def test_what_is_no_task_is_refused(self, what: object) -> None:
        with pytest.raises(TypeError):
            run.run(what)  # type: ignore[arg-type]

    def test_a_config_is_refused(self) -> None:
        with pytest.raises(TypeError):
            run.run(run.Config(tasks.Net), direct=True)  # type: ignore[arg-type]


class TestAsExperiment:
    def test_is_named_after_the_function(self) -> None:
        run.run(run.Partial(tasks.say), executor=run.LocalExecutor())
        exp = only_experiment()
        assert exp._title == "tests.contract.tasks.say"
        assert [job.id for job in exp.jobs] == ["tests.contract.tasks.say"]

    def test_is_named_after_the_script(self) -> None:
        run.run(run.Script(inline="echo hi there"), executor=run.LocalExecutor())
        assert only_experiment()._title == run.Script(inline="echo hi there").get_name()

    def test_a_name_can_be_given(self) -> None:
        run.run(run.Script(inline="true"), executor=run.LocalExecutor(), name="mine")
        exp = only_experiment()
        assert (exp._title, [job.id for job in exp.jobs]) == ("mine", ["mine"])

    def test_raises_nothing_when_the_job_succeeded(self) -> None:
        run.run(run.Script(inline="true"), executor=run.LocalExecutor())

    def test_a_failure_is_shown_with_its_reason(self, capfd: pytest.CaptureFixture[str]) -> None:
        script = run.Script(inline="echo last words; exit 3")
        run.run(script, executor=run.LocalExecutor(), name="bad")
        shown = capfd.readouterr().err
        assert shown == "Job bad FAILED with exit code 3\n  | last words\n"

    def test_raises_when_told_to(self) -> None:
        with pytest.raises(JobFailedError) as caught:
            run.run(
                run.Script(inline="echo last words; exit 3"),
                executor=run.LocalExecutor(),
                name="bad",
                check=True,
            )
        error = caught.value
        assert (error.state, error.exit_code) == (AppState.FAILED, 3)
        assert error.tail[-1].strip() == "last words"
        assert "bad" in str(error)

    def test_can_be_told_not_to_mind(self, capfd: pytest.CaptureFixture[str]) -> None:
        run.run(run.Script(inline="exit 3"), executor=run.LocalExecutor(), check=False)
        assert capfd.readouterr().err == ""
        (status,) = (only_experiment().status(return_dict=True) or {}).values()
        assert status["status"] is AppState.FAILED

    def test_prints_the_log_by_default(self, capfd: pytest.CaptureFixture[str]) -> None:
        run.run(run.Script(inline="echo heard"), executor=run.LocalExecutor())
        assert "heard" in "".join(capfd.readouterr())

    def test_is_silent_about_the_log_when_told(self, capfd: pytest.CaptureFixture[str]) -> None:
        script = run.Script(inline="echo un''heard")
        run.run(script, executor=run.LocalExecutor(), name="x", tail_logs=False)
        assert "unheard" not in "".join(capfd.readouterr())

    def test_a_dry_run_leaves_nothing(
        self, nemorun_home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run.run(run.Script(inline="true"), executor=run.LocalExecutor(), name="dry", dryrun=True)
        assert "dry" in capsys.readouterr().out
        assert list(nemorun_home.glob("experiments/*/*")) == []

    def test_detached_it_returns_at_once(self) -> None:
        run.run(run.Script(inline="sleep 60"), executor=run.LocalExecutor(), name="x", detach=True)
        exp = only_experiment()
        exp.cancel("x")
        assert (exp.status(return_dict=True) or {})["x"]["status"] is AppState.CANCELLED

    @pytest.mark.parametrize("as_list", [False, True])
    def test_plugins_are_applied(self, as_list: bool, capfd: pytest.CaptureFixture[str]) -> None:
        plugin = SetVariable(name="EDITED", value="yes")
        run.run(
            run.Script(inline="echo edited=$EDITED"),
            executor=run.LocalExecutor(),
            plugins=[plugin] if as_list else plugin,
        )
        assert "edited=yes" in "".join(capfd.readouterr())

    def test_plugins_are_not_applied_to_direct_runs(self) -> None:
        run.run(run.Partial(tasks.say), plugins=Refuse(), direct=True)


def test_run_is_a_function_and_a_package() -> None:
    import nemo_run.run.experiment as module

    assert isinstance(module, ModuleType)
    assert callable(run.run)
    assert run.run.experiment.Experiment is run.Experiment  # type: ignore[attr-defined]
