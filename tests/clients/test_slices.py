"""Training in slices that end by failure or at the time limit, until the checkpoint is complete."""

from __future__ import annotations

import pytest
from tests import patience
from tests.clients.users import ClusterUser, site

pytestmark = pytest.mark.slow


def starts(user: ClusterUser) -> list[int]:
    return [entry["from"] for entry in user.found("checkpoint")["slices"]]


def test_slices_that_are_submitted_at_once_go_on_from_each_other(
    cluster_user: ClusterUser,
) -> None:
    cluster_user.tries("slices.py", "chain")

    assert cluster_user.found("ends") == {
        "train": "FAILED",
        "train_1": "FAILED",
        "train_2": "SUCCEEDED",
        "train_3": "SUCCEEDED",
    }
    assert starts(cluster_user) == [0, 4, 8]
    assert cluster_user.found("checkpoint")["step"] == 10


def test_slices_may_be_experiments_of_their_own(cluster_user: ClusterUser) -> None:
    cluster_user.tries("slices.py", "handles")

    assert cluster_user.found("ends") == {
        "slice-0": "FAILED",
        "slice-1": "FAILED",
        "slice-2": "SUCCEEDED",
        "slice-3": "SUCCEEDED",
    }
    assert starts(cluster_user) == [0, 4, 8]


def test_a_program_may_submit_until_the_checkpoint_is_complete(
    cluster_user: ClusterUser,
) -> None:
    cluster_user.runs("slices.py", "loop")

    assert cluster_user.found("ends") == {"0": "FAILED", "1": "FAILED", "2": "SUCCEEDED"}
    assert starts(cluster_user) == [0, 4, 8]


@pytest.mark.timeout(patience.seconds(400))
@pytest.mark.parametrize(
    "cluster_user",
    [site("ssh", accounting=True), site("local", accounting=False)],
    indirect=True,
)
def test_a_slice_that_reaches_its_time_limit_is_followed_by_the_next(
    cluster_user: ClusterUser,
) -> None:
    cluster_user.tries("slices.py", "limit", within_s=330, WAIT_S=str(patience.seconds(270)))

    # Slurm ends the first after a minute or a little more.
    assert cluster_user.found("ends") == {
        "train": "FAILED",
        "train_1": "SUCCEEDED",
        "train_2": "SUCCEEDED",
    }
    first, second = starts(cluster_user)
    assert first == 0
    assert 40 < second < 100
    assert cluster_user.found("checkpoint")["step"] == 100
