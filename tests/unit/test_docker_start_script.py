"""The script that containers run, in the shells that images have."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import patience

from nemo_run._backends.docker.files import JobFiles, MemberFiles, seen_environment

SHELLS = [
    pytest.param(["bash"], id="bash"),
    pytest.param(["dash"], id="dash"),
    pytest.param(["busybox", "sh"], id="busybox", marks=pytest.mark.needs("busybox")),
]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    shell: list[str] = request.param
    return shell


@pytest.fixture
def files(tmp_path: Path) -> MemberFiles:
    files = JobFiles.of(str(tmp_path), "job-1").member("name")
    inside = files.prepare("job-1", "name", {"A_TOKEN": "it's $HOME\n", "PLAIN": "seen"})
    assert inside == ["sh", "/nemo_run/.nemo_run/job-1/name/start.sh"]
    return files


def start(shell: list[str], files: MemberFiles, *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*shell, str(files.directory / "start.sh"), *command], stdout=subprocess.PIPE
    )


def wait_for_log(files: MemberFiles, text: str) -> None:
    deadline = patience.deadline(30)
    while files.log.read_text() != text:
        assert time.monotonic() < deadline, files.log.read_text()
        time.sleep(0.02)


def test_output_and_exit_code_are_kept(shell: list[str], files: MemberFiles) -> None:
    process = start(shell, files, "sh", "-c", "echo out; echo err >&2; exit 7")
    shown, _ = process.communicate(timeout=patience.seconds(30))
    assert process.returncode == 7
    assert shown == files.log.read_bytes() == b"out\nerr\n"
    status = json.loads((files.directory / "status").read_text())
    assert status == {"id": "job-1", "exit_code": "7"}
    assert (files.exit_code, files.attempts) == (7, 1)


def test_arguments_arrive_as_they_were_written(shell: list[str], files: MemberFiles) -> None:
    start(shell, files, "printf", "<%s>", "a  b", "$HOME", "", "*", "'").communicate(
        timeout=patience.seconds(30)
    )
    assert files.log.read_text() == "<a  b><$HOME><><*><'>"


def test_secrets_come_from_a_file_of_ours_alone(shell: list[str], files: MemberFiles) -> None:
    start(shell, files, "sh", "-c", 'printf %s "$A_TOKEN"').communicate(
        timeout=patience.seconds(30)
    )
    assert files.log.read_text() == "it's $HOME\n"
    environment = files.directory / "environment"
    assert environment.stat().st_mode & 0o077 == 0
    assert "PLAIN" not in environment.read_text()
    files.forget_environment()
    assert not environment.exists()


def test_a_login_in_a_url_is_a_secret(tmp_path: Path) -> None:
    environment = {"DATABASE": "postgres://me:hunter2@host/db", "SITE": "https://host/db"}
    assert seen_environment(environment) == {"SITE": "https://host/db"}
    files = JobFiles.of(str(tmp_path), "job-1").member("name")
    files.prepare("job-1", "name", environment)
    assert (files.directory / "environment").read_text() == (
        "export DATABASE=postgres://me:hunter2@host/db\n"
    )


def test_names_may_have_any_words_in_them(shell: list[str], tmp_path: Path) -> None:
    files = JobFiles.of(str(tmp_path), "NAME-JOB").member("JOB-ENVIRONMENT")
    files.prepare("NAME-JOB", "JOB-ENVIRONMENT", {})
    start(shell, files, "true").communicate(timeout=patience.seconds(30))
    status = json.loads((files.directory / "status").read_text())
    assert status == {"id": "NAME-JOB", "exit_code": "0"}
    assert "pipe=$place/.nemo_run-JOB-ENVIRONMENT-NAME-JOB\n" in (
        (files.directory / "start.sh").read_text()
    )


def test_a_signal_is_passed_on_and_waited_for(shell: list[str], files: MemberFiles) -> None:
    task = 'sleep 60 & trap "echo cleaned; exit 3" TERM; echo up; wait'
    process = start(shell, files, "bash", "-c", task)
    wait_for_log(files, "up\n")
    assert not files.was_asked
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=patience.seconds(30))
    assert (process.returncode, files.was_asked) == (3, True)
    assert files.log.read_text() == "up\ncleaned\n"


TRAIN = """\
import pathlib, signal, sys, time
def clean(*args):
    print("cleaning", flush=True)
    while not pathlib.Path(__file__).with_name("go").exists():
        time.sleep(0.02)
    sys.exit(print("saved"))
signal.signal(signal.SIGTERM, clean)
print("up", flush=True)
while True:
    time.sleep(0.1)
"""


def test_what_a_command_has_started_may_clean_up_too(
    shell: list[str], files: MemberFiles, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text(TRAIN)
    process = start(shell, files, "bash", "-c", f"{sys.executable} {program}; echo never")
    wait_for_log(files, "up\n")
    os.kill(process.pid, signal.SIGTERM)
    wait_for_log(files, "up\ncleaning\n")
    (tmp_path / "go").touch()
    process.communicate(timeout=patience.seconds(30))
    assert process.returncode == 128 + signal.SIGTERM
    assert files.log.read_text() == "up\ncleaning\nsaved\n"


def test_a_second_try_adds_to_the_log(shell: list[str], files: MemberFiles) -> None:
    for _ in range(2):
        start(shell, files, "echo", "try").communicate(timeout=patience.seconds(30))
    assert files.log.read_text() == "try\ntry\n"
    assert files.attempts == 2


def test_where_nothing_can_be_written_the_output_is_shown(
    shell: list[str], files: MemberFiles
) -> None:
    shutil.rmtree(files.directory / "attempts", ignore_errors=True)
    (files.directory / "attempts").mkdir()  # as if it were somebody else's
    process = start(shell, files, "sh", "-c", "echo out; exit 4")
    shown, _ = process.communicate(timeout=patience.seconds(30))
    assert (shown, process.returncode) == (b"out\n", 4)
