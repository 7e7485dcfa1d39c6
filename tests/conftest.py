"""Every test has a home directory of its own, reaches no network, and leaves no process behind."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from nemo_run import _home

# How long an example takes says how busy the machine is.
settings.register_profile("nemo_run", deadline=None)
settings.load_profile("nemo_run")

# A suite that was started in the background ignores Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from tests.integration.docker.engine import DockerEngine
    from tests.integration.slurm.cluster import SlurmCluster


@pytest.fixture(autouse=True)
def nemorun_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home directory that is not there yet; also that of processes the test starts."""
    home = tmp_path / "nemorun_home"
    monkeypatch.setenv("NEMORUN_HOME", str(home))
    # What another test may have set for the whole process.
    monkeypatch.setattr(_home, "_chosen", None)
    yield home
    if home.exists():
        for pid in processes_with(f"NEMORUN_HOME={home}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def slurm_with_accounting() -> Iterator[SlurmCluster]:
    """A Slurm cluster for all tests of this process."""
    from tests.integration.slurm.cluster import temporary_cluster

    with temporary_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_without_accounting() -> Iterator[SlurmCluster]:
    """Another one, whose ``sacct`` has no answer."""
    from tests.integration.slurm.cluster import temporary_cluster

    with temporary_cluster(accounting=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """A Docker engine for all tests of this process."""
    from tests.integration.docker.engine import temporary_engine

    with temporary_engine() as engine:
        yield engine


@pytest.fixture(autouse=True)
def logger_of_nobody() -> Iterator[None]:
    """Take back what an earlier test, or a fixture of several, has configured on our logger."""
    ours = logging.getLogger("nemo_run")
    ours.handlers.clear()
    ours.propagate = True
    ours.setLevel(logging.NOTSET)
    yield


def processes_with(variable: str) -> list[int]:
    """Return the processes that were started with ``NAME=value`` in their environment."""
    wanted = variable.encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            # A process may end, or belong to somebody else, while it is looked at.
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


class NetworkUsed(BaseException):
    """A test tried to leave this machine. Not an Exception, so that nothing swallows it."""


_HERE = {"", "localhost", "0.0.0.0", "::", socket.gethostname()}


def _stays_here(host: Any) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host is None or host in _HERE:
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def _refuse_network(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        address = args[1]
        # Unix sockets are addressed by a path.
        host = address[0] if isinstance(address, tuple) else None
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        host = args[0]
    else:
        return
    if not _stays_here(host):
        raise NetworkUsed(f"tests reach this machine only, not {host!r}")


sys.addaudithook(_refuse_network)
