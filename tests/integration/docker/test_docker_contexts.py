"""Which engine is used, where several could be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends import DockerCluster
from tests.integration.docker.engine import DockerEngine

from nemo_run._clients.docker import connect
from nemo_run.exceptions import ConfigError

pytestmark = pytest.mark.slow


@pytest.fixture
def contexts(
    cluster: DockerCluster, engine: DockerEngine, tmp_path: Path
) -> Iterator[pytest.MonkeyPatch]:
    """An environment whose ``docker`` knows the context ``ours``, and which names no engine."""
    meta = tmp_path / "contexts" / "meta" / hashlib.sha256(b"ours").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    host = {"Host": f"unix://{engine.socket}"}
    meta.write_text(json.dumps({"Name": "ours", "Metadata": {}, "Endpoints": {"docker": host}}))
    (tmp_path / "config.json").write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(tmp_path))
        patch.delenv("DOCKER_HOST")
        patch.delenv("DOCKER_CONTEXT", raising=False)
        yield patch


def test_the_current_context_is_used(
    contexts: pytest.MonkeyPatch, engine: DockerEngine, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"currentContext": "ours"}')
    assert connect().host == f"unix://{engine.socket}"


def test_the_variable_chooses_another(contexts: pytest.MonkeyPatch, engine: DockerEngine) -> None:
    contexts.setenv("DOCKER_CONTEXT", "ours")
    assert connect().host == f"unix://{engine.socket}"


def test_a_context_that_is_not_there_is_said(contexts: pytest.MonkeyPatch) -> None:
    contexts.setenv("DOCKER_CONTEXT", "theirs")
    with pytest.raises(ConfigError, match=r"'theirs', which DOCKER_CONTEXT names.*DOCKER_HOST"):
        connect()
