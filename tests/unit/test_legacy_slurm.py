"""The index of Slurm jobs that 0.12 wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nemo_run._backends.slurm.legacy import find_slurm_job
from nemo_run.run.torchx_backend.schedulers import slurm

TUNNEL = {
    "job_dir": "/remote/title/title_1",
    "host": "login",
    "user": "me",
    "packaging_jobs": {"title_1:job": {"symlink": False}},
    "port": None,
    "identity": "~/.ssh/id",
    "shell": None,
    "pre_command": None,
}


def line(number: int, folder: str = "/remote/title/title_1/job") -> str:
    local = "/home/me/.nemo_run/experiments/title/title_1/job"
    return f"{number} = {folder}/log*,{local},SSHTunnel,{json.dumps(TUNNEL)}\n"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / ".slurm_jobs"


def test_a_job_is_found_with_its_tunnel_and_logs(index: Path) -> None:
    index.write_text(line(41) + line(42))
    record = find_slurm_job(index, "42")
    assert record is not None
    assert (record.app_id, record.scheduler) == ("42", "slurm_tunnel")
    assert record.experiment_id == "title_1"
    assert [role.name for role in record.roles] == ["job"]
    assert record.ref is not None
    tunnel = json.loads(record.ref.where["tunnel"])
    assert (tunnel["host"], tunnel["user"]) == ("login", "me")
    assert "packaging_jobs" not in tunnel
    logs = json.loads(record.ref.where["logs"])
    assert logs["job"].startswith("/remote/title/title_1/job/log-")


def test_reading_twice_gives_the_same_record(index: Path) -> None:
    index.write_text(line(42))
    assert find_slurm_job(index, "42") == find_slurm_job(index, "42")


def test_the_last_line_of_a_number_counts(index: Path) -> None:
    index.write_text(line(42, "/old") + line(42, "/new"))
    record = find_slurm_job(index, "42")
    assert record is not None
    assert record.ref is not None
    assert "/new/" in record.ref.where["logs"]


def test_bad_lines_are_skipped(index: Path) -> None:
    index.write_text("42 = /x/log*,/local,SSHTunnel\n42 = nonsense\n42 = a,b,SSHTunnel,{broken\n")
    assert find_slurm_job(index, "42") is None
    index.write_text("rubbish\n" + line(42) + "more rubbish")
    assert find_slurm_job(index, "42") is not None


def test_a_job_on_this_machine_has_a_local_tunnel(index: Path) -> None:
    tunnel = json.dumps({"job_dir": "/j", "host": "localhost", "user": "", "packaging_jobs": {}})
    index.write_text(f"7 = /j/job/log*,/local/job,LocalTunnel,{tunnel}\n")
    record = find_slurm_job(index, "7")
    assert record is not None
    assert record.ref is not None
    assert json.loads(record.ref.where["tunnel"]) == {
        "job_dir": "/j",
        "host": "localhost",
        "user": "",
    }


def test_without_an_index_there_is_no_job(index: Path) -> None:
    assert find_slurm_job(index, "1") is None


def test_the_index_is_where_0_12_kept_it(nemorun_home: Path) -> None:
    assert str(nemorun_home / ".slurm_jobs") == slurm.SLURM_JOB_DIRS
