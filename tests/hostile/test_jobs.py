"""A job that attacks its launcher by the files that both of them see.

Nothing outside of the job changes or is shown, no question hangs or raises, and the job ends as its
backend saw it end.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from tests.contract.backends import Cluster
from tests.contract.conftest import marks_of
from tests.hostile.attacks import REACH, kinds_of, plant
from tests.integration.launching import wait_for
from torchx.specs import AppState

pytestmark = pytest.mark.parametrize(
    ("cluster", "kind"),
    [
        pytest.param(name, kind, marks=marks_of(name))
        for name in sorted(REACH)
        for kind in kinds_of(name)
    ],
    indirect=["cluster"],
)

SECRET = "nothing of this is the job's\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the launcher's user, which the job has no business with."""
    file = tmp_path / "victim"
    file.write_text(SECRET)
    return file


def some_lines(cluster: Cluster, app_id: str) -> list[str]:
    """Return the first lines of a log, which may have 200 GB in a single one."""
    (role,) = cluster.scheduler.describe(app_id).roles
    return list(islice(cluster.scheduler.log_iter(app_id, role.name), 2))


def test_a_job_that_ends_is_known_by_its_end(cluster: Cluster, victim: Path, kind: str) -> None:
    app_id = cluster.schedule(plant(REACH[cluster.name], kind, victim) + "exit 7\n")
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 7)
    assert SECRET not in some_lines(cluster, app_id)
    assert victim.read_text() == SECRET
    cluster.cancel(app_id)


def test_a_job_that_runs_is_seen_and_cancelled(cluster: Cluster, victim: Path, kind: str) -> None:
    sign = cluster.scratch / "planted"
    task = f"{plant(REACH[cluster.name], kind, victim)}touch {sign}\nexec sleep 1000\n"
    app_id = cluster.schedule(task)
    wait_for(sign.exists, "the attack", timeout_s=60)
    status = cluster.status(app_id)
    assert status is not None
    assert status.state is AppState.RUNNING
    assert SECRET not in some_lines(cluster, app_id)
    cluster.cancel(app_id)
    end = cluster.status(app_id)
    assert end is not None
    assert end.state is AppState.CANCELLED
    assert victim.read_text() == SECRET
