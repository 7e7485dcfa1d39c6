"""Users of the package: on this machine, and on Slurm clusters that are reached in two ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.users import ClusterUser, User
from tests.clients.users import site as at

SITES = [at(way, accounting=kept) for way in ("ssh", "local") for kept in (True, False)]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Someone who launches on this machine."""
    found = User(tmp_path)
    yield found
    found.leave()


@pytest.fixture(scope="module", params=SITES)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterUser]:
    """A user of a cluster, for all tests of a module that only look at what one program did."""
    yield from _cluster_user(request, tmp_path_factory.mktemp("site"))


@pytest.fixture(params=SITES)
def cluster_user(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterUser]:
    """A user of a cluster, of the test's own."""
    yield from _cluster_user(request, tmp_path)


def _cluster_user(request: pytest.FixtureRequest, root: Path) -> Iterator[ClusterUser]:
    way, accounting = request.param
    name = "slurm_with_accounting" if accounting else "slurm_without_accounting"
    found = ClusterUser(root, request.getfixturevalue(name), way)
    yield found
    found.leave()
