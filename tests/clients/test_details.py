"""The name of a Slurm job and of its files, when the tool has rules of its own for them."""

from __future__ import annotations

import pytest
from tests.clients.users import ClusterUser

pytestmark = pytest.mark.slow


def launched(user: ClusterUser, choice: str) -> str:
    """Return the number of a job that has ended well."""
    user.runs("details.py", choice)
    _, handle, state = user.found("job")
    assert state == "SUCCEEDED"
    return str(handle.rpartition("/")[2])


def test_a_subclass_names_the_job_and_all_its_files(cluster_user: ClusterUser) -> None:
    number = launched(cluster_user, "own")

    logs = cluster_user.out / "logs"
    assert f"the words of {number}" in (logs / f"train_{number}_srun.log").read_text()
    assert (logs / f"train_{number}_sbatch.log").exists()
    assert cluster_user.job(number)["JobName"] == "team-train"
    assert cluster_user.job(number)["StdOut"] == str(logs / f"train_{number}_sbatch.log")


def test_a_name_and_a_folder_are_enough(cluster_user: ClusterUser) -> None:
    number = launched(cluster_user, "given")

    logs = cluster_user.out / "logs"
    assert cluster_user.job(number)["JobName"] == "team-train"
    assert (logs / f"sbatch_team-train_{number}.out").exists()
    words = (logs / f"log-team-train_{number}_0.out").read_text()
    assert f"the words of {number}" in words


def test_otherwise_files_are_named_after_account_and_job(cluster_user: ClusterUser) -> None:
    number = launched(cluster_user, "default")

    (log,) = cluster_user.job_dir.rglob(f"log-root-*_{number}_*.out")
    assert f"the words of {number}" in log.read_text()
    (batch,) = cluster_user.job_dir.rglob(f"sbatch_*_{number}.out")
    assert batch.parent == log.parent


@pytest.mark.parametrize("choice", ["own", "given", "default"])
def test_another_process_finds_the_log(cluster_user: ClusterUser, choice: str) -> None:
    number = launched(cluster_user, choice)
    found = cluster_user.runs("details.py", "logs")
    assert f"the words of {number}" in found.stdout + found.stderr
