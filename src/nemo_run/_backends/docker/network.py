"""The network that the containers of jobs share."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nemo_run._backends.docker import connection
from nemo_run._backends.docker.client import Engine
from nemo_run._backends.docker.settings import WITHOUT_NAMES
from nemo_run._files import try_lock
from nemo_run._transport.waiting import Waiting

log = logging.getLogger(__name__)

NETWORK = "nemo_run"

_LOCK = "nemorun_docker_network_lock"
_LOCK_PATIENCE_S = 10.0


def ensure_network(client: Any = None, network: str | None = None) -> None:
    """Make a network that containers share, unless it is there or every engine has it."""
    name = network or NETWORK
    if name in WITHOUT_NAMES or name.startswith("container:"):
        return
    engine = Engine(client or connection.connect().client)
    if engine.has_network(name):
        return
    # Docker makes two of one name if it is asked by two at once, and then knows neither by it.
    with _network_lock():
        if not engine.has_network(name):
            engine.create_network(name)


@contextmanager
def _network_lock() -> Iterator[None]:
    descriptor = None
    try:
        path = Path(tempfile.gettempdir()) / _LOCK
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        waiting = Waiting(0.02, 0.02, timeout_s=_LOCK_PATIENCE_S)
        while not try_lock(descriptor) and not waiting.is_over:
            waiting.pause()
    except OSError as err:  # another user's file: better without a lock than not at all
        log.debug("no lock: %s", err)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
