"""Tokens in environments reach the job, and nothing that people look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract import tasks
from tests.contract.experiments import experiment, log_of, script
from tests.contract.secrets import readable_files_with

import nemo_run as run

SECRET = "hf_Zx81kQmP0vLr"


@pytest.fixture
def executor() -> run.LocalExecutor:
    return run.LocalExecutor(env_vars={"HF_TOKEN": SECRET, "PLAIN": "shown"})


def test_an_executor_does_not_show_its_environment(executor: run.LocalExecutor) -> None:
    assert SECRET not in repr(executor)
    assert SECRET not in str(executor)
    assert executor.env_vars["HF_TOKEN"] == SECRET


class TestFiles:
    @pytest.fixture
    def exp(self, executor: run.LocalExecutor) -> run.Experiment:
        with experiment(executor=executor) as exp:
            exp.add(script("echo ran", env={"MY_API_KEY": SECRET}), name="script")
            exp.add(run.Partial(tasks.show_variable, name="HF_TOKEN"), name="function")
            exp.run()
        return exp

    def test_copies_for_people_have_stars_in_its_place(self, exp: run.Experiment) -> None:
        directory = Path(exp._exp_dir)
        for kind in ("executor", "config"):
            copies = list(directory.rglob(f"*_{kind}.yaml"))
            assert sorted(path.parents[1].name for path in copies) == ["function", "script"]
            for path in copies:
                assert SECRET not in path.read_text()
        text = (directory / "script" / "configs" / "script_executor.yaml").read_text()
        assert "shown" in text

    def test_the_job_gets_it(self, exp: run.Experiment) -> None:
        assert log_of(exp, "function") == f"{SECRET}\n"

    def test_files_that_have_it_are_for_their_owner(
        self, exp: run.Experiment, nemorun_home: Path
    ) -> None:
        logs = set(nemorun_home.rglob("*.log"))
        assert set(readable_files_with(SECRET, nemorun_home)) <= logs
        configs = [path for path in nemorun_home.rglob("configs/*") if path.is_file()]
        assert {path.stat().st_mode & 0o777 for path in configs} == {0o600}


def test_a_dry_run_does_not_show_it(
    executor: run.LocalExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    with experiment(executor=executor, clean_mode=False) as exp:
        exp.add(script("true", env={"MY_API_KEY": SECRET}), name="script")
        exp.add(run.Partial(tasks.say), name="function")
        exp.dryrun()
    shown = capsys.readouterr().out
    assert "HF_TOKEN" in shown
    assert SECRET not in shown.replace("\n", "")


def test_a_dry_run_of_a_single_task_does_not_show_it(
    executor: run.LocalExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    run.run(run.Partial(tasks.say), executor=executor, dryrun=True)
    run.dryrun_fn(run.Partial(tasks.say), executor=executor)
    assert SECRET not in capsys.readouterr().out.replace("\n", "")
