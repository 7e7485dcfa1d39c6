"""Running an experiment again, and looking at one whose surroundings have changed."""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, log_of, script, states, statuses

import nemo_run as run
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.places import base_of


def record_of(home: Path, job: str) -> Path:
    (record,) = (home / "jobs" / "local_persistent").glob(f"{job}-*.json")
    return record


def make(title: str = "demo", **settings: object) -> run.Experiment:
    with experiment(title, **settings) as exp:
        exp.add(script("echo hi"), name="job")
        exp.run()
    return exp


class TestReset:
    def test_a_sequential_run_can_be_repeated(self, tmp_path: Path) -> None:
        file = tmp_path / "order"
        with experiment() as exp:
            for name in "ab":
                exp.add(script(f"sleep 0.1; echo {name} >> '{file}'"), name=name)
            exp.run(sequential=True)
        with exp.reset() as exp:
            exp.run(sequential=True)
        assert states(exp) == {"a": "SUCCEEDED", "b": "SUCCEEDED"}
        assert file.read_text().split() == ["a", "b", "a", "b"]

    def test_the_second_run_is_written_down(self) -> None:
        exp = make()
        with exp.reset() as exp:
            exp.run()
        assert Path(exp._exp_dir, "_STATE", "0.json").is_file()
        assert states(run.Experiment.from_id(exp._id)) == {"job": "SUCCEEDED"}

    def test_the_second_run_keeps_other_conductors_away(self) -> None:
        exp = make()
        with exp.reset() as exp:
            exp.run()
            with ExperimentDirectory(Path(exp._exp_dir)).conducting() as alone:
                assert not alone

    def test_one_that_0_12_nested_is_run_again_in_the_same_home(self, nemorun_home: Path) -> None:
        made = make("team/net")
        nested = nemorun_home / "experiments" / "team" / "net" / made._id
        nested.parent.mkdir(parents=True)
        Path(made._exp_dir).rename(nested)
        again = run.Experiment.from_id(made._id).reset()
        assert Path(again._exp_dir).parents[1] == (nemorun_home / "experiments").resolve()


@pytest.mark.parametrize("inside", ["demo/demo_1", "team/net/team/net_1", "a/b/c/a/b/c_1"])
def test_the_base_is_found_however_deep_the_experiment_is(inside: str, tmp_path: Path) -> None:
    assert base_of(tmp_path / "experiments" / inside) == str(tmp_path.resolve())


class TestRelativePaths:
    def test_a_relative_base_stays_where_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        exp = make(base_dir="here")
        os.chdir("/")
        assert Path(exp._exp_dir).is_relative_to(tmp_path / "here")
        assert log_of(exp, "job") == "hi\n"
        assert states(exp) == {"job": "SUCCEEDED"}

    def test_a_relative_home_stays_where_it_was(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("NEMORUN_HOME", "home")
        exp = make()
        home = run.config.get_nemorun_home()
        assert home == str(tmp_path / "home")
        os.chdir("/")
        run.config.set_nemorun_home(home)
        assert log_of(exp, "job") == "hi\n"
        exp.logs("job")
        assert "hi" in capsys.readouterr().err

    def test_a_home_chosen_by_a_relative_path_is_absolute(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        run.config.set_nemorun_home("home")
        os.chdir("/")
        assert run.config.get_nemorun_home() == str(tmp_path / "home")


def test_messages_are_shown_as_long_as_one_experiment_lives() -> None:
    first, second = run.Experiment("first"), run.Experiment("second")
    del first
    gc.collect()
    assert "nemo_run" in [handler.get_name() for handler in logging.getLogger("nemo_run").handlers]
    assert second._title == "second"


class TestLostRecords:
    def start_two(self) -> run.Experiment:
        with experiment() as exp:
            exp.add(script("sleep 60"), name="lost")
            exp.add(script("sleep 60"), name="kept")
            exp.run(detach=True)
        return run.Experiment.from_id(exp._id)

    @pytest.mark.timeout(30)
    def test_cancelling_a_job_that_nothing_is_known_of_returns(self, nemorun_home: Path) -> None:
        exp = self.start_two()
        record_of(nemorun_home, "lost").unlink()
        exp.cancel("lost")
        assert states(exp)["lost"] == "UNKNOWN"

    @pytest.mark.timeout(30)
    def test_a_damaged_record_does_not_hide_the_other_jobs(self, nemorun_home: Path) -> None:
        exp = self.start_two()
        record_of(nemorun_home, "lost").write_text("{")
        found = states(exp)
        assert found["lost"] == "UNKNOWN"
        assert found["kept"] in {"PENDING", "RUNNING"}
        assert "damaged" in statuses(exp)["lost"]["message"]
