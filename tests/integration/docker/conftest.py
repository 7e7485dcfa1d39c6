"""A real engine for the tests here. One that is missing is a failure, never a skip."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends import DockerCluster
from tests.integration.docker.engine import DockerEngine, temporary_engine
from tests.integration.docker.proxy import EngineProxy


@pytest.fixture
def cluster(
    docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DockerCluster]:
    """The engine that tests share, to submit to."""
    for name, value in docker_engine.environment.items():
        monkeypatch.setenv(name, value)
    cluster = DockerCluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def engine(cluster: DockerCluster) -> DockerEngine:
    """The same engine from its other side."""
    return DockerEngine.at(Path(os.environ["DOCKER_HOST"].removeprefix("unix://")).parent)


@pytest.fixture
def mortal_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerEngine]:
    """An engine of the test's own, as most are: its containers end with it."""
    with temporary_engine(live_restore=False) as engine:
        for name, value in engine.environment.items():
            monkeypatch.setenv(name, value)
        yield engine


@pytest.fixture
def proxy(engine: DockerEngine) -> Iterator[EngineProxy]:
    """Another way to the engine, on which a launcher may die."""
    with tempfile.TemporaryDirectory() as directory:  # a short path, for a socket
        way = EngineProxy(engine.socket, Path(directory) / "s")
        yield way
        way.close()
