from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends import DGXCloudCluster
from tests.emulators.runai import RunaiEmulator
from tests.emulators.runai.vendor import not_understood


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DGXCloudCluster]:
    """All that is asked of it is held against the vendor's description of its API."""
    cluster = DGXCloudCluster(tmp_path)
    yield cluster
    cluster.close()
    assert cluster.emulator is not None
    for kind in ("trainings", "distributed", "workspaces"):
        for request in cluster.emulator.server.requests("POST", f".*/workloads/{kind}"):
            assert not_understood(kind, request.json) == []


@pytest.fixture
def emulator(cluster: DGXCloudCluster) -> RunaiEmulator:
    assert cluster.emulator is not None
    return cluster.emulator
