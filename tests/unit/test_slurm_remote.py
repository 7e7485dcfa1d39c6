"""What runs on a login node, run here."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import patience

from nemo_run import _shell
from nemo_run._backends.slurm import log_files, remote


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A submission that somebody has begun."""
    directory = tmp_path / "nr-0123456789"
    directory.mkdir()
    return directory


@pytest.fixture
def submitter(state_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Whoever has begun, with the directory among its arguments."""
    with subprocess.Popen(["sh", "-c", f"sleep 60; : {state_dir}"]) as process:
        yield process
        process.kill()


def asked(state_dir: Path) -> str:
    """Return what becomes of a submission that the queue does not know."""
    return here(state_dir.parent / "bin", remote.ask(str(state_dir), 1), squeue="", sacct="")


def here(directory: Path, command: str, **programs: str) -> str:
    """Run a command where Slurm's programs are these shell scripts; return what it says."""
    directory.mkdir()
    for name, text in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
    argv = ["sh", "-c", command]
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=patience.seconds(60)
    )
    return done.stdout


def begun_by(state_dir: Path, pid: int, host: str) -> None:
    (state_dir / "submitting").write_text(f"{pid} {host}\n")


def test_who_takes_long_is_not_taken_for_dead(
    state_dir: Path, submitter: subprocess.Popen[bytes]
) -> None:
    begun_by(state_dir, submitter.pid, socket.gethostname())
    assert f"{remote.MARK} unknown" in asked(state_dir)
    assert (state_dir / "submitting").exists()


def test_who_was_killed_is_not_waited_for(
    state_dir: Path, submitter: subprocess.Popen[bytes]
) -> None:
    submitter.kill()
    submitter.wait()
    begun_by(state_dir, submitter.pid, socket.gethostname())
    assert f"{remote.MARK} never" in asked(state_dir)
    assert not (state_dir / "submitting").exists()


def test_another_process_with_the_same_number_is_another(state_dir: Path) -> None:
    begun_by(state_dir, os.getpid(), socket.gethostname())
    assert f"{remote.MARK} never" in asked(state_dir)


def test_a_job_that_slurm_has_forgotten_is_found_by_the_number_it_left(state_dir: Path) -> None:
    begun_by(state_dir, os.getpid(), socket.gethostname())
    (state_dir / remote.STARTED).write_text("17\n")
    assert asked(state_dir) == f"{remote.MARK} done 0\n{remote.MARK} out 17\n"


def test_an_array_is_found_in_the_accounting_of_a_release_without_submit_lines(
    state_dir: Path,
) -> None:
    begun_by(state_dir, os.getpid(), socket.gethostname())
    sacct = f'case "$*" in *SubmitLine*) exit 1 ;; esac; echo "17_3|{state_dir.name}"'
    command = remote.ask(str(state_dir), 1)
    said = here(state_dir.parent / "bin", command, squeue="", sacct=sacct)
    assert said == f"{remote.MARK} done 0\n{remote.MARK} out 17\n"


@pytest.mark.parametrize(("minutes", "verdict"), [(1, "unknown"), (11, "never")])
def test_another_login_node_gets_its_time(state_dir: Path, minutes: int, verdict: str) -> None:
    begun_by(state_dir, 1, "another-login-node")
    then = time.time() - 60 * minutes
    os.utime(state_dir / "submitting", (then, then))
    assert f"{remote.MARK} {verdict}" in asked(state_dir)


def test_a_job_that_has_not_started_is_not_asked_to_end_before_it_is_cancelled(
    tmp_path: Path,
) -> None:
    command = remote.cancel("7", str(tmp_path), kill=False, array=False)
    said = here(tmp_path / "bin", command, squeue="", scancel='echo "$@"')
    assert said == "7\n"


def test_one_whose_tasks_run_is(tmp_path: Path) -> None:
    (tmp_path / "written").touch()
    command = remote.cancel("7", str(tmp_path), kill=False, array=False)
    said = here(tmp_path / "bin", command, squeue="echo 7.batch; echo 7.0", scancel='echo "$@"')
    assert said == "--signal=TERM 7\n7\n"


def ready(state_dir: Path) -> str:
    """Have all that a submission needs, and return its directory."""
    state_dir.mkdir(parents=True)
    (state_dir / "ready").touch()
    (state_dir / "submit.sh").write_text(f"exec sbatch {state_dir.name}\n")
    return str(state_dir)


def test_jobs_are_submitted_several_at_once_and_answered_in_order(tmp_path: Path) -> None:
    names = [f"nr-{n}" for n in range(9)]
    jobs = [(ready(tmp_path / "a job" / ".nemo_run" / name), "") for name in names]
    # The first ends only when another has begun.
    waits = f"until [ -e {tmp_path}/nr-1 ]; do sleep 0.1; done"
    sbatch = f': >"{tmp_path}/$1"; [ "$1" != nr-0 ] || {waits}; echo "${{1#nr-}}"'
    said = here(tmp_path / "bin", remote.submit(jobs), sbatch=sbatch, tar="")
    blocks = [["begin", "done 0", f"out {n}"] for n in range(9)]
    assert said.splitlines() == [f"{remote.MARK} {line}" for block in blocks for line in block]


@pytest.mark.parametrize("changed", [False, True])
def test_code_that_was_changed_on_the_cluster_does_not_run(tmp_path: Path, changed: bool) -> None:
    data = b"code"
    archive = tmp_path / ".archives" / f"{hashlib.sha256(data).hexdigest()}.tar.gz"
    archive.parent.mkdir()
    archive.write_bytes(b"evil" if changed else data)
    job = (ready(tmp_path / "job" / ".nemo_run" / "nr-0"), str(archive))
    said = here(tmp_path / "bin", remote.submit([job]), sbatch="echo 17", tar="")
    assert (f"{remote.MARK} nocode" in said, archive.exists()) == (changed, not changed)


def test_a_job_is_submitted_by_one_of_two(tmp_path: Path) -> None:
    job = (ready(tmp_path / "job" / ".nemo_run" / "nr-0"), "")
    said = here(tmp_path / "bin", remote.submit([job]), sbatch="echo 17", tar="")
    assert f"{remote.MARK} out 17" in said
    said = here(tmp_path / "again", remote.submit([job]), sbatch="echo 18", tar="")
    assert said == f"{remote.MARK} begin\n{remote.MARK} twice\n"


@pytest.mark.parametrize(("start", "limit"), [(0, 4), (0, 5), (0, 100), (2, 100), (2, 2), (5, 9)])
def test_a_log_is_read_from_where_it_is_known(tmp_path: Path, start: int, limit: int) -> None:
    log = tmp_path / "a log"
    log.write_bytes(b"a\0\xff\nb")
    request = log_files.LogRequest(pattern=f"'{log}'", offsets={str(log): start}, limit=limit)
    said = here(tmp_path / "bin", log_files.read_logs([request]))
    head, _, encoded = said.partition("\n")
    assert head == f"{remote.MARK} file 0 {start} 5 {log}"
    assert base64.b64decode(encoded) == log.read_bytes()[start : start + limit]


@pytest.mark.parametrize("stat", ["exit 1", None])
def test_many_logs_are_told_apart_also_without_a_program_that_tells_all_their_lengths(
    tmp_path: Path, stat: str | None
) -> None:
    texts = {tmp_path / f"log {n}": b"x" * n for n in range(4)}
    for path, text in texts.items():
        path.write_bytes(text)
    requests = [
        *(log_files.LogRequest(pattern=_shell.render([str(path)])) for path in texts),
        log_files.LogRequest(pattern=f"{tmp_path}/none*"),
    ]
    programs = {"stat": stat} if stat else {}
    said = here(tmp_path / "bin", log_files.read_logs(requests), **programs)
    blocks = said.split(f"{remote.MARK} file ")[1:]
    heads = [f"{number} 0 {number} {path}\n" for number, path in enumerate(texts)]
    assert [block[: len(head)] for block, head in zip(blocks, heads, strict=True)] == heads
    found = [base64.b64decode(b[len(h) :]) for b, h in zip(blocks, heads, strict=True)]
    assert found == list(texts.values())


def test_more_logs_than_are_read_at_once_are_read(tmp_path: Path) -> None:
    for number in range(250):
        (tmp_path / f"log-{number:03}").write_bytes(b"x" * number)
    said = here(
        tmp_path / "bin", log_files.read_logs([log_files.LogRequest(pattern=f"{tmp_path}/log-*")])
    )
    blocks = said.split(f"{remote.MARK} file ")[1:]
    assert [len(base64.b64decode(block.partition("\n")[2])) for block in blocks] == [*range(250)]


def test_a_log_that_goes_away_meanwhile_does_no_harm_to_others(tmp_path: Path) -> None:
    logs = [tmp_path / f"log-{number}" for number in range(3)]
    for log in logs:
        log.write_bytes(b"abc")
    request = log_files.LogRequest(pattern=f"{tmp_path}/log-*")
    said = here(tmp_path / "bin", log_files.read_logs([request]), stat=f"rm -f {logs[1]}; exit 1")
    blocks = said.split(f"{remote.MARK} file ")[1:]
    found = {head: base64.b64decode(text) for head, _, text in (b.partition("\n") for b in blocks)}
    assert found == {
        f"0 0 3 {logs[0]}": b"abc",
        f"0 0 0 {logs[1]}": b"",
        f"0 0 3 {logs[2]}": b"abc",
    }


@pytest.mark.parametrize(
    ("said", "searched"),
    [
        ("Batch job submission failed: Invalid partition name specified", False),
        ("Batch job submission failed: Socket timed out on send/recv operation", True),
        ("Killed", True),
    ],
)
def test_a_job_is_searched_for_unless_the_controller_has_refused_it(
    tmp_path: Path, said: str, searched: bool
) -> None:
    state_dir = ready(tmp_path / "job" / ".nemo_run" / "nr-0123456789")
    programs = {"sbatch": f"echo 'sbatch: error: {said}' >&2; exit 1", "sacct": ""}
    programs |= {"squeue": f'echo "17 |{state_dir}/script.sh"', "tar": ""}
    answer = here(tmp_path / "bin", remote.submit([(state_dir, "")]), **programs)
    assert (f"{remote.MARK} done 0\n{remote.MARK} out 17\n" in answer) is searched
    assert (f"{remote.MARK} done 1\n" in answer) is not searched
    assert f"{remote.MARK} err sbatch: error: {said}\n" in answer


def test_of_a_job_without_files_of_ours_none_are_looked_for(tmp_path: Path) -> None:
    own = tmp_path / "nr-0123456789"
    forget = remote.forget_environment(["", str(own)])
    assert here(tmp_path / "bin", forget, rm='echo "$@"') == f"-f {own}/env*\n"
    look = remote.history(["1", "2"], ["", str(own)])
    assert "''/" not in look
    assert f"\nleft 1 {own}\n" in look


@pytest.mark.parametrize(
    ("sacct", "told"),
    [
        (
            "echo '7|FAILED|3:0|1|2|n|None'",
            ["7|FAILED|3:0|1|2|n|None", f"{remote.MARK} accounting 0 "],
        ),
        (
            "printf a; echo no >&2; echo more >&2; exit 3",
            ["a", f"{remote.MARK} accounting 3 no more"],
        ),
    ],
)
def test_accounting_is_told_apart_from_what_it_complains_of(
    tmp_path: Path, sacct: str, told: list[str]
) -> None:
    said = here(tmp_path / "bin", remote.history(["7"], [str(tmp_path)]), sacct=sacct)
    assert [line for line in said.splitlines() if line] == told


def test_a_job_knows_nothing_of_the_one_it_was_submitted_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_MEM_PER_CPU", "SBATCH_CPU_BIND"):
        monkeypatch.setenv(name, "5")
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "mine"}
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    state = ready(tmp_path / "job" / ".nemo_run" / "nr-1")
    program = remote.submit([(state, "")]).replace("tar -xpof - -C /", "true")
    said = here(tmp_path / "bin", program, sbatch="env | grep -E '^(SLURM|SBATCH)_'", squeue="")
    told = [line.split(" ", 2)[2] for line in said.splitlines() if f"{remote.MARK} out" in line]
    assert dict(line.split("=", 1) for line in told) == kept
