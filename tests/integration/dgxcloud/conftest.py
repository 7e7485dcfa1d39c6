from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends import DGXCloudCluster
from tests.emulators.runai import RunaiEmulator


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DGXCloudCluster]:
    cluster = DGXCloudCluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def emulator(cluster: DGXCloudCluster) -> RunaiEmulator:
    assert cluster.emulator is not None
    return cluster.emulator
