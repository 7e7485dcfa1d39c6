"""Coming back to an experiment: finding it, asking about it, cancelling, running it again."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from tests.contract import tasks
from tests.contract.experiments import experiment, log_of, script, states, statuses
from tests.contract.plugins import SetVariable
from tests.integration.launching import alive, lines, wait_for
from torchx.specs import AppState

import nemo_run as run
from nemo_run.exceptions import ConfigError


def make(title: str = "demo", text: str = "echo hi", **settings: object) -> run.Experiment:
    with experiment(title, **settings) as exp:
        exp.add(script(text), name="job")
        exp.run()
    return exp


class TestFinding:
    def test_by_id(self) -> None:
        made = make()
        found = run.Experiment.from_id(made._id)
        assert (found._id, found._title) == (made._id, "demo")
        assert Path(found._exp_dir) == Path(made._exp_dir)
        assert [job.id for job in found.jobs] == ["job"]
        assert found.tasks[0] == script("echo hi")

    def test_by_an_id_of_ones_own(self) -> None:
        make("demo", id="mine")
        assert run.Experiment.from_id("mine")._title == "demo"

    def test_by_a_title_with_underscores(self) -> None:
        made = make("a_b_c")
        assert run.Experiment.from_id(made._id)._title == "a_b_c"

    def test_by_a_title_with_slashes(self) -> None:
        made = make("team/net")
        assert run.Experiment.from_id(made._id)._title == "team/net"
        assert run.Experiment.from_title("team/net")._id == made._id
        assert run.Experiment.catalog("team/net") == [Path(made._exp_dir).name]

    def test_by_a_directory_of_its_own(self, tmp_path: Path) -> None:
        other = str(tmp_path / "other")
        made = make("demo", base_dir=other)
        assert run.Experiment.from_id(made._id, base_dir=other)._id == made._id
        assert run.Experiment.from_title("demo", base_dir=other)._id == made._id
        assert run.Experiment.catalog("demo", base_dir=other) == [made._id]

    def test_what_lies_elsewhere_is_found_through_the_home(self, tmp_path: Path) -> None:
        made = make("demo", base_dir=str(tmp_path / "other"))
        found = run.Experiment.from_id(made._id)
        assert Path(found._exp_dir).samefile(made._exp_dir)
        assert states(found) == {"job": "SUCCEEDED"}

    def test_an_id_that_is_not_there_is_named(self) -> None:
        make()
        with pytest.raises(AssertionError, match="demo_17"):
            run.Experiment.from_id("demo_17")

    def test_a_title_that_is_not_there_is_named(self) -> None:
        with pytest.raises(ConfigError, match="nowhere"):
            run.Experiment.from_title("nowhere")

    def test_a_title_without_runs_is_named(self, nemorun_home: Path) -> None:
        (nemorun_home / "experiments" / "empty").mkdir(parents=True)
        with pytest.raises(ConfigError, match="empty"):
            run.Experiment.from_title("empty")

    def test_an_id_cannot_leave_the_home(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError):
            run.Experiment.from_id("../../x_1")

    def test_the_latest_of_a_title_is_the_one_with_the_latest_time_in_its_id(self) -> None:
        first, second = make(), make()
        os.utime(first._exp_dir)  # as copying would
        Path(first._exp_dir, "note").touch()
        assert run.Experiment.from_title("demo")._id == second._id

    def test_the_catalogue_is_in_order_the_oldest_first(self) -> None:
        ids = [make()._id for _ in range(3)]
        Path(run.Experiment.from_id(ids[0])._exp_dir, "note").touch()
        assert run.Experiment.catalog("demo") == ids

    def test_the_catalogue_without_a_title_is_of_titles(self) -> None:
        make("one")
        make("two")
        assert sorted(run.Experiment.catalog()) == ["one", "two"]

    def test_the_catalogue_of_nothing_is_empty(self) -> None:
        assert run.Experiment.catalog() == []
        assert run.Experiment.catalog("nowhere") == []

    def test_a_copied_home_can_be_read(self, nemorun_home: Path, tmp_path: Path) -> None:
        made = make()
        moved = tmp_path / "moved"
        shutil.move(nemorun_home, moved)
        run.config.set_nemorun_home(str(moved))
        found = run.Experiment.from_id(made._id)
        assert states(found) == {"job": "SUCCEEDED"}


class TestLooking:
    def test_running_what_was_found_does_nothing(self, tmp_path: Path) -> None:
        file = tmp_path / "ran"
        made = make(text=f"echo x >> '{file}'")
        with run.Experiment.from_id(made._id) as found:
            found.run()
        assert file.read_text() == "x\n"

    def test_leaving_the_context_of_what_was_found_changes_nothing(self) -> None:
        made = make()
        before = sorted(path.name for path in Path(made._exp_dir).iterdir())
        with run.Experiment.from_id(made._id) as found:
            assert states(found) == {"job": "SUCCEEDED"}
        assert sorted(path.name for path in Path(made._exp_dir).iterdir()) == before

    def test_leaving_the_context_of_what_was_found_asks_for_no_launch(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make(clean_mode=False)
        capsys.readouterr()
        with run.Experiment.from_title("demo") as found:
            found.status()
        assert "launched" not in capsys.readouterr().out

    def test_looking_executes_nothing_that_was_saved(self, tmp_path: Path) -> None:
        made = make()
        evidence = tmp_path / "executed"
        Path(made._exp_dir, "__main__.py").write_text(f"open({str(evidence)!r}, 'a').write('x')\n")
        found = run.Experiment.from_id(made._id)
        found.status(return_dict=True)
        found.logs("job")
        found.cancel("job")
        assert list(found.jobs)
        assert not evidence.exists()

    def test_functions_are_there_again(self) -> None:
        with experiment() as exp:
            exp.add(run.Partial(tasks.fit, net=run.Config(tasks.Net, width=4)), name="a")
            exp.run()
        task = run.Experiment.from_id(exp._id).tasks[0]
        assert task == run.Partial(tasks.fit, net=run.Config(tasks.Net, width=4))


class TestStatus:
    def test_says_everything_about_each_job_in_order(self) -> None:
        with experiment() as exp:
            exp.add(script("sleep 0.4"), name="slow")
            exp.add(script("exit 3"), name="bad")
            exp.run()
        status = statuses(run.Experiment.from_id(exp._id))
        assert list(status) == ["slow", "bad"]
        bad = status["bad"]
        assert bad["name"] == "bad"
        assert bad["status"] is AppState.FAILED
        assert bad["executor"] == "LocalExecutor"
        assert bad["handle"] == f"local_persistent://nemo_run/{bad['job_id']}"
        assert bad["local_dir"] == str(Path(exp._exp_dir) / "bad")
        assert bad["exit_code"] == 3
        assert status["slow"]["exit_code"] == 0
        assert 0.3 < status["slow"]["duration_s"] < 30
        assert "remote_dir" not in bad

    def test_prints_a_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        made = make()
        found = run.Experiment.from_id(made._id)
        found.console.quiet = False
        assert found.status() is None
        out = capsys.readouterr().out
        assert f"Directory: {made._exp_dir}\n" in out
        assert "   JOB  STATE      EXECUTOR  EXIT  TOOK   CPU    MEMORY " in out
        assert re.search(
            r"0  job  SUCCEEDED  local     0     \d+\.\d s  \d+\.\d s  [\d.]+ MiB\n", out
        )
        assert "1 job: 1 SUCCEEDED\n" in out

    def test_before_running_jobs_are_unsubmitted(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="a")
            assert states(exp) == {"a": "UNSUBMITTED"}

    def test_a_running_job_is_running(self) -> None:
        with experiment() as exp:
            exp.add(script("sleep 60"), name="a")
            exp.run(detach=True)
        found = run.Experiment.from_id(exp._id)
        assert states(found)["a"] in {"SUBMITTED", "PENDING", "RUNNING"}
        found.cancel("a")
        assert states(found) == {"a": "CANCELLED"}

    def test_nothing_is_printed_when_it_is_returned(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        made = make()
        capfd.readouterr()
        run.Experiment.from_id(made._id).status(return_dict=True)
        assert capfd.readouterr() == ("", "")


class TestLogs:
    def test_are_printed_to_stderr(self, capfd: pytest.CaptureFixture[str]) -> None:
        made = make(text="echo alpha; echo beta")
        run.Experiment.from_id(made._id).logs("job")
        out, err = capfd.readouterr()
        assert out == ""
        assert "alpha\nbeta\n" in err

    def test_lines_can_be_chosen(self, capfd: pytest.CaptureFixture[str]) -> None:
        made = make(text="echo alpha; echo beta")
        run.Experiment.from_id(made._id).logs("job", regex="^al")
        err = capfd.readouterr().err
        assert "alpha" in err
        assert "beta" not in err

    def test_of_a_group_are_those_of_all(self, capfd: pytest.CaptureFixture[str]) -> None:
        with experiment() as exp:
            exp.add([script("echo left"), script("echo right")], name="g")
            exp.run()
        exp.logs("g")
        err = capfd.readouterr().err
        assert "left" in err
        assert "right" in err

    def test_of_a_job_that_is_not_there_raise_nothing(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with run.Experiment("demo", log_level="WARN") as exp:
            exp.add(script("true"), name="job")
            exp.run()
        capfd.readouterr()
        exp.logs("nowhere")
        assert "nowhere" in "".join(capfd.readouterr())

    def test_of_a_job_that_was_not_started_raise_nothing(self) -> None:
        with experiment() as exp:
            bad = exp.add(script("false"), name="bad")
            exp.add(script("true"), name="after", dependencies=[bad])
            exp.run()
        exp.logs("after")

    def test_of_a_direct_run_point_to_the_directory(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with run.Experiment("demo", log_level="WARN") as exp:
            exp.add(run.Partial(tasks.say), name="a")
            exp.run(direct=True)
        capfd.readouterr()
        exp.logs("a")
        assert exp._id in "".join(capfd.readouterr()).replace("\n", "")


class TestCancelling:
    def test_ends_the_job(self) -> None:
        with experiment() as exp:
            exp.add(script("sleep 60"), name="a")
            exp.run(detach=True)
        run.Experiment.from_id(exp._id).cancel("a")
        assert states(exp) == {"a": "CANCELLED"}

    def test_dependents_are_cancelled_with_the_reason(self) -> None:
        with experiment() as exp:
            first = exp.add(script("sleep 60"), name="a")
            exp.add(script("true"), name="b", dependencies=[first])
            exp.run(detach=True)
        exp.cancel("a")
        exp.wait()
        assert states(exp) == {"a": "CANCELLED", "b": "CANCELLED"}
        assert "a" in statuses(exp)["b"]["message"]

    def test_what_was_submitted_and_not_yet_written_down_is_ended_too(self, tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        with experiment() as exp:
            exp.add(script(f"echo $$ > '{pid}'; exec sleep 600"), name="a")
            exp.run(detach=True)
        wait_for(lambda: lines(pid), "the start")
        # As a launcher leaves it that is killed when the job has begun.
        file = Path(exp._exp_dir, "_STATE", "0.json")
        (member,) = json.loads(file.read_text())["members"]
        left = {"tag": member["tag"], "handle": "", "state": "UNSUBMITTED"}
        file.write_text(json.dumps({"members": [left]}))

        run.Experiment.from_id(exp._id).cancel("a", check=True)

        assert states(run.Experiment.from_id(exp._id)) == {"a": "CANCELLED"}
        assert not alive(int(lines(pid)[0]))

    def test_what_was_not_even_submitted_never_is(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        with experiment() as exp:
            first = exp.add(script("sleep 600"), name="a")
            exp.add(script(f"touch '{ran}'"), name="b", dependencies=[first])
            exp.run(detach=True)
        exp.cancel("a")
        exp.wait()
        # As a launcher leaves it that is killed just before it submits the job.
        file = Path(exp._exp_dir, "_STATE", "1.json")
        left = {"tag": "nr-0123456789abcdef", "handle": "", "state": "UNSUBMITTED"}
        file.write_text(json.dumps({"members": [left]}))

        run.Experiment.from_id(exp._id).cancel("b", check=True)

        found = run.Experiment.from_id(exp._id)
        assert states(found) == {"a": "CANCELLED", "b": "CANCELLED"}
        found.resume()
        assert not ran.exists()

    def test_twice_is_fine(self) -> None:
        made = make()
        made.cancel("job")
        made.cancel("job")
        assert states(made) == {"job": "SUCCEEDED"}

    def test_a_job_that_is_not_there_raises_nothing(self) -> None:
        make().cancel("nowhere")


class TestAgain:
    def test_has_a_new_id_and_leaves_the_old_run_alone(self) -> None:
        made = make()
        before = {
            path: path.read_bytes() for path in Path(made._exp_dir).rglob("*") if path.is_file()
        }
        again = run.Experiment.from_id(made._id).reset()
        assert again._id != made._id
        with again:
            again.run()
        assert states(again) == {"job": "SUCCEEDED"}
        assert {
            path: path.read_bytes() for path in Path(made._exp_dir).rglob("*") if path.is_file()
        } == before

    def test_tasks_can_be_edited_first(self) -> None:
        with experiment() as exp:
            exp.add(run.Partial(tasks.say, text="first"), name="a")
            exp.run()
        again = run.Experiment.from_id(exp._id).reset()
        with again:
            again.tasks[0].text = "second"
            again.run()
        assert log_of(again, "a") == "second\n"
        assert log_of(exp, "a") == "first\n"

    def test_dependencies_plugins_policies_and_groups_are_kept(self) -> None:
        with experiment() as exp:
            bad = exp.add(script("false"), name="bad", tail_logs=True)
            exp.add(
                script("echo $X"),
                name="after",
                dependencies=[bad],
                run_if="failed",
                plugins=[SetVariable(name="X", value="1")],
            )
            exp.add([script("true")] * 2, name="g", dependencies=[bad])
            exp.run()
        again = run.Experiment.from_id(exp._id).reset()
        assert [job.dependencies for job in again.jobs] == [[], ["bad"], ["bad"]]
        assert again.jobs[1].plugins == [SetVariable(name="X", value="1")]
        assert again.jobs[0].tail_logs is True
        with again:
            again.run()
        assert states(again) == states(exp)
        assert states(again) == {"bad": "FAILED", "after": "SUCCEEDED", "g": "CANCELLED"}

    def test_plugins_are_not_applied_twice(self) -> None:
        from tests.contract.plugins import Louder

        with experiment() as exp:
            exp.add(run.Partial(tasks.say, text="x"), name="a", plugins=[Louder()])
            exp.run()
        again = run.Experiment.from_id(exp._id).reset()
        with again:
            again.run()
        assert log_of(again, "a") == "X\n"

    def test_stays_in_its_own_directory(self, tmp_path: Path) -> None:
        other = tmp_path / "other"
        made = make(base_dir=str(other))
        again = run.Experiment.from_id(made._id).reset()
        assert Path(again._exp_dir).is_relative_to(other)
        with again:
            again.run()
        assert states(run.Experiment.from_id(again._id)) == {"job": "SUCCEEDED"}

    def test_executes_nothing_that_was_saved_until_it_runs(self, tmp_path: Path) -> None:
        made = make()
        evidence = tmp_path / "executed"
        Path(made._exp_dir, "__main__.py").write_text(f"open({str(evidence)!r}, 'a').write('x')\n")
        again = run.Experiment.from_id(made._id).reset()
        assert again.jobs
        assert not evidence.exists()

    def test_the_same_object_can_be_run_again(self) -> None:
        made = make()
        first = made._id
        with made.reset() as again:
            again.run()
        assert again is made
        assert again._id != first
        assert states(again) == {"job": "SUCCEEDED"}
        assert len(run.Experiment.catalog("demo")) == 2

    def test_before_it_ran_there_is_nothing_to_reset(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="a")
            before = exp._id
            exp.reset()
            assert exp._id == before

    def test_jobs_can_be_added(self) -> None:
        made = make()
        with made.reset() as again:
            again.add(script("echo more"), name="more", dependencies=["job"])
            again.run()
        assert states(again) == {"job": "SUCCEEDED", "more": "SUCCEEDED"}
