"""Jobs that wait for others on Slurm: within an experiment, and for those of an earlier one."""

from __future__ import annotations

import pytest
from tests.clients.users import ClusterUser

pytestmark = pytest.mark.slow


def ended(user: ClusterUser, name: str) -> float:
    return float((user.out / name).read_text())


@pytest.mark.parametrize("how", ["inside", "detached"])
def test_after_any_end_is_kept_for_dependencies_of_the_experiment(
    cluster_user: ClusterUser, how: str
) -> None:
    cluster_user.tries("chains.py", how)

    chain = cluster_user.found("chain")
    assert chain["states"] == {"one": "FAILED", "two": "SUCCEEDED", "three": "SUCCEEDED"}
    second, third = cluster_user.found("second"), cluster_user.found("third")
    assert ended(cluster_user, "failed") <= second["at"] <= third["at"]


def test_a_job_waits_for_those_of_an_earlier_experiment(cluster_user: ClusterUser) -> None:
    cluster_user.tries("chains.py", "across")

    second = cluster_user.found("second")
    assert second["at"] >= ended(cluster_user, "failed")
    assert second["at"] >= ended(cluster_user, "good")
    assert cluster_user.found("chain")["states"] == {"one": "SUCCEEDED"}


def test_otherwise_a_job_waits_for_success(cluster_user: ClusterUser) -> None:
    cluster_user.tries("chains.py", "strict")

    assert cluster_user.found("chain")["states"] == {"one": "FAILED", "two": "CANCELLED"}
    assert not (cluster_user.out / "second").exists()


def test_jobs_of_an_experiment_know_their_state_and_handle(cluster_user: ClusterUser) -> None:
    cluster_user.tries("chains.py", "inside")

    assert cluster_user.found("ended") == ["FAILED", "SUCCEEDED", "SUCCEEDED"]
    number = cluster_user.found("second")["env"]["SLURM_JOB_ID"]
    handles = cluster_user.found("chain")["handles"]
    assert handles["two"] == f"slurm_tunnel://nemo_run/{number}"
    assert list(handles) == ["one", "two", "three"]
