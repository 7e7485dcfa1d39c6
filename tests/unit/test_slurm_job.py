"""What is said of a job that has ended, from the files that it left, which are here."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from torchx.specs import AppState

from nemo_run._backends.slurm.job import SubmittedJob
from nemo_run._backends.slurm.logs import KEPT_BYTES
from nemo_run._jobs.records import JobRef
from nemo_run.run.torchx_backend.schedulers.api import JobStatus, LogQuery


def submitted(root: Path, **settings: str) -> SubmittedJob:
    """Return job 7, whose directory on the cluster is ``root``."""
    where = {
        "tunnel": json.dumps({"job_dir": str(root), "host": "localhost", "user": ""}),
        "logs": json.dumps({"job": f"{root}/log_%j.out"}),
        "batch_log": f"{root}/sbatch_%j.out",
        "state_dir": f"{root}/.nemo_run/nr-7",
        "job_dir": f"{root}/here",
    }
    return SubmittedJob(JobRef(native_id="7", where={**where, **settings}))


def lines(job: SubmittedJob, **query: Any) -> list[str]:
    blocks = job.logs("job", 0).read(LogQuery(role="job", **query), lambda: True)
    return b"".join(blocks).decode().splitlines(keepends=True)


@pytest.fixture
def job(tmp_path: Path) -> Any:
    """Return a job of four ranks whose batch script said this."""

    def said(*lines: str) -> SubmittedJob:
        (tmp_path / "sbatch_7.out").write_text("".join(f"{line}\n" for line in lines))
        logs = json.dumps({"job": f"{tmp_path}/log_%j_%t.out"})
        return submitted(tmp_path, logs=logs, tasks="4", rank_logs="1")

    return said


def failed(job: SubmittedJob) -> JobStatus:
    return job.with_cause(JobStatus(state=AppState.FAILED, exit_code=1))


def test_the_cause_is_that_of_the_last_attempt(job: Any) -> None:
    ended = failed(
        job(
            "srun: error: node1: task 2: Exited with exit code 3",
            "nemo_run: exit code 3",
            "nemo_run: restart 1",
            "srun: error: node2: task 1: Exited with exit code 5",
            "nemo_run: exit code 5",
        )
    )
    assert ended.exit_code == 5
    assert ended.message.startswith("task 1 on node2 ")


def test_the_rank_that_is_named_is_the_one_whose_log_is_shown(job: Any) -> None:
    ended = job(
        "srun: error: node1: tasks 0-1: Terminated",
        "srun: error: node2: task 3: Exited with exit code 7",
    )
    assert failed(ended).message.startswith("task 3 on node2 ")
    assert ended.failed_first(LogQuery(role="job")).replica == 3


class TestLines:
    @pytest.mark.parametrize("follow", [True, False])
    def test_a_line_that_was_not_ended_stays_apart_from_those_of_other_files(
        self, tmp_path: Path, follow: bool
    ) -> None:
        for element, text in enumerate(["begin\nloss=", "step\nloss="]):
            (tmp_path / f"log_7_{element}.out").write_text(text)
        found = lines(submitted(tmp_path, array="0-1"), follow=follow)
        assert sorted(found) == ["begin\n", "loss=", "loss=\n", "step\n"]
        assert found[-1] == "loss="

    def test_an_attempt_that_broke_off_comes_before_the_next(self, tmp_path: Path) -> None:
        for restart, text in enumerate(["first: los", "second\n"]):
            (tmp_path / f"log_7_{restart}.out").write_text(text)
        logs = json.dumps({"job": f"{tmp_path}/log_%j_${{SLURM_RESTART_COUNT:-0}}.out"})
        assert lines(submitted(tmp_path, logs=logs)) == ["first: los\n", "second\n"]

    def test_times_are_those_of_the_file_they_were_noted_for(self, tmp_path: Path) -> None:
        state_dir = tmp_path / ".nemo_run" / "nr-7"
        state_dir.mkdir(parents=True)
        for element in range(2):
            (tmp_path / f"log_7_{element}.out").write_text("early\nlate\n")
        # Of the other nothing could be noted: its node broke down.
        (state_dir / "clock-0-log_7_1.out").write_text("100.0 6\n200.0 11\n")
        job = submitted(tmp_path, array="0-1")
        assert lines(job, until=datetime.fromtimestamp(150)) == ["early\n"]
        assert lines(job, since=datetime.fromtimestamp(150)) == ["early\n", "late\n", "late\n"]

    def test_what_the_last_note_does_not_tell_was_written_by_the_end(self, tmp_path: Path) -> None:
        state_dir = tmp_path / ".nemo_run" / "nr-7"
        state_dir.mkdir(parents=True)
        (tmp_path / "log_7.out").write_text("early\nlate\n")
        (state_dir / "clock-0-log_7.out").write_text("100.0 6\n200.0 end\n201")
        job = submitted(tmp_path)
        assert lines(job, until=datetime.fromtimestamp(150)) == ["early\n"]
        assert lines(job, since=datetime.fromtimestamp(150)) == ["late\n"]
        assert lines(job, until=datetime.fromtimestamp(200)) == ["early\n", "late\n"]
        assert lines(job, since=datetime.fromtimestamp(200)) == []

    def test_that_is_not_the_end_of_a_file_that_the_next_attempt_went_on_with(
        self, tmp_path: Path
    ) -> None:
        state_dir = tmp_path / ".nemo_run" / "nr-7"
        state_dir.mkdir(parents=True)
        (tmp_path / "log_7.out").write_text("early\nlate\n")
        (state_dir / "clock-0-log_7.out").write_text("100.0 6\n200.0 end\n300.0 11\n400.0 end\n")
        job = submitted(tmp_path)
        assert lines(job, since=datetime.fromtimestamp(250)) == ["late\n"]
        assert lines(job, since=datetime.fromtimestamp(400)) == []


class TestKeeping:
    def test_a_very_long_file_keeps_no_other_from_being_kept(self, tmp_path: Path) -> None:
        small, large = (tmp_path / f"log_7_{element}.out" for element in range(2))
        small.write_text("small\n")
        with large.open("wb") as file:
            file.truncate(KEPT_BYTES)
            file.seek(0, os.SEEK_END)
            file.write(b"\nlarge\n")
        job = submitted(tmp_path, array="0-1")
        job.settle(AppState.SUCCEEDED)
        small.unlink()
        found = lines(job, last_only=True)
        assert (found[0], found[-1]) == ("small\n", "large\n")

    def test_what_is_kept_comes_whole(self, tmp_path: Path) -> None:
        text = "".join(f"line {n} of a log that does not fit one block\n" for n in range(200_000))
        (tmp_path / "log_7.out").write_text(text)
        job = submitted(tmp_path)
        job.settle(AppState.SUCCEEDED)
        (tmp_path / "log_7.out").unlink()
        assert "".join(lines(job)) == text

    def test_nothing_is_left_of_a_copy_that_breaks_off(self, tmp_path: Path) -> None:
        (tmp_path / "log_7.out").write_text("a line\n")
        kept = tmp_path / "here" / "logs-7"
        (kept / "log_7.out").mkdir(parents=True)  # what is in the way of the copy
        job = submitted(tmp_path)
        job.settle(AppState.SUCCEEDED)
        assert not job.is_settled
        assert [path.name for path in kept.iterdir()] == ["log_7.out"]
        (kept / "log_7.out").rmdir()
        job.settle(AppState.SUCCEEDED)
        assert job.is_settled
        assert sorted(path.name for path in kept.iterdir()) == ["files", "log_7.out"]

    def test_a_job_that_said_nothing_is_settled(self, tmp_path: Path) -> None:
        (tmp_path / "log_7.out").touch()
        job = submitted(tmp_path)
        assert not job.is_settled
        job.settle(AppState.SUCCEEDED)
        assert job.is_settled
        assert lines(job) == []


def test_logs_of_very_many_elements_are_read(tmp_path: Path) -> None:
    directory = tmp_path / ("long-" * 40)
    directory.mkdir()
    for number in range(700):
        (directory / f"log_7_{number}.out").write_text(f"{number}\n")
    job = submitted(tmp_path, logs=json.dumps({"job": f"{directory}/log_%j.out"}), array="0-699")
    ends = iter([False, True])
    blocks = job.logs("job", 0).read(LogQuery(role="job", follow=True), lambda: next(ends))
    assert b"".join(blocks).decode().split() == [str(number) for number in range(700)]


def test_errors_are_read_where_they_have_a_log_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "log_7.out").write_text("out\n")
    (tmp_path / "log_7.err").write_text("err\n")
    job = submitted(tmp_path, errors=json.dumps({"job": f"{tmp_path}/log_%j.err"}))
    assert sorted(lines(job)) == ["err\n", "out\n"]
    job.settle(AppState.SUCCEEDED)
    for suffix in ("out", "err"):
        (tmp_path / f"log_7.{suffix}").unlink()
    assert sorted(lines(job)) == ["err\n", "out\n"]
