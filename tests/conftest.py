"""Every test has a home directory of its own, reaches no network, and leaves no process behind."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests import needs, patience

from nemo_run import _home

RAY_AGENT_PORT = 52365
"""Where the agent of every Ray node listens unless it is told otherwise."""

# How long an example takes says how busy the machine is.
settings.register_profile("nemo_run", deadline=None)
settings.load_profile("nemo_run")

# A suite that was started in the background ignores Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from tests.integration.docker.engine import DockerEngine
    from tests.integration.ray.bed import RayBed
    from tests.integration.slurm.cluster import SlurmCluster


@pytest.hookimpl(tryfirst=True)  # before the time limit of tests is read
def pytest_configure(config: pytest.Config) -> None:
    patience.measure()
    if config.option.timeout is None:
        config.option.timeout = patience.seconds(float(config.getini("timeout")))


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark_engines(items)
    for item in items:
        if limit := item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(patience.seconds(limit.args[0])), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    needs.begin(item)
    try:
        return (yield)
    finally:
        needs.end()


@contextlib.contextmanager
def in_home(home: Path) -> Iterator[None]:
    """Use a home directory in a fixture that tests share, and that is made before their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEMORUN_HOME", str(home))
        patch.setattr(_home, "_chosen", None)
        yield


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


@pytest.fixture(scope="session")
def ray_bed() -> Iterator[RayBed]:
    """A Ray cluster for all tests, also of other processes of this run."""
    from tests.integration.ray.bed import shared_bed

    with shared_bed() as bed:
        yield bed


@pytest.fixture
def usual_ray_ports() -> Iterator[None]:
    """Be the only test with a real Ray in emulated containers, which share this machine's ports."""
    path = Path(tempfile.gettempdir()) / f"nemo-run-test-ray-ports-{os.getuid()}.lock"
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        deadline = patience.deadline(60)
        while _is_taken(RAY_AGENT_PORT):
            assert time.monotonic() < deadline, f"port {RAY_AGENT_PORT} is taken"
            time.sleep(0.1)
        yield


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


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
sys.addaudithook(needs.refuse_programs)
