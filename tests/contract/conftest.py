from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends import BACKENDS, Cluster, SchedulerCluster
from tests.integration.skypilot.bed import skypilot_bed  # noqa: F401  # a fixture

FAST = {"local"}
SKYPILOT = [
    pytest.mark.skypilot,
    pytest.mark.needs("skypilot"),
    # Where its API server takes long to answer SkyPilot starts another, and does not wait for it.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    if name in FAST:
        return []
    if name.startswith("skypilot"):
        return [pytest.mark.slow, *SKYPILOT]
    engine = getattr(BACKENDS[name], "fixture", "")
    return [pytest.mark.slow, *([pytest.mark.needs(engine)] if engine else [])]


@pytest.fixture(params=[pytest.param(name, marks=marks_of(name)) for name in sorted(BACKENDS)])
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """A backend to submit to, with nothing submitted yet."""
    kind = BACKENDS[request.param]
    if request.param.startswith("skypilot"):
        request.getfixturevalue("skypilot_bed")
    if isinstance(kind, type) and issubclass(kind, SchedulerCluster) and kind.fixture:
        engine = request.getfixturevalue(kind.fixture)
        for name, value in engine.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NEMO_RUN_TEST_SLURM", str(engine.directory))
    cluster = kind(tmp_path)
    yield cluster
    cluster.close()
