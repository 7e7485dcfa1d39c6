from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends import KubeflowCluster, KubeflowWithoutVolume
from tests.emulators.kubernetes import KubernetesEmulator, Pace


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KubeflowCluster]:
    cluster = KubeflowCluster(tmp_path)
    assert cluster.emulator is not None
    cluster.emulator.pace = Pace(back_off=0.05)
    yield cluster
    cluster.close()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[KubeflowCluster]:
    """A cluster whose jobs have no work volume."""
    cluster = KubeflowWithoutVolume(tmp_path)
    assert cluster.emulator is not None
    cluster.emulator.pace = Pace(back_off=0.05)
    yield cluster
    cluster.close()


@pytest.fixture
def emulator(request: pytest.FixtureRequest) -> KubernetesEmulator:
    name = "bare" if "bare" in request.fixturenames else "cluster"
    found: KubernetesEmulator | None = request.getfixturevalue(name).emulator
    assert found is not None
    return found
