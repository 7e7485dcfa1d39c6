from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends import BACKENDS, Cluster, SchedulerCluster

FAST = {"local"}


def _params() -> list[object]:
    return [
        pytest.param(name, marks=() if name in FAST else pytest.mark.slow)
        for name in sorted(BACKENDS)
    ]


@pytest.fixture(params=_params())
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """A backend to submit to, with nothing submitted yet."""
    kind = BACKENDS[request.param]
    if isinstance(kind, type) and issubclass(kind, SchedulerCluster) and kind.fixture:
        engine = request.getfixturevalue(kind.fixture)
        for name, value in engine.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NEMO_RUN_TEST_SLURM", str(engine.directory))
    cluster = kind(tmp_path)
    yield cluster
    cluster.close()
