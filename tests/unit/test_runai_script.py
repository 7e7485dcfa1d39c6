"""The script that a workload's pods run, run for real."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests import patience

from nemo_run._backends.kubernetes.script import render
from nemo_run.core.execution.launcher import FaultTolerance
from nemo_run.exceptions import ConfigError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "it's a job"
    (path / "code").mkdir(parents=True)
    return path


def start(directory: Path, argv: list[str], **settings: object) -> subprocess.Popen[str]:
    text = render(argv, name="job", directory=str(directory), **{"env": {}, **settings})  # type: ignore[arg-type]
    # Nothing is put into the root directory of this machine.
    text = text.replace("ln -s", "true")
    script = directory / "launch_script.sh"
    script.write_text(text)
    return subprocess.Popen(
        ["/bin/bash", str(script)],
        env={"PATH": os.environ["PATH"], "HOSTNAME": "job-worker-3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=patience.seconds(60))
    return process.returncode, output


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
def test_it_ends_with_the_code_of_the_task(directory: Path, code: int) -> None:
    assert outcome(start(directory, ["bash", "-c", f"exit {code}"])) == (code, "")


def test_what_is_printed_goes_to_the_log_and_to_the_volume(directory: Path) -> None:
    said = "out\nerr\nno newline"
    code, output = outcome(
        start(directory, ["bash", "-c", "echo out; echo err >&2; printf 'no newline'"])
    )
    assert (code, output) == (0, said)
    assert (directory / "log_job-worker-3.out").read_text() == said
    assert (directory / "log-allranks_0.out").read_text() == said


def test_the_task_starts_in_its_code(directory: Path) -> None:
    assert outcome(start(directory, ["pwd"])) == (0, f"{directory / 'code'}\n")


def test_without_code_it_starts_in_the_directory_of_the_job(directory: Path) -> None:
    (directory / "code").rmdir()
    assert outcome(start(directory, ["pwd"])) == (0, f"{directory}\n")


def test_the_environment_is_as_given(directory: Path) -> None:
    show = 'printf "%s|" "$A" "$GROUP_RANK" "$PYTHONUNBUFFERED" "$TORCHX_MAX_RETRIES"'
    env = {"A": 'it\'s $HOME; "x"\nand `date`'}
    process = start(directory, ["bash", "-c", show], env=env, nodes=4, max_retries=4)
    code, output = outcome(process)
    assert (code, output) == (0, f"{env['A']}|3|1|4|")


def test_the_only_node_is_the_first_whatever_its_pod_is_called(directory: Path) -> None:
    assert outcome(start(directory, ["bash", "-c", "echo $GROUP_RANK"])) == (0, "0\n")


def test_a_task_may_choose_what_we_set(directory: Path) -> None:
    show = ["bash", "-c", "echo $PYTHONUNBUFFERED"]
    assert outcome(start(directory, show, env={"PYTHONUNBUFFERED": "0"})) == (0, "0\n")


def test_the_task_is_told_to_end_and_its_code_counts(directory: Path) -> None:
    task = "trap 'echo cleaned; exit 5' TERM; echo up; sleep 60 & wait"
    process = start(directory, ["bash", "-c", task])
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.terminate()
    assert outcome(process) == (5, "cleaned\n")


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV"])
def test_nothing_is_added_to_what_a_task_printed_that_was_killed(
    directory: Path, name: str
) -> None:
    code, output = outcome(start(directory, ["bash", "-c", f"echo up; kill -{name} $$"]))
    assert (code > 128, output) == (True, "up\n")


def test_a_program_that_a_shell_waits_for_is_told_too(directory: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = start(directory, ["bash", "-c", 'python3 -c "$1"; echo after', "sh", program])
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    began = time.monotonic()
    process.terminate()
    _, output = outcome(process)
    assert output.startswith("saved\n")
    assert time.monotonic() - began < patience.seconds(20)


@pytest.mark.slow
def test_what_the_task_leaves_behind_is_not_waited_for(directory: Path) -> None:
    began = time.monotonic()
    pid = directory / "pid"
    leave = 'echo hi; sleep 600 & echo $! >"$1"; exit 2'
    process = start(directory, ["bash", "-c", leave, "bash", str(pid)])
    process.wait(timeout=patience.seconds(60))
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert process.returncode == 2
    assert time.monotonic() - began < patience.seconds(15)
    assert (directory / "log_job-worker-3.out").read_text() == "hi\n"
    assert process.stdout is not None
    process.stdout.close()


def test_a_name_cannot_add_lines(directory: Path) -> None:
    text = render(["true"], name="x\ntouch /tmp/owned", directory="/d", env={})
    assert "\ntouch" not in text


def test_what_no_shell_can_pass_on_is_refused() -> None:
    with pytest.raises(ConfigError, match="NUL"):
        render(["echo", "a\0b"], name="job", directory="/d", env={})
    with pytest.raises(ConfigError, match=r"'a\.b'"):
        render(["echo"], name="job", directory="/d", env={"a.b": "x"})


class TestFaultTolerance:
    @pytest.fixture
    def launcher(self, directory: Path) -> FaultTolerance:
        return FaultTolerance(
            cfg_path=f"{directory}/ft.yml",
            finished_flag_file=f"{directory}/finished",
            job_results_file=f"{directory}/results",
        )

    def test_the_task_knows_its_files(self, directory: Path, launcher: FaultTolerance) -> None:
        show = ["bash", "-c", "echo $FAULT_TOL_CFG_PATH; echo $FAULT_TOL_FINISHED_FLAG_FILE"]
        process = start(directory, show, fault_tolerance=launcher)
        assert outcome(process) == (0, f"{directory}/ft.yml\n{directory}/finished\n")

    def test_a_job_that_has_finished_is_not_run_again(
        self, directory: Path, launcher: FaultTolerance
    ) -> None:
        (directory / "finished").touch()
        (directory / "results").touch()
        assert outcome(start(directory, ["echo", "ran"], fault_tolerance=launcher)) == (0, "")

    def test_half_of_an_ending_is_removed(self, directory: Path, launcher: FaultTolerance) -> None:
        (directory / "finished").touch()
        process = start(directory, ["echo", "ran"], fault_tolerance=launcher)
        assert outcome(process) == (0, "ran\n")
        assert not (directory / "finished").exists()
