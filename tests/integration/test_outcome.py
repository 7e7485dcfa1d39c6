"""How a program ends that launched a job which failed: as it decides, or with code 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience
from tests.integration.launching import launch, write

FAILS = """
def fails(title="train", **settings):
    with run.Experiment(title, **settings) as experiment:
        experiment.add(script("echo the last words; exit 4"), name="job")
        experiment.run()
    return experiment
"""

LINE = "nemo_run: exit code 1: Job "


def ends(
    tmp_path: Path, body: str, *, words: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program that has ``fails`` at its disposal."""
    path = write(tmp_path, f"{FAILS}\n{body}\n")
    if not words:
        return launch(path, COLUMNS="200")
    return subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        timeout=patience.seconds(100),
        check=False,
    )


class TestWithoutALook:
    def test_the_program_ends_with_1_and_says_why_in_one_line(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "task = script('echo the last words; exit 4')\n"
            "run.run(task, executor=run.LocalExecutor(), name='train')\n"
            "print('returned')",
        )
        assert done.returncode == 1
        assert done.stdout.endswith("returned\n")
        lines = done.stderr.splitlines()
        assert lines[-1].startswith(f"{LINE}train FAILED with exit code 4 (experiment train_")
        assert "Traceback" not in done.stderr

    def test_the_failure_is_shown_with_its_reason(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "fails()")
        lines = done.stderr.splitlines()
        assert lines[:2] == ["Job job FAILED with exit code 4", "  | the last words"]


@pytest.mark.slow
class TestWaysToEnd:
    def test_a_thread(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "import threading\n"
            "thread = threading.Thread(target=fails)\n"
            "thread.start(); thread.join()\n"
            "sys.exit(0)",
        )
        assert (done.returncode, LINE in done.stderr) == (1, True)

    @pytest.mark.parametrize(("end", "code"), [("", 1), ("raise SystemExit(3)", 3)])
    def test_a_thread_that_lives_longer_than_the_main_program(
        self, tmp_path: Path, end: str, code: int
    ) -> None:
        done = ends(
            tmp_path,
            "import threading\n"
            "launched = threading.Event()\n"
            "def launch():\n"
            "    with run.Experiment('train') as experiment:\n"
            "        experiment.add(script('sleep 1; exit 4'), name='job')\n"
            "        experiment.run()\n"
            "        launched.set()\n"
            "threading.Thread(target=launch).start()\n"
            f"launched.wait()\n{end}",
        )
        assert (done.returncode, LINE in done.stderr) == (code, code == 1), done.stderr

    def test_a_module(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "if __name__ == '__main__': fails()", words=("-m", "launch"))
        assert (done.returncode, LINE in done.stderr) == (1, True)

    def test_a_code_of_its_own_stays(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "fails()\nraise SystemExit(3)")
        assert (done.returncode, LINE in done.stderr) == (3, False)

    def test_a_mistake_of_its_own_stays(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "fails()\nraise LookupError('mine')")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == "LookupError: mine"

    def test_what_else_runs_at_the_end_runs(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "import atexit\n"
            "fails()\n"
            "atexit.register(print, 'registered after')\n"
            "file = open('file', 'w'); file.write('buffered')\n"
            "sys.stdout.write('without a line break ')",
        )
        assert done.returncode == 1
        assert done.stdout.endswith("without a line break registered after\n")
        assert (tmp_path / "file").read_text() == "buffered"

    def test_a_look_before_it_failed_does_not_count(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "with run.Experiment('train') as experiment:\n"
            "    experiment.add(script('sleep 1; exit 4'), name='job')\n"
            "    experiment.run()\n"
            "    experiment.status(); experiment.jobs[0].state",
        )
        assert (done.returncode, LINE in done.stderr) == (1, True)

    def test_each_failure_wants_a_look(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "fails('seen').status()\nfails('unseen')")
        assert done.returncode == 1
        assert "(experiment unseen_" in done.stderr.splitlines()[-1]

    def test_going_on_with_an_experiment_is_no_look(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "fails(check=False)\nrun.Experiment.from_title('train').resume()")
        assert (done.returncode, LINE in done.stderr) == (1, True)

    def test_what_was_launched_in_clean_mode_fails_in_few_words(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "fails(clean_mode=True)")
        assert (done.returncode, done.stdout) == (1, "")
        assert "Job job FAILED with exit code 4" in " ".join(done.stderr.split())
        assert "the last words" not in done.stderr


@pytest.mark.slow
class TestWithALook:
    @pytest.mark.parametrize(
        "look",
        [
            "fails().status()",
            "fails().status(return_dict=True)",
            "fails().status_json()",
            "fails().jobs",
            "fails()._jobs[0].state",
            "fails().wait()",
            "run.Experiment.from_title((fails(), 'train')[1]).status()",
            "run.Experiment.from_id(fails()._id).jobs",
            "import atexit; experiment = fails(); atexit.register(lambda: experiment.jobs)",
        ],
    )
    def test_the_program_decides(self, tmp_path: Path, look: str) -> None:
        done = ends(tmp_path, look)
        assert done.returncode == 0, done.stderr
        assert LINE not in done.stderr

    def test_a_look_inside_the_experiment_counts(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "with run.Experiment('train') as experiment:\n"
            "    experiment.add(script('exit 4'), name='job')\n"
            "    experiment.run()\n"
            "    while experiment.status(return_dict=True)['job']['status'].name != 'FAILED':\n"
            "        time.sleep(0.05)",
        )
        assert done.returncode == 0, done.stderr

    def test_a_failure_that_was_caught_was_seen(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "try:\n    fails(check=True)\nexcept run.exceptions.JobFailedError: print('caught')",
        )
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "caught")

    def test_what_the_program_cancelled_itself_is_no_failure(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "with run.Experiment('train') as experiment:\n"
            "    first = experiment.add(script('sleep 60'), name='first')\n"
            "    experiment.add(script('true'), name='second', dependencies=[first])\n"
            "    experiment.run(detach=True)\n"
            "experiment.cancel('first')\n"
            "experiment.resume()",
        )
        assert done.returncode == 0, done.stderr

    def test_a_job_that_waits_for_a_failure_is_none(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "with run.Experiment('train') as experiment:\n"
            "    first = experiment.add(script('true'), name='first')\n"
            "    experiment.add(script('true'), dependencies=[first], run_if='failed')\n"
            "    experiment.run()\n"
            "experiment.raise_if_failed()",
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
class TestCheck:
    def test_true_raises(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "fails(check=True)")
        assert done.returncode == 1
        assert "nemo_run.exceptions.JobFailedError: Job job FAILED" in done.stderr
        assert LINE not in done.stderr

    def test_false_is_silent(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "fails(check=False)")
        assert (done.returncode, done.stderr) == (0, "")

    def test_the_outcome_of_detached_jobs_is_not_known(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "run.run(script('exit 4'), executor=run.LocalExecutor(), name='train', detach=True)",
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
class TestHosts:
    """Processes whose exit code means something else."""

    @pytest.mark.parametrize("words", [("pytest", "-q", "-p", "no:cacheprovider"), ("unittest",)])
    def test_a_test_runner_ends_as_its_tests_did(
        self, tmp_path: Path, words: tuple[str, ...]
    ) -> None:
        (tmp_path / "test_mine.py").write_text(
            "import unittest, launch\n"
            "class TestMine(unittest.TestCase):\n"
            "    def test_it(self):\n"
            "        launch.fails()\n"
        )
        done = ends(tmp_path, "", words=("-m", *words, "test_mine.py"))
        assert done.returncode == 0, done.stderr + done.stdout
        assert LINE not in done.stderr

    def test_a_script_that_a_test_starts_is_a_program(self, tmp_path: Path) -> None:
        assert "PYTEST_CURRENT_TEST" in os.environ
        assert ends(tmp_path, "import pytest, unittest.mock\nfails()").returncode == 1

    def test_a_prompt_ends_as_the_user_says(self, tmp_path: Path) -> None:
        done = ends(tmp_path, "fails()", words=("-i", "launch.py"))
        assert done.returncode == 0, done.stderr

    def test_a_notebook_ends_as_its_kernel_does(self, tmp_path: Path) -> None:
        # All that is asked of IPython is whether there is a shell.
        (tmp_path / "IPython.py").write_text("def get_ipython():\n    return object()\n")
        done = ends(tmp_path, "import IPython\nfails()")
        assert done.returncode == 0, done.stderr

    def test_children_of_the_program_are_not_concerned(self, tmp_path: Path) -> None:
        done = ends(
            tmp_path,
            "import multiprocessing\n"
            "fails()\n"
            "child = multiprocessing.get_context('fork').Process(target=print)\n"
            "child.start(); child.join()\n"
            "print('child', child.exitcode)",
        )
        assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "child 0")
