"""Paths of logs: directories are what they are called, and names have patterns in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nemo_run._backends.slurm.log_paths import LogPath
from nemo_run.exceptions import ConfigError

ODD = ["plain", "a$word", "${SLURM_JOB_ID}", "%j", "50%", "it's", "a*b", "x`y`", "é ☃"]


def written(log: LogPath, tmp_path: Path) -> str:
    """Return where a script's shell lets a task write."""
    lines = "\n".join(
        [*log.assignments("log", array=False), 'mkdir -p "${log%/*}"; echo x >"$log"']
    )
    environment = {"SLURM_JOB_ID": "17", "nemo_run_restart": "0", "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-c", lines], env=environment, check=True)
    (found,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    return str(found)


@pytest.mark.parametrize("name", ODD)
def test_a_directory_means_itself_where_it_is_written_and_where_it_is_looked_for(
    name: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / name)
    log = LogPath.below(folder, f"{folder}/log-job_%j_${{SLURM_RESTART_COUNT:-0}}.out")
    assert written(log, tmp_path) == f"{folder}/log-job_17_0.out"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "log-job_17_0.out").write_text("another job's\n")
    glob = log.glob("17", array=False)
    found = subprocess.run(["sh", "-c", f"ls {glob}"], capture_output=True, text=True, check=True)
    assert found.stdout == f"{folder}/log-job_17_0.out\n"


def test_sbatch_and_srun_are_told_that_a_percent_sign_is_one() -> None:
    log = LogPath.below("/jobs/50%j", "/jobs/50%j/sbatch_%j.out")
    assert log.directive(array=False) == "/jobs/50%%j/sbatch_%j.out"
    assert log.directive(array=True) == "/jobs/50%%j/sbatch_%A_%a.out"
    assert log.argument("log") == "log_pattern"
    assert log.assignments("log", array=False)[1].startswith("log_pattern=/jobs/50%%j/")


def test_a_path_that_is_elsewhere_is_a_pattern_as_a_whole() -> None:
    log = LogPath.below("/jobs", "/logs/%u/$SLURM_JOB_NAME-%j.txt")
    assert log.directive(array=False) == "/logs/%u/$SLURM_JOB_NAME-%j.txt"
    assert log.glob("17", array=False) == "/logs/*/*''-17.txt"


def test_ranks_have_logs_of_their_own() -> None:
    log = LogPath.below("/a.b", "/a.b/log_%j").for_ranks()
    assert str(log) == "/a.b/log_%j_%t"
    assert str(LogPath.below("/a", "/a/log_%j.out").for_ranks()) == "/a/log_%j_%t.out"
    assert log.for_ranks() == log
    assert log.glob("17", array=False, rank=3) == "/a.b/log_17_3"


@pytest.mark.parametrize(
    ("folder", "name"), [("/a\\b", "x"), ("/50%", "log_%t"), ("/%j of %t", "log"), ("/%5N", "x")]
)
def test_what_slurm_has_no_words_for_is_refused(folder: str, name: str) -> None:
    with pytest.raises(ConfigError, match="means something else"):
        LogPath.below(folder, f"{folder}/{name}").checked()


def test_patterns_of_the_user_are_none_of_our_business() -> None:
    assert str(LogPath.below("/jobs", "/logs/%N/%t").checked()) == "/logs/%N/%t"
