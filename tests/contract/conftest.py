from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.backends import BACKENDS, Cluster


@pytest.fixture(params=sorted(BACKENDS))
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    """A backend to submit to, with nothing submitted yet."""
    return BACKENDS[request.param](tmp_path)
