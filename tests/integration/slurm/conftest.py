"""Real servers for the tests here. One that is missing is a failure, never a skip."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.slurm.chaos import ChaosProxy
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.podman import PodmanStore, temporary_store
from tests.integration.slurm.sshd import Sshd, temporary_sshd


@pytest.fixture
def slurm(
    slurm_with_accounting: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmCluster]:
    """A cluster with accounting, reached over ssh as host `loop`."""
    monkeypatch.setenv("PATH", slurm_with_accounting.sshd.environment["PATH"])
    yield slurm_with_accounting


@pytest.fixture
def bare_slurm(
    slurm_without_accounting: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmCluster]:
    """A cluster whose `sacct` has no answer, reached over ssh as host `loop`."""
    monkeypatch.setenv("PATH", slurm_without_accounting.sshd.environment["PATH"])
    yield slurm_without_accounting


@pytest.fixture(scope="session")
def podman_store() -> Iterator[PodmanStore]:
    """Podman with the images of the tests."""
    with temporary_store() as store:
        yield store


@pytest.fixture(scope="session")
def shared_sshd() -> Iterator[Sshd]:
    """An ssh server for tests that leave it alone. Put `environment` of it into theirs."""
    with temporary_sshd() as server:
        yield server


@pytest.fixture
def sshd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """An ssh server of the test's own, which it may kill; reached as host `loop`."""
    with temporary_sshd() as server:
        monkeypatch.setenv("PATH", server.environment["PATH"])
        yield server


@pytest.fixture
def proxy(sshd: Sshd) -> Iterator[ChaosProxy]:
    """A way to the ssh server, by another port, that can be cut."""
    way = ChaosProxy(sshd.port)
    sshd.know(way.port)
    yield way
    way.close()
