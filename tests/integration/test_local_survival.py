"""Whoever is killed: no job is lost, none runs twice, and no outcome is wrong."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests import patience
from tests.contract.experiments import experiment, log_of, script, states, statuses
from tests.integration.launching import (
    alive,
    command_line,
    conductors,
    kill,
    launch,
    lines,
    only_experiment,
    ours,
    start,
    supervisors,
    wait_for,
    write,
)

import nemo_run as run

pytestmark = pytest.mark.slow

DAG = """
ran = sys.argv[1]
def note(name, seconds):
    return script(f"echo {name} >> '{ran}'; sleep {seconds}; echo {name}-done >> '{ran}'")
with run.Experiment("dag", clean_mode=True) as exp:
    a = exp.add(note("a", 1.0), name="a")
    b = exp.add(note("b", 1.5), name="b")
    c = exp.add(note("c", 0.5), name="c", dependencies=[a])
    exp.add(note("d", 0.2), name="d", dependencies=[b, c])
    exp.run(detach=len(sys.argv) > 2)
"""

RESUME = """
exp = run.Experiment.from_title("dag")
exp.resume()
print(exp.status_json())
"""

ALL_ONCE = sorted([*"abcd", *(f"{name}-done" for name in "abcd")])


def ran_once(ran: Path) -> bool:
    return sorted(lines(ran)) == ALL_ONCE


class TestDetached:
    def test_jobs_go_on_after_the_launcher_has_gone(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        done = launch(write(tmp_path, DAG), str(ran), "detach")
        assert done.returncode == 0, done.stderr
        assert "d" not in lines(ran)
        exp = only_experiment("dag")
        exp.wait()
        assert set(states(exp).values()) == {"SUCCEEDED"}
        assert ran_once(ran)

    def test_nothing_is_left_running_afterwards(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        launch(write(tmp_path, DAG), str(ran), "detach")
        only_experiment("dag").wait()
        wait_for(lambda: not ours(), f"the end of {ours()}")

    def test_a_killed_conductor_is_replaced(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        launch(write(tmp_path, DAG), str(ran), "detach")
        wait_for(lambda: "a" in lines(ran), "the start of a")
        (conductor,) = conductors()
        assert kill(conductor)
        done = launch(write(tmp_path, RESUME, "resume.py"))
        assert done.returncode == 0, done.stderr
        assert set(states(only_experiment("dag")).values()) == {"SUCCEEDED"}
        assert ran_once(ran)

    def test_two_that_resume_do_not_run_jobs_twice(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        launch(write(tmp_path, DAG), str(ran), "detach")
        wait_for(lambda: "a" in lines(ran), "the start of a")
        for conductor in conductors():
            kill(conductor)
        path = write(tmp_path, RESUME, "resume.py")
        both = [start(path), start(path)]
        assert [process.wait(patience.seconds(60)) for process in both] == [0, 0]
        assert set(states(only_experiment("dag")).values()) == {"SUCCEEDED"}
        assert ran_once(ran)


class TestKilledLauncher:
    @pytest.mark.parametrize("moment", ["", "a", "a-done", "b-done", "c-done"])
    def test_another_process_goes_on(self, tmp_path: Path, moment: str) -> None:
        ran = tmp_path / "ran"
        launcher = start(write(tmp_path, DAG), str(ran))
        if moment:
            wait_for(lambda: moment in lines(ran), moment)
        else:
            wait_for(lambda: run.Experiment.catalog("dag"), "the directory")
            wait_for(lambda: Path(only_dir(), "_TASKS").exists(), "the list of tasks")
        launcher.kill()
        launcher.wait()
        done = launch(write(tmp_path, RESUME, "resume.py"))
        assert done.returncode == 0, done.stderr
        assert set(states(only_experiment("dag")).values()) == {"SUCCEEDED"}
        assert ran_once(ran)

    def test_until_then_running_jobs_go_on_and_the_rest_waits(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        launcher = start(write(tmp_path, DAG), str(ran))
        wait_for(lambda: {"a", "b"} <= set(lines(ran)), "the start of a and b")
        launcher.kill()
        launcher.wait()
        wait_for(lambda: {"a-done", "b-done"} <= set(lines(ran)), "the end of a and b")
        exp = only_experiment("dag")
        wait_for(lambda: states(exp)["b"] == "SUCCEEDED", "the success of b")
        assert states(exp) == {
            "a": "SUCCEEDED",
            "b": "SUCCEEDED",
            "c": "UNSUBMITTED",
            "d": "UNSUBMITTED",
        }

    def test_what_is_left_can_be_cancelled(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        launcher = start(write(tmp_path, DAG), str(ran))
        wait_for(lambda: {"a", "b"} <= set(lines(ran)), "the start of a and b")
        launcher.kill()
        launcher.wait()
        exp = only_experiment("dag")
        for job in "abcd":
            exp.cancel(job)
        assert set(states(exp).values()) == {"CANCELLED"}
        wait_for(lambda: not ours(), "the end of all processes")
        launch(write(tmp_path, RESUME, "resume.py"))
        assert sorted(lines(ran)) == ["a", "b"]


def only_dir() -> str:
    (found,) = run.Experiment.catalog("dag")
    return str(Path(os.environ["NEMORUN_HOME"]) / "experiments" / "dag" / found)


class TestKilledSupervisor:
    def test_the_outcome_is_known_all_the_same(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        with experiment() as exp:
            exp.add(script(f"echo up >> '{ran}'; sleep 1; echo end >> '{ran}'; exit 3"), name="job")
            exp.run(detach=True)
        wait_for(lambda: "up" in lines(ran), "the start")
        watching = supervisors()
        assert watching
        for pid in watching:
            kill(pid)
        exp.wait()
        assert states(exp) == {"job": "FAILED"}
        assert lines(ran) == ["up", "end"]

    @pytest.mark.parametrize("which", [0, 1])
    def test_one_of_the_two_that_watch_is_enough(self, tmp_path: Path, which: int) -> None:
        ran = tmp_path / "ran"
        text = f"echo $$ >> '{ran}'; [ \"$NEMO_RUN_ATTEMPT\" = 2 ] || sleep 600; exit 5"
        with experiment(executor=run.LocalExecutor(retries=1)) as exp:
            exp.add(script(text), name="job")
            exp.run(detach=True)
        wait_for(lambda: lines(ran), "the start")
        wait_for(lambda: len(supervisors()) == 2, "the second watcher")
        kill(sorted(supervisors())[which])
        kill(int(lines(ran)[0]))
        exp.wait()
        assert len(lines(ran)) == 2
        assert statuses(exp)["job"]["exit_code"] == 5

    def test_cancelling_leaves_nothing_running(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        with experiment() as exp:
            exp.add(script(f"echo $$ >> '{ran}'; sleep 600"), name="job")
            exp.run(detach=True)
        wait_for(lambda: lines(ran), "the start")
        for pid in supervisors():
            kill(pid)
        exp.cancel("job")
        assert states(exp) == {"job": "CANCELLED"}
        wait_for(lambda: not alive(int(lines(ran)[0])), "the end of the task")


class TestKilledTask:
    def test_a_killed_task_has_failed(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        with experiment() as exp:
            exp.add(script(f"echo $$ >> '{ran}'; sleep 600"), name="job")
            exp.run(detach=True)
        wait_for(lambda: lines(ran), "the start")
        kill(int(lines(ran)[0]))
        exp.wait()
        assert states(exp) == {"job": "FAILED"}
        assert statuses(exp)["job"]["exit_code"] in {-9, 137}

    def test_a_killed_task_with_retries_is_started_again(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        text = f"echo $$ >> '{ran}'; [ \"$NEMO_RUN_ATTEMPT\" = 2 ] || sleep 600"
        with experiment(executor=run.LocalExecutor(retries=1)) as exp:
            exp.add(script(text), name="job")
            exp.run(detach=True)
        wait_for(lambda: lines(ran), "the start")
        kill(int(lines(ran)[0]))
        exp.wait()
        assert states(exp) == {"job": "SUCCEEDED"}
        assert len(lines(ran)) == 2


class TestInterrupts:
    SCRIPT = """
with run.Experiment("dag", log_level="WARN") as exp:
    exp.add(script("trap 'sleep 0.3; echo cleaned; exit 0' TERM INT; "
                   f"echo up >> '{sys.argv[1]}'; sleep 600 & wait"), name="a")
    exp.run(tail_logs=True)
"""

    def test_once_ends_the_jobs_and_lets_them_clean_up(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        launcher = start(write(tmp_path, self.SCRIPT), str(ran))
        wait_for(lambda: lines(ran), "the start")
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.wait(patience.seconds(30)) != 0
        exp = only_experiment("dag")
        assert states(exp) == {"a": "CANCELLED"}
        assert log_of(exp, "a") == "cleaned\n"
        assert "Ctrl-C again" in (tmp_path / "launch.out").read_text()
        wait_for(lambda: not ours(), "the end of all processes")

    def test_twice_ends_jobs_that_do_not_listen(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        deaf = self.SCRIPT.replace("sleep 0.3; echo cleaned; exit 0", "")
        launcher = start(write(tmp_path, deaf.replace("wait", "while :; do wait; done")), str(ran))
        wait_for(lambda: lines(ran), "the start")
        pressed_at = time.time()
        os.killpg(launcher.pid, signal.SIGINT)
        wait_for(lambda: "Ctrl-C again" in (tmp_path / "launch.out").read_text(), "the advice")
        assert launcher.poll() is None
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.wait(patience.seconds(60)) != 0
        assert "Killing all jobs" in (tmp_path / "launch.out").read_text()
        exp = only_experiment("dag")
        assert states(exp) == {"a": "CANCELLED"}
        (state,) = exp._watch.states()
        # Asked once only, it would have had ten seconds.
        assert state.members[0].ended_at is not None
        assert state.members[0].ended_at < pressed_at + 9.5
        wait_for(lambda: not ours(), "the end of all processes")

    def test_a_closed_terminal_ends_nothing(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        launcher = start(write(tmp_path, DAG), str(ran))
        wait_for(lambda: {"a", "b"} <= set(lines(ran)), "the start of a and b")
        os.killpg(launcher.pid, signal.SIGHUP)
        launcher.wait(patience.seconds(20))
        wait_for(lambda: {"a-done", "b-done"} <= set(lines(ran)), "the end of a and b")
        done = launch(write(tmp_path, RESUME, "resume.py"))
        assert done.returncode == 0, done.stderr
        assert ran_once(ran)


def test_no_process_carries_a_secret_in_its_arguments(tmp_path: Path) -> None:
    with experiment(executor=run.LocalExecutor(env_vars={"HF_TOKEN": "hf-tok-77"})) as exp:
        exp.add(script("sleep 600"), name="a")
        exp.run(detach=True)
    commands = [command_line(pid) for pid in ours()]
    assert commands
    assert not any("hf-tok-77" in text for text in commands)
    exp.cancel("a")
    exp.wait()
