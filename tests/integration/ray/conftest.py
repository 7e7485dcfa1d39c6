"""A real Ray for the tests here. One that is missing is a failure, never a skip."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.backends import RayBackend
from tests.integration.ray.bed import RayBed


@pytest.fixture
def cluster(ray_bed: RayBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RayBackend:
    """The cluster that tests share, to submit to."""
    for name, value in ray_bed.environment.items():
        monkeypatch.setenv(name, value)
    return RayBackend(tmp_path)
