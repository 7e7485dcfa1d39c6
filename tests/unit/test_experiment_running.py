"""Running an experiment: order, outcome, groups, direct and dry runs."""

from __future__ import annotations

import json
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract import tasks
from tests.contract.experiments import experiment, log_of, script, states, statuses
from torchx.specs import AppState

import nemo_run as run
from nemo_run.exceptions import ConfigError, JobFailedError


def stamp(file: Path, name: str, until: str = "true") -> run.Script:
    """A script that notes its start and, once a command succeeds in its directory, its end."""
    wait = f"until {until}; do sleep 0.02; done"
    return script(f"cd '{file.parent}'; echo {name}+ >> '{file}'; {wait}; echo {name}- >> '{file}'")


def have_begun(number: int) -> str:
    """A command that succeeds when as many scripts have noted their start in ``order``."""
    return f"[ $(grep -c '+' order) -ge {number} ]"


class TestOrder:
    def test_two_jobs_succeed(self) -> None:
        with experiment() as exp:
            exp.add(script("echo one"), name="one")
            exp.add(run.Partial(tasks.say, text="two"), name="two")
            exp.run()
        assert states(exp) == {"one": "SUCCEEDED", "two": "SUCCEEDED"}
        assert (log_of(exp, "one"), log_of(exp, "two")) == ("one\n", "two\n")

    def test_jobs_without_dependencies_run_side_by_side(self, tmp_path: Path) -> None:
        file = tmp_path / "order"
        with experiment() as exp:
            for name in "abc":
                exp.add(stamp(file, name, have_begun(3)), name=name)
            exp.run()
        lines = file.read_text().split()
        assert {line[1] for line in lines[:3]} == {"+"}

    def test_sequential_is_one_after_the_other(self, tmp_path: Path) -> None:
        file = tmp_path / "order"
        with experiment() as exp:
            for name in "abc":
                exp.add(stamp(file, name, "sleep 0.1"), name=name)
            exp.run(sequential=True)
        assert file.read_text().split() == ["a+", "a-", "b+", "b-", "c+", "c-"]

    def test_a_diamond_keeps_its_order(self, tmp_path: Path) -> None:
        file = tmp_path / "order"
        with experiment() as exp:
            top = exp.add(stamp(file, "t", "sleep 0.1"), name="t")
            left = exp.add(stamp(file, "l", "sleep 0.1"), name="l", dependencies=[top])
            right = exp.add(stamp(file, "r", "sleep 0.1"), name="r", dependencies=[top])
            exp.add(stamp(file, "e"), name="e", dependencies=[left, right])
            exp.run()
        lines = file.read_text().split()
        assert lines[:2] == ["t+", "t-"]
        assert lines[-2:] == ["e+", "e-"]
        assert set(states(exp).values()) == {"SUCCEEDED"}

    def test_a_job_starts_as_soon_as_its_own_dependencies_have_ended(self, tmp_path: Path) -> None:
        file = tmp_path / "order"
        with experiment() as exp:
            exp.add(stamp(file, "s", "grep -q n- order"), name="slow")
            quick = exp.add(stamp(file, "q"), name="quick")
            exp.add(stamp(file, "n"), name="next", dependencies=[quick])
            exp.run()
        assert states(exp) == {"slow": "SUCCEEDED", "quick": "SUCCEEDED", "next": "SUCCEEDED"}

    def test_sequential_and_dependencies_do_not_go_together(self) -> None:
        with experiment() as exp:
            first = exp.add(script("true"), name="a")
            exp.add(script("true"), name="b", dependencies=[first])
            with pytest.raises(AssertionError, match="sequential"):
                exp.run(sequential=True)

    def test_jobs_that_wait_for_each_other_are_refused(self, nemorun_home: Path) -> None:
        with experiment() as exp:
            first = exp.add(script("true"), name="a")
            exp.add(script("true"), name="b", dependencies=[first])
            exp.jobs[0].dependencies.append("b")
            with pytest.raises(AssertionError):
                exp.run()
        assert list(nemorun_home.glob("jobs/*/*")) == []

    def test_running_is_for_the_inside_of_the_context(self) -> None:
        with pytest.raises(AssertionError):
            run.Experiment("demo").run()

    def test_running_twice_runs_once(self, tmp_path: Path) -> None:
        file = tmp_path / "ran"
        with experiment() as exp:
            exp.add(script(f"echo x >> '{file}'"), name="a")
            exp.run()
            exp.run()
        assert file.read_text() == "x\n"

    def test_an_experiment_without_jobs_runs(self) -> None:
        with experiment() as exp:
            exp.run()
        assert states(exp) == {}

    def test_jobs_see_the_directory_of_the_launcher(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with experiment() as exp:
            exp.add(script("pwd -P"), name="a")
            exp.run()
        assert log_of(exp, "a") == f"{tmp_path.resolve()}\n"


class TestOutcome:
    def test_dependents_of_a_failed_job_are_not_started(self, tmp_path: Path) -> None:
        file = tmp_path / "ran"
        with experiment() as exp:
            bad = exp.add(script("exit 3"), name="bad")
            after = exp.add(script(f"touch '{file}'"), name="after", dependencies=[bad])
            exp.add(script(f"touch '{file}'"), name="later", dependencies=[after])
            exp.run()
        assert states(exp) == {"bad": "FAILED", "after": "CANCELLED", "later": "CANCELLED"}
        assert "bad" in statuses(exp)["after"]["message"]
        assert "FAILED" in statuses(exp)["after"]["message"]
        assert "after" in statuses(exp)["later"]["message"]
        assert not file.exists()

    @pytest.mark.parametrize(
        ("run_if", "after_success", "after_failure"),
        [
            ("succeeded", "SUCCEEDED", "CANCELLED"),
            ("ended", "SUCCEEDED", "SUCCEEDED"),
            ("failed", "CANCELLED", "SUCCEEDED"),
        ],
    )
    def test_a_job_may_say_after_what_it_runs(
        self, run_if: str, after_success: str, after_failure: str
    ) -> None:
        with experiment() as exp:
            good = exp.add(script("true"), name="good")
            bad = exp.add(script("false"), name="bad")
            for name, needed in (("x", good), ("y", bad)):
                exp.add(script("true"), name=name, dependencies=[needed], run_if=run_if)  # type: ignore[arg-type]
            exp.run()
        assert (states(exp)["x"], states(exp)["y"]) == (after_success, after_failure)

    def test_leaving_does_not_raise_by_default(self) -> None:
        with experiment() as exp:
            exp.add(script("exit 3"), name="bad")
            exp.run()
        assert states(exp) == {"bad": "FAILED"}

    def test_leaving_raises_when_asked_to(self) -> None:
        with pytest.raises(JobFailedError) as caught, experiment(check=True) as exp:
            exp.add(script("echo last words; exit 3"), name="bad")
            exp.run()
        error = caught.value
        assert (error.state, error.exit_code) == (AppState.FAILED, 3)
        assert error.tail == ("last words\n",)
        assert "bad" in str(error)

    def test_leaving_says_nothing_when_all_went_well(self) -> None:
        with experiment(check=True) as exp:
            exp.add(script("true"), name="good")
            exp.run()

    def test_an_error_inside_the_context_is_not_hidden(self) -> None:
        with pytest.raises(LookupError, match="mine"), experiment(check=True) as exp:
            exp.add(script("exit 3"), name="bad")
            exp.run()
            raise LookupError("mine")

    def test_failure_can_be_asked_for(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="good")
            exp.add(script("exit 4"), name="bad")
            exp.run()
        with pytest.raises(JobFailedError, match="bad") as caught:
            exp.raise_if_failed()
        assert caught.value.exit_code == 4

    def test_nothing_is_raised_when_nothing_failed(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="good")
            exp.run()
        exp.raise_if_failed()

    @pytest.mark.slow
    def test_a_job_waits_for_the_last_retry_of_its_dependency(self, tmp_path: Path) -> None:
        mark = tmp_path / "tries"
        text = f"echo x >> '{mark}'; [ $(wc -l < '{mark}') = 2 ]"
        with experiment() as exp:
            first = exp.add(script(text), executor=run.LocalExecutor(retries=1), name="a")
            exp.add(script(f"wc -l < '{mark}'"), name="b", dependencies=[first])
            exp.run()
        assert log_of(exp, "b").strip() == "2"


class TestGroups:
    def test_needs_a_name(self) -> None:
        with experiment() as exp, pytest.raises(AssertionError, match="name"):
            exp.add([script("true"), script("true")])

    def test_needs_as_many_executors_as_tasks_or_one(self) -> None:
        three: list[Any] = [run.LocalExecutor() for _ in range(3)]
        with experiment() as exp, pytest.raises(AssertionError, match="executors"):
            exp.add([script("true")] * 2, executor=three, name="g")

    def test_members_run_side_by_side_under_numbered_names(self, tmp_path: Path) -> None:
        file = tmp_path / "order"
        with experiment() as exp:
            exp.add([stamp(file, name, have_begun(2)) for name in "ab"], name="pair")
            exp.run()
        assert states(exp) == {"pair": "SUCCEEDED"}
        assert {line[1] for line in file.read_text().split()[:2]} == {"+"}
        scripts = {path.name for path in Path(exp._exp_dir).glob("pair/scripts/*")}
        assert scripts == {"pair-0.sh", "pair-1.sh"}
        handles = exp.jobs[0].handles  # type: ignore[union-attr]
        assert len(handles) == 2
        assert all(handle.startswith("local_persistent://nemo_run/pair-") for handle in handles)

    def test_each_member_may_have_its_own_executor(self) -> None:
        executors: list[Any] = [run.LocalExecutor(env_vars={"X": x}) for x in ("left", "right")]
        with experiment() as exp:
            exp.add([script("echo $X")] * 2, executor=executors, name="g")
            exp.run()
        logs = Path(exp._exp_dir).glob("g/nemo_run/*/*/0/combined.log")
        assert sorted(log.read_text() for log in logs) == ["left\n", "right\n"]

    def test_a_member_that_fails_ends_the_others(self) -> None:
        started = time.monotonic()
        with experiment() as exp:
            exp.add([script("sleep 600"), script("sleep 0.2; exit 3")], name="g")
            exp.run()
        assert time.monotonic() - started < patience.seconds(20)
        assert states(exp) == {"g": "FAILED"}
        assert [state.name for state in exp.jobs[0].states] == ["CANCELLED", "FAILED"]  # type: ignore[union-attr]

    def test_a_member_that_finishes_first_does_not_end_the_others(self) -> None:
        with experiment() as exp:
            exp.add([script("sleep 0.5; echo late"), script("true")], name="g")
            exp.run()
        assert states(exp) == {"g": "SUCCEEDED"}
        logs = Path(exp._exp_dir).glob("g/nemo_run/*/g-0/0/combined.log")
        assert [log.read_text() for log in logs] == ["late\n"]

    def test_a_group_can_depend_and_be_depended_on(self, tmp_path: Path) -> None:
        file = tmp_path / "order"
        with experiment() as exp:
            first = exp.add(stamp(file, "a", "sleep 0.1"), name="a")
            group = exp.add(
                [stamp(file, name, "sleep 0.1") for name in "bc"], name="g", dependencies=[first]
            )
            exp.add(stamp(file, "d"), name="d", dependencies=[group])
            exp.run()
        lines = file.read_text().split()
        assert lines[:2] == ["a+", "a-"]
        assert lines[-2:] == ["d+", "d-"]

    def test_all_executors_are_of_one_kind(self) -> None:
        class Other(run.LocalExecutor):
            pass

        both: list[Any] = [run.LocalExecutor(), Other()]
        with experiment() as exp, pytest.raises(AssertionError):
            exp.add([script("true")] * 2, executor=both, name="g")

    def test_cancelling_a_group_ends_all_members(self) -> None:
        with experiment() as exp:
            exp.add([script("sleep 60"), script("sleep 60")], name="g")
            exp.run(detach=True)
        exp.cancel("g")
        assert states(exp) == {"g": "CANCELLED"}


class TestDirect:
    def test_runs_in_this_process(self, tmp_path: Path) -> None:
        file = tmp_path / "pid"
        with experiment() as exp:
            exp.add(run.Partial(tasks.note_process, path=str(file)), name="a")
            exp.run(direct=True)
        assert int(file.read_text()) == os.getpid()
        assert states(exp) == {"a": "SUCCEEDED"}
        assert statuses(exp)["a"]["handle"] == "local_persistent://nemo_run/a_direct_run"

    def test_output_is_kept_in_the_job_directory(self) -> None:
        with experiment() as exp:
            exp.add(run.Partial(tasks.say, text="kept"), name="a")
            exp.run(direct=True)
        log = Path(exp._exp_dir) / "a" / "log_a_direct_run.out"
        assert "kept\n" in log.read_text()

    def test_jobs_run_in_the_order_they_were_added(self, tmp_path: Path) -> None:
        file = tmp_path / "order"
        with experiment() as exp:
            for name in "cab":
                exp.add(run.Partial(tasks.append, path=str(file), text=name), name=name)
            exp.run(direct=True)
        assert file.read_text().split() == ["c", "a", "b"]

    def test_an_exception_comes_through(self) -> None:
        with pytest.raises(LookupError, match="nothing there"), experiment() as exp:
            exp.add(run.Partial(tasks.explode), name="a")
            exp.run(direct=True)

    def test_groups_and_dependencies_are_refused(self) -> None:
        with experiment() as exp:
            exp.add([script("true")] * 2, name="g")
            with pytest.raises(AssertionError):
                exp.run(direct=True)
        with experiment() as exp:
            first = exp.add(script("true"), name="a")
            exp.add(script("true"), name="b", dependencies=[first])
            with pytest.raises(AssertionError):
                exp.run(direct=True)

    def test_streams_are_restored(self) -> None:
        import sys

        before = (sys.stdout, sys.stderr)
        with experiment() as exp:
            exp.add(run.Partial(tasks.say), name="a")
            exp.run(direct=True)
        assert (sys.stdout, sys.stderr) == before


class TestDryRun:
    def test_shows_every_request_and_leaves_nothing(
        self, nemorun_home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with run.Experiment("demo", log_level="WARN") as exp:
            exp.add(run.Script("one-special.sh"), name="one")
            exp.add([script("true")] * 2, name="two")
            exp.dryrun()
        out = capsys.readouterr().out
        assert "Task one" in out
        assert "Task Group two" in out
        assert "one-special.sh" in out
        assert not Path(exp._exp_dir).exists()
        assert list(nemorun_home.glob("jobs/*/*")) == []

    def test_the_directory_can_be_kept(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="one")
            exp.dryrun(delete_exp_dir=False)
        assert (Path(exp._exp_dir) / "one" / "scripts" / "one.sh").exists()

    def test_it_can_be_run_afterwards(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="one")
            exp.dryrun()
            exp.run()
        assert states(exp) == {"one": "SUCCEEDED"}

    def test_it_can_be_silent(self, capfd: pytest.CaptureFixture[str]) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="one")
            exp.dryrun(log=False)
        assert capfd.readouterr() == ("", "")


class TestDetaching:
    def test_returns_while_jobs_run_and_they_go_on(self, tmp_path: Path) -> None:
        file = tmp_path / "order"
        with experiment() as exp:
            first = exp.add(stamp(file, "a", "[ -e go ]"), name="a")
            exp.add(stamp(file, "b"), name="b", dependencies=[first])
            exp.run(detach=True)
        (tmp_path / "go").touch()
        exp.wait()
        assert file.read_text().split() == ["a+", "a-", "b+", "b-"]
        assert states(exp) == {"a": "SUCCEEDED", "b": "SUCCEEDED"}

    def test_a_job_that_waits_can_be_cancelled(self, tmp_path: Path) -> None:
        with experiment() as exp:
            first = exp.add(stamp(tmp_path / "order", "a", "[ -e go ]"), name="a")
            exp.add(script("true"), name="b", dependencies=[first])
            exp.run(detach=True)
        exp.cancel("b")
        assert states(exp)["b"] == "CANCELLED"
        (tmp_path / "go").touch()
        exp.wait()
        assert states(exp) == {"a": "SUCCEEDED", "b": "CANCELLED"}

    def test_failure_can_be_asked_for_after_waiting(self) -> None:
        with experiment(check=True) as exp:
            exp.add(script("sleep 0.2; exit 3"), name="a")
            exp.run(detach=True)
        exp.wait()
        with pytest.raises(JobFailedError):
            exp.raise_if_failed()

    def test_resuming_what_has_ended_starts_nothing(self, tmp_path: Path) -> None:
        file = tmp_path / "ran"
        with experiment() as exp:
            exp.add(script(f"echo x >> '{file}'"), name="a")
            exp.run()
        run.Experiment.from_id(exp._id).resume()
        assert file.read_text() == "x\n"


class TestOutput:
    def test_clean_mode_prints_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        with run.Experiment("demo", clean_mode=True, log_level="WARN") as exp:
            exp.add(script("echo from the job"), name="a")
            exp.run()
        assert capfd.readouterr() == ("", "")

    def test_tells_how_to_come_back(self, capsys: pytest.CaptureFixture[str]) -> None:
        with run.Experiment("demo", log_level="WARN") as exp:
            exp.add(script("true"), name="a")
            exp.run()
        out = capsys.readouterr().out
        assert "demo" in out
        assert "from_id" in out
        assert exp._id in out
        assert f"nemorun experiment status {exp._id}\n" in out
        assert "SUCCEEDED" in out

    def test_names_are_printed_as_they_are(self, capsys: pytest.CaptureFixture[str]) -> None:
        with run.Experiment("rate:100:percent", executor=run.LocalExecutor()) as exp:
            exp.add(script("true"), name="job:100:")
            exp.run()
        out = capsys.readouterr().out
        assert f"from_id('{exp._id}')" in out
        assert "logs('job:100:')" in out

    def test_the_hint_can_be_left_out(self, capsys: pytest.CaptureFixture[str]) -> None:
        with run.Experiment("demo", log_level="WARN", enable_goodbye_message=False) as exp:
            exp.add(script("true"), name="a")
            exp.run()
        assert "from_id" not in capsys.readouterr().out

    def test_the_table_can_be_left_out(self, capsys: pytest.CaptureFixture[str]) -> None:
        with run.Experiment("demo", log_level="WARN", skip_status_at_exit=True) as exp:
            exp.add(script("true"), name="a")
            exp.run()
        assert "Experiment Status" not in capsys.readouterr().out

    def test_logs_can_be_followed(self, capfd: pytest.CaptureFixture[str]) -> None:
        with run.Experiment("demo", log_level="WARN") as exp:
            exp.add(script("echo from-a"), name="a")
            exp.add(script("echo from-b"), name="b")
            exp.run(tail_logs=True)
        out = "".join(capfd.readouterr())
        assert "a/0 from-a" in out
        assert "b/0 from-b" in out

    def test_one_job_can_be_followed(self, capfd: pytest.CaptureFixture[str]) -> None:
        with run.Experiment("demo", log_level="WARN", skip_status_at_exit=True) as exp:
            exp.add(script("echo from-a"), name="a", tail_logs=True)
            exp.add(script("echo from-b"), name="b")
            exp.run()
        out = "".join(capfd.readouterr())
        assert "from-a" in out
        assert "from-b" not in out

    def test_the_loggers_of_the_application_are_left_alone(self) -> None:
        root = logging.getLogger()
        before = (list(root.handlers), root.level)
        with experiment(log_level="DEBUG") as exp:
            exp.add(script("true"), name="a")
            exp.run()
        assert (list(root.handlers), root.level) == before


class TestThreads:
    def test_experiments_run_side_by_side_in_threads(self) -> None:
        def launch(number: int) -> dict[str, str]:
            with experiment(f"thread{number}") as exp:
                first = exp.add(script("sleep 0.2"), name=f"a{number}")
                exp.add(script("true"), name=f"b{number}", dependencies=[first])
                exp.run()
            return states(exp)

        with ThreadPoolExecutor(4) as pool:
            ends = list(pool.map(launch, range(4)))
        assert ends == [{f"a{n}": "SUCCEEDED", f"b{n}": "SUCCEEDED"} for n in range(4)]

    def test_an_inner_experiment_does_not_close_the_outer_one(self) -> None:
        with experiment("outer") as outer:
            outer.add(script("true"), name="a")
            with experiment("inner") as inner:
                inner.add(script("true"), name="x")
                inner.run()
            outer.add(script("true"), name="b")
            outer.run()
        assert states(outer) == {"a": "SUCCEEDED", "b": "SUCCEEDED"}


class TestPlaces:
    def test_the_home_may_have_any_name(self, tmp_path: Path) -> None:
        run.config.set_nemorun_home(str(tmp_path / 'it\'s "my" home\n$X naïve'))
        with experiment() as exp:
            exp.add(script("echo hi"), name="a")
            exp.add(run.Partial(tasks.say, text="hi"), name="b")
            exp.run()
        assert (log_of(exp, "a"), log_of(exp, "b")) == ("hi\n", "hi\n")

    def test_a_title_is_measured_in_bytes(self) -> None:
        with pytest.raises(ConfigError):
            run.Experiment("é" * 150)

    def test_jobs_inherit_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FROM_LAUNCHER", "x y")
        with experiment() as exp:
            exp.add(script('echo "$FROM_LAUNCHER"'), name="a")
            exp.run()
        assert log_of(exp, "a") == "x y\n"


class TestFailuresOfOurs:
    def test_an_executor_without_a_scheduler_is_refused(self) -> None:
        class Homeless(run.LocalExecutor):
            SCHEDULER = ""

        with experiment() as exp, pytest.raises(ConfigError, match="Homeless"):
            exp.add(script("true"), executor=Homeless(), name="a")
            exp.run()

    def test_a_directory_that_is_there_already_is_not_written_over(self) -> None:
        with experiment(id="mine") as exp:
            exp.add(script("true"), name="a")
            exp.run()
        with experiment(id="mine") as again, pytest.raises((ConfigError, FileExistsError)):
            again.add(script("true"), name="b")
            again.run()
        assert states(run.Experiment.from_id("mine")) == {"a": "SUCCEEDED"}

    def test_other_ranks_of_a_slurm_step_do_not_write(
        self, nemorun_home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SLURM_PROCID", "1")
        with experiment() as exp:
            exp.add(run.Partial(tasks.say), name="a")
            exp.run(direct=True)
        assert not (Path(exp._exp_dir) / "_TASKS").exists()


def test_status_is_also_json() -> None:
    with experiment() as exp:
        exp.add(script("exit 3"), name="a")
        exp.run()
    parsed = json.loads(exp.status_json())
    assert parsed["a"]["status"] == "FAILED"
    assert parsed["a"]["exit_code"] == 3
