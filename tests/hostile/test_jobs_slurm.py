"""Slurm jobs that write what others are to believe of another job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience
from torchx.specs import AppState

from nemo_run._backends.slurm import remote
from nemo_run._backends.slurm.answers import parse_exit
from nemo_run._backends.slurm.client import Slurm
from nemo_run._backends.slurm.log_files import LogRequest
from nemo_run._backends.slurm.logs import Logs
from nemo_run._backends.slurm.remote import MARK, Answer
from nemo_run._backends.slurm.status import job_status
from nemo_run._jobs.log_lines import LogQuery
from nemo_run.exceptions import JobNotFoundError

ENDED = "0 0 0 1794784155 1794784160\n"
FORGED = f"{MARK} exit 1 exit {ENDED}"
KNOWN = "echo '2|FAILED|3:0|1794784155|1794784160|node1|None'"
ROW = "2|COMPLETED|0:0|1794784155|1794784160|node1|None\n"


class LoginNode:
    """Runs what is sent there on this machine, where Slurm has forgotten all jobs but number 2."""

    def __init__(self, directory: Path, accounting: str = KNOWN) -> None:
        self._bin = directory / "bin"
        self._bin.mkdir()
        programs = {
            "squeue": "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1",
            "sacct": accounting,
        }
        for name, text in programs.items():
            (self._bin / name).write_text(f"#!/bin/sh\n{text}\n")
            (self._bin / name).chmod(0o755)

    def __call__(self, command: str, stdin: bytes, timeout_s: float) -> Answer:
        environment = {**os.environ, "PATH": f"{self._bin}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["sh", "-c", command],
            env=environment,
            input=stdin,
            capture_output=True,
            timeout=patience.seconds(10),
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def send(self, local: Path, remote: str) -> None:
        raise NotImplementedError


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    for number in "12":
        (tmp_path / number).mkdir()
    slurm = Slurm(LoginNode(tmp_path))
    slurm.watch("1", str(tmp_path / "1"))
    slurm.watch("2", str(tmp_path / "2"))
    return slurm


def state(slurm: Slurm, directory: Path, number: str) -> tuple[AppState, int | None]:
    status = job_status(slurm.job(number, str(directory / number)))
    return status.state, status.exit_code


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ENDED + FORGED, id="marked"),
        pytest.param(ENDED + ROW, id="row"),
        pytest.param(ENDED + "9" * 5000, id="digits"),
        pytest.param("9" * 5000, id="only-digits"),
        pytest.param("--1 0 0 1 2", id="signs"),
        pytest.param("0 0 0 99999999999999999 1", id="times"),
        pytest.param("² 0 0 1 2", id="other-digits"),
        pytest.param("\0\0\n\x1b[2J", id="bytes"),
    ],
)
def test_an_exit_file_says_nothing_of_other_jobs(slurm: Slurm, tmp_path: Path, text: str) -> None:
    (tmp_path / "1" / "exit").write_text(text)
    assert state(slurm, tmp_path, "2") == (AppState.FAILED, 3)


@pytest.mark.parametrize("text", [ENDED + FORGED, ENDED + ROW], ids=["marked", "row"])
@pytest.mark.parametrize("in_name", [True, False], ids=["name", "content"])
def test_a_job_without_accounting_has_no_end_by_another(
    tmp_path: Path, text: str, in_name: bool
) -> None:
    for number in "12":
        (tmp_path / number).mkdir()
    name = f"exit-\n{text.splitlines()[1]}" if in_name else "exit"
    (tmp_path / "1" / name).write_text(text)
    slurm = Slurm(LoginNode(tmp_path, accounting=""))
    slurm.watch("1", str(tmp_path / "1"))
    with pytest.raises(JobNotFoundError):
        slurm.job("2", str(tmp_path / "2"))


def test_words_that_any_process_of_ours_may_have_used_are_not_believed(tmp_path: Path) -> None:
    other = "from nemo_run._backends.slurm.remote import MARK; print(MARK)"
    theirs = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True).stdout
    for number, mark in enumerate(("@nemo_run", theirs.strip())):
        place = tmp_path / str(number)
        (place / "2").mkdir(parents=True)
        # Say, a wrapper of sacct's that also prints what jobs are called.
        slurm = Slurm(LoginNode(place, accounting=f"echo '{mark} exit 0 exit {ENDED.strip()}'"))
        with pytest.raises(JobNotFoundError):
            slurm.job("2", str(place / "2"))


def test_names_of_exit_files_say_nothing_of_other_jobs(slurm: Slurm, tmp_path: Path) -> None:
    for name in (f"exit-\n{FORGED.strip()}", f"exit-\n{ROW.strip()}", "exit-x", "exit-" + "9" * 99):
        (tmp_path / "1" / name).write_text(ENDED)
    assert state(slurm, tmp_path, "2") == (AppState.FAILED, 3)


def test_a_fifo_and_a_huge_file_hold_nothing_up(slurm: Slurm, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1" / "exit")
    huge = tmp_path / "1" / "exit-0"
    huge.touch()
    os.truncate(huge, 200 << 30)
    (tmp_path / "1" / "exit-1").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "1" / "cancelled")
    assert state(slurm, tmp_path, "2") == (AppState.FAILED, 3)


def test_a_job_that_wrote_its_end_is_known_by_it(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "1" / "exit").write_text("7 1 0 1794784155 1794784160\n")
    assert state(slurm, tmp_path, "1") == (AppState.FAILED, 7)


def test_the_number_of_a_job_is_a_number(tmp_path: Path) -> None:
    (tmp_path / remote.STARTED).write_text(f"17\n{MARK} done 0\n")
    (tmp_path / "submitting").write_text("1 elsewhere")
    (tmp_path / "code").write_text("1")
    (tmp_path / "node").mkdir()
    node = LoginNode(tmp_path / "node")
    said = remote.ours(node(remote.ask(str(tmp_path), 1), b"", 10).out)
    assert said == ["done 0", "out 17"]


def test_a_name_of_a_log_speaks_for_no_other_job(slurm: Slurm, tmp_path: Path) -> None:
    forged = f"log-\n{MARK} file 1 0 4 log-2\nZm9vCg=="
    (tmp_path / "1" / forged).write_text("x\n")
    (tmp_path / "1" / "log-1").write_text("one\n")
    os.mkfifo(tmp_path / "1" / "log-2")
    (tmp_path / "2" / "log-1").write_text("two\n")
    requests = [LogRequest(pattern=f"{tmp_path}/{number}/log-*") for number in "12"]
    found = [[part.data for part in parts] for parts in slurm._read_all(requests)]  # type: ignore[union-attr]
    assert found == [[b"one\n"], [b"two\n"]]


def test_odd_notes_of_times_are_left_out(slurm: Slurm, tmp_path: Path) -> None:
    from datetime import datetime, timezone

    (tmp_path / "1" / "log").write_text("one\ntwo\n")
    notes = f"x 4\n{'9' * 5000} 4\nnan 5\n100.5 4\n1 {'9' * 5000}\n200.5 end\n"
    (tmp_path / "1" / "clock-0-log").write_text(notes)
    logs = Logs(slurm, f"{tmp_path}/1/log", clock=f"{tmp_path}/1/clock-*")
    since = datetime.fromtimestamp(150, timezone.utc)
    shown = b"".join(logs.read(LogQuery(role="", since=since), lambda: True))
    assert shown == b"two\n"


def test_half_an_exit_file_is_none() -> None:
    assert parse_exit("exit", "0 0 0 1") is None


@pytest.mark.parametrize("kind", ["fifo", "directory", "link"])
def test_a_job_that_is_cancelled_cannot_hold_that_up(tmp_path: Path, kind: str) -> None:
    state_dir, victim = tmp_path / "1", tmp_path / "victim"
    (state_dir / "cancelled").mkdir(parents=True) if kind == "directory" else state_dir.mkdir()
    if kind == "fifo":
        os.mkfifo(state_dir / "cancelled")
    elif kind == "link":
        victim.write_text("mine")
        (state_dir / "cancelled").symlink_to(victim)
    node = LoginNode(tmp_path)
    (tmp_path / "bin" / "scancel").write_text("#!/bin/sh\necho ended\n")
    (tmp_path / "bin" / "scancel").chmod(0o755)
    answer = node(remote.cancel("1", str(state_dir), kill=False, array=True), b"", 10)
    assert answer.out == "ended\n"
    assert (state_dir / "cancelled").is_file()
    assert kind != "link" or victim.read_text() == "mine"


def test_a_fifo_in_the_place_of_a_submission_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "submitting")
    (tmp_path / "node").mkdir()
    said = LoginNode(tmp_path / "node")(remote.ask(str(tmp_path), 0), b"", 10).out
    assert remote.ours(said)
