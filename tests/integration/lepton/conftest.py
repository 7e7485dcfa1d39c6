from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends import LeptonCluster
from tests.emulators.lepton import LeptonEmulator


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LeptonCluster]:
    """An emulated workspace to submit to."""
    cluster = LeptonCluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def emulator(cluster: LeptonCluster) -> LeptonEmulator:
    """The same workspace from its other side."""
    assert cluster.emulator is not None
    return cluster.emulator
