"""Images that come from a registry."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.contract.backends import DockerCluster
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.proxy import PULL, Death, EngineProxy
from tests.integration.docker.registry import Registry
from torchx.specs import AppState

from nemo_run.exceptions import SubmitError

pytestmark = pytest.mark.slow


@pytest.fixture
def registry(engine: DockerEngine) -> Iterator[Registry]:
    registry = Registry(engine.listen())
    registry.publish(RELEASE="first")
    yield registry
    registry.close()


def release(cluster: DockerCluster, registry: Registry, pull: str) -> list[str]:
    """Return what a job in the image says, without the note that it has no bash."""
    app_id = cluster.schedule("echo $RELEASE", container_image=registry.image, pull=pull)
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    return cluster.lines(app_id)[1:]


def test_an_image_that_is_not_here_is_pulled(cluster: DockerCluster, registry: Registry) -> None:
    assert release(cluster, registry, "missing") == ["first\n"]


def test_a_newer_image_is_looked_for_or_not(cluster: DockerCluster, registry: Registry) -> None:
    assert release(cluster, registry, "always") == ["first\n"]
    registry.publish(RELEASE="second")
    assert release(cluster, registry, "missing") == ["first\n"]
    assert release(cluster, registry, "never") == ["first\n"]
    assert release(cluster, registry, "always") == ["second\n"]


def test_a_registry_that_wants_to_know_who_asks_is_named(
    cluster: DockerCluster, registry: Registry
) -> None:
    registry.locked = True
    with pytest.raises(SubmitError, match=r"could not pull image '127\.0\.0\.1:.*logged in"):
        cluster.schedule("true", container_image=registry.image, pull="missing")


@pytest.mark.parametrize("took_s", [0, 3600])
def test_a_connection_that_breaks_while_an_image_comes_is_made_again(
    cluster: DockerCluster, registry: Registry, proxy: EngineProxy, took_s: int
) -> None:
    broken: list[bool] = []
    proxy.wait_for(Death(PULL, done=True, torn=True), lambda: broken.append(True))
    now = time.monotonic
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now() + took_s * len(broken))
        patch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
        assert release(cluster, registry, "always") == ["first\n"]
    assert broken == [True]
