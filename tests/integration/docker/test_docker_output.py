"""What the engine has of a container's output, which it may fail to tell."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from tests.contract.backends import DockerCluster
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PLAIN
from tests.integration.docker.proxy import LOGS, Death, EngineProxy
from tests.integration.launching import wait_for
from torchx.schedulers.api import Stream
from torchx.specs import AppState

from nemo_run._backends.docker.client import Engine
from nemo_run._backends.docker.connection import connect
from nemo_run.exceptions import BackendError, BackendUnavailableError, UnsupportedError

pytestmark = pytest.mark.slow

WORDS = b"".join(b"line %d\n" % number for number in range(100))


def ended(engine: DockerEngine, **settings: object) -> str:
    """Return the id of a container that said `WORDS` and has ended."""
    program = "for i in $(seq 0 99); do echo line $i; done"
    with engine.client() as client:
        container = client.containers.create(
            PLAIN, ["sh", "-c", program], network="none", **settings
        )
        container.start()
        container.wait()
        return str(container.id)


@pytest.fixture
def way(proxy: EngineProxy) -> Engine:
    """The engine, at the other end of the proxy."""
    return connect(f"unix://{proxy.path}")


def test_all_of_it_comes(cluster: DockerCluster, engine: DockerEngine, way: Engine) -> None:
    assert b"".join(way.output(ended(engine))) == WORDS


def test_that_of_a_terminal_comes(
    cluster: DockerCluster, engine: DockerEngine, way: Engine
) -> None:
    assert b"".join(way.output(ended(engine, tty=True))).replace(b"\r", b"") == WORDS


def test_a_connection_that_breaks_is_not_the_end_of_it(
    cluster: DockerCluster, engine: DockerEngine, proxy: EngineProxy, way: Engine
) -> None:
    container = ended(engine)
    proxy.wait_for(Death(LOGS, done=True, torn=True), lambda: None)
    with pytest.raises(BackendUnavailableError, match="does not answer"):
        b"".join(way.output(container))


def test_an_engine_that_is_stuck_is_not_waited_for_for_ever(
    cluster: DockerCluster, engine: DockerEngine, proxy: EngineProxy, way: Engine
) -> None:
    container = ended(engine)
    way.client.api.timeout = 1
    given_up = threading.Event()
    proxy.wait_for(Death(LOGS, done=True, torn=True), partial(wait_for, given_up.is_set, "an end"))
    with pytest.raises(BackendUnavailableError, match="does not answer"):
        b"".join(way.output(container))
    given_up.set()


def test_an_engine_that_keeps_no_log_says_so(
    cluster: DockerCluster, engine: DockerEngine, way: Engine
) -> None:
    container = ended(engine, log_config={"Type": "none"})
    with pytest.raises(BackendError, match="no log"):
        b"".join(way.output(container))


def test_one_stream_alone_is_not_to_be_had(cluster: DockerCluster) -> None:
    app_id = cluster.schedule("echo out; echo err >&2")
    cluster.wait(app_id)
    with pytest.raises(UnsupportedError, match="STDERR"):
        cluster.lines(app_id, streams=Stream.STDERR)


def test_a_job_has_not_ended_before_its_output_is_here(
    cluster: DockerCluster, engine: DockerEngine, proxy: EngineProxy
) -> None:
    broken: list[bool] = []
    proxy.wait_for(Death(LOGS, done=True, torn=True), lambda: broken.append(True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
        # Somebody who may not write where we look.
        app_id = cluster.schedule("seq 0 99", additional_kwargs={"user": "1000:1000"})
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == [f"{number}\n" for number in range(100)]
    assert broken == [True]
