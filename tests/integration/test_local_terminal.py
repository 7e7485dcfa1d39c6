"""What people see and press in a terminal, and what is left when they close it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from tests import patience
from tests.contract.experiments import states
from tests.integration.launching import alive, launch, lines, only_experiment, wait_for, write
from tests.integration.terminals import Terminal

pytestmark = pytest.mark.slow

WAIT = "while [ ! -e go ]; do sleep 0.05; done"


def test_a_live_panel_shows_state_time_and_last_line_of_each_job(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "with run.Experiment('pa[/]nel', log_level='WARN') as exp:\n"
        f"    exp.add(script('echo step one; {WAIT}'), name='train')\n"
        f"    exp.add(script('echo other words; {WAIT}; exit 3'), name='other')\n"
        "    exp.add(script('true'), name='after', dependencies=['train'])\n"
        "    exp.run()\n",
    )
    terminal = Terminal(path)
    for job, last in (("train", "step one"), ("other", "other words")):
        shown = re.compile(rf"{job} +RUNNING +\d+\.\d s +{last} ")
        terminal.wait_for(shown.search, f"the line of {job}")
    assert re.search(r"after waits for train +│", terminal.text())
    assert re.search(r"╭─ pa\[/\]nel_\d+ ─+╮", terminal.text())
    (tmp_path / "go").touch()
    assert terminal.wait() == 1, "one failed, and the program did not look"
    end = terminal.text().rpartition("╭")[2].partition("╯")[2]
    assert re.search(r"train +SUCCEEDED +local +0 +\d+\.\d s", end)
    assert re.search(r"other +FAILED +local +3 +\d+\.\d s .*  last line: other words", end)
    assert re.search(r"after +SUCCEEDED +local +0 +\d+\.\d s", end)
    terminal.close()


def test_a_closed_terminal_leaves_a_detached_experiment_to_any_other(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "with run.Experiment('left', log_level='WARN') as exp:\n"
        f"    exp.add(script('echo $$ > pid; echo up; {WAIT}; echo more; sleep 600'), name='a')\n"
        "    exp.add(script('true'), name='b', dependencies=['a'])\n"
        "    exp.run(detach=True)\n"
        "print('launched'); time.sleep(600)\n",
    )
    terminal = Terminal(path)
    terminal.wait_for(lambda text: "launched" in text, "the launch")
    wait_for(lambda: lines(tmp_path / "pid"), "the start of the job")
    terminal.close()
    terminal.process.wait(patience.seconds(30))

    asked = launch(
        write(tmp_path, "print(run.Experiment.from_title('left').status_json())\n", "ask.py")
    )
    assert '"status": "RUNNING"' in asked.stdout, asked.stderr
    follow = Terminal(write(tmp_path, "run.Experiment.from_title('left').logs('a')\n", "follow.py"))
    follow.wait_for(lambda text: "up" in text, "what was printed before")
    (tmp_path / "go").touch()
    follow.wait_for(lambda text: "more" in text, "what is printed now")
    (pid,) = map(int, lines(tmp_path / "pid"))
    assert alive(pid)
    cancelled = launch(
        write(tmp_path, "run.Experiment.from_title('left').cancel('a')\n", "cancel.py")
    )
    assert cancelled.returncode == 0, cancelled.stderr
    assert not alive(pid)
    assert follow.wait() == 0  # following ends with the job
    follow.close()
    exp = only_experiment("left")
    exp.wait()
    assert states(exp) == {"a": "CANCELLED", "b": "CANCELLED"}


def test_ctrl_c_leaves_a_detached_experiment_running(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "with run.Experiment('left', log_level='WARN') as exp:\n"
        "    exp.add(script('echo $$ > pid; sleep 600'), name='a')\n"
        "    exp.run(detach=True)\n"
        "    print('launched'); exp.wait()\n",
    )
    terminal = Terminal(path)
    terminal.wait_for(lambda text: "launched" in text, "the launch")
    wait_for(lambda: lines(tmp_path / "pid"), "the start of the job")
    terminal.press_ctrl_c()
    assert terminal.wait() != 0
    terminal.close()
    (pid,) = map(int, lines(tmp_path / "pid"))
    exp = only_experiment("left")
    assert states(exp) == {"a": "RUNNING"}
    assert alive(pid)
    exp.cancel("a")
    assert not alive(pid)


def test_ctrl_c_while_waiting_ends_the_jobs_and_tells_how_they_ended(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "with run.Experiment('ended', log_level='WARN') as exp:\n"
        "    exp.add(script('echo $$ > pid; sleep 600'), name='a')\n"
        "    exp.run()\n",
    )
    terminal = Terminal(path)
    wait_for(lambda: lines(tmp_path / "pid"), "the start of the job")
    terminal.wait_for(lambda text: "Waiting for" in text, "the end of launching")
    terminal.press_ctrl_c()
    assert terminal.wait() != 0
    assert re.search(r"0 +\w+ +CANCELLED ", terminal.text())
    terminal.close()
    assert Path(only_experiment("ended")._exp_dir, "_DONE").exists()


@pytest.mark.timeout(240)
def test_ctrl_c_while_launching_leaves_no_job_behind(tmp_path: Path) -> None:
    count = 60
    path = write(
        tmp_path,
        "with run.Experiment('many', log_level='WARN') as exp:\n"
        f"    for number in range({count}):\n"
        "        exp.add(script('echo $$ >> pids; exec sleep 600'), name=f'job{number}')\n"
        "    exp.run()\n",
    )
    terminal = Terminal(path)
    wait_for(lambda: len(lines(tmp_path / "pids")) >= 3, "the first jobs", timeout_s=60)
    terminal.press_ctrl_c()
    assert terminal.wait() != 0
    terminal.close()
    exp = only_experiment("many")
    assert states(exp) == {f"job{number}": "CANCELLED" for number in range(count)}
    time.sleep(1)  # for those that somebody may still be starting
    pids = list(map(int, lines(tmp_path / "pids")))
    wait_for(lambda: not any(map(alive, pids)), "the end of all processes")
