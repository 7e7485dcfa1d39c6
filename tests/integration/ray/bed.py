"""A real Ray on loopback, which all processes of a test run share, and a way to it that breaks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.slurm.daemons import (
    Daemons,
    end,
    free_ports,
    is_running,
    wait_until,
)

BIN = Path(__file__).parents[3] / ".venv-ray" / "bin"
PREFIX = "nrr-"  # short: sockets go below it
_STARTED: dict[str, RayBed] = {}


class Relay:
    """Passes on what comes to a port of its own, unless it is down."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._is_down = False
        self.cut_after_posts = False
        """Whether the answer to a job's POST is lost, after the cluster has had the request."""
        self.kill_after_post = 0
        """The process that is killed then, before it has an answer."""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            if self._is_down:
                here.close()
                continue
            threading.Thread(target=self._join, args=(here,), daemon=True).start()

    def _join(self, here: socket.socket) -> None:
        target = ("127.0.0.1", self._target)
        with here, contextlib.suppress(OSError), socket.create_connection(target) as there:
            self._open |= {here, there}
            back = threading.Thread(target=self._pass_on, args=(there, here), daemon=True)
            back.start()
            self._pass_on(here, there)
            back.join()
            self._open -= {here, there}

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                lose = self.cut_after_posts or self.kill_after_post
                if lose and data.startswith(b"POST /api/jobs/ "):
                    self.cut_after_posts = False
                    self._lose_answer(data, source, target)
                    return
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _lose_answer(self, data: bytes, source: socket.socket, target: socket.socket) -> None:
        """Have the cluster take a whole request, on a way of its own, and hear of no answer."""
        head, _, body = data.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(body) < size:
            body += source.recv(1 << 16)
        with socket.create_connection(("127.0.0.1", self._target)) as own:
            own.sendall(head + b"\r\n\r\n" + body)
            own.recv(1 << 16)
        if self.kill_after_post:
            os.kill(self.kill_after_post, signal.SIGKILL)
            self.kill_after_post = 0
        source.close()
        target.close()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Have nothing pass while entered."""
        self._is_down = True
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            self._is_down = False

    def close(self) -> None:
        self._server.close()


class RayBed:
    """A cluster of one node in a directory, reached by a relay of this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._daemons = Daemons(directory, {**os.environ, **self._environment()})

    @classmethod
    def here(cls) -> RayBed:
        """Return the one that this process uses."""
        return _STARTED[os.environ["NEMO_RUN_TEST_RAY"]]

    @property
    def environment(self) -> dict[str, str]:
        """What leads programs here."""
        address = f"http://127.0.0.1:{self.relay.port}"
        _STARTED[address] = self
        return {"NEMO_RUN_TEST_RAY": address, "NEMO_RUN_TEST_RAY_TOKEN": self.token}

    @property
    def token(self) -> str:
        return (self.directory / "token").read_text()

    @property
    def port(self) -> int:
        return int((self.directory / "port").read_text())

    def _environment(self) -> dict[str, str]:
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.directory / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_memory_monitor_refresh_ms": "0",  # others may use the memory of this machine
            "PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)]),
        }

    def start(self) -> None:
        """Start the cluster and return when it answers."""
        if not (BIN / "ray").exists():
            raise FileNotFoundError("no Ray: run `make .venv-ray/.installed`")
        for name in ("run", "log"):
            (self.directory / name).mkdir(exist_ok=True)
        (self.directory / "token").touch(mode=0o600)
        (self.directory / "token").write_text(os.urandom(16).hex())
        self.start_again()

    def start_again(self) -> None:
        """Start the cluster anew, at the same address; it knows nothing of the one before."""
        if not (self.directory / "port").exists():
            (self.directory / "port").write_text(str(free_ports(1)[0]))
        client = free_ports(1)[0]
        shutil.rmtree(self.directory / "r", ignore_errors=True)
        argv = [str(BIN / "ray"), "start", "--head", "--block", "--disable-usage-stats"]
        argv += ["--temp-dir", f"{self.directory}/r", "--node-ip-address=127.0.0.2", "--port=0"]
        argv += ["--dashboard-host=127.0.0.1", f"--dashboard-port={self.port}", "--num-cpus=1"]
        argv += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
        argv += [f"--ray-client-server-port={client}", "--object-store-memory=80000000"]
        self._daemons.start("ray", argv)
        wait_until(self._answers, "an answer of Ray", timeout_s=120, pause_s=0.2)

    def _answers(self) -> bool:
        if self._daemons.pid("ray") is None:
            raise RuntimeError(f"Ray ended: {self._daemons.said('ray')[-2000:]}")
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/jobs/")
        request.add_header("Authorization", f"Bearer {self.token}")
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(request, timeout=20) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def open_relay(self) -> None:
        self.relay = Relay(self.port)

    def stop(self) -> None:
        """End everything that runs here."""
        self._daemons.stop("ray", kill=True)
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._left():
            end(pid, kill=True)

    def _left(self) -> list[int]:
        """Return what has our directory among its arguments or in its environment."""
        found = []
        ours = bytes(self.directory)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    is_user = (self.directory / "users" / entry.name).exists()
                    if ours in words and not is_user and is_running(int(entry.name)):
                        found.append(int(entry.name))
        return found


@contextmanager
def shared_bed() -> Iterator[RayBed]:
    """Have the cluster of this test run: its first process starts it, its last one stops it."""
    name = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))[:12]
    directory = Path(tempfile.gettempdir()) / f"{PREFIX}{name}"
    me = directory / "users" / str(os.getpid())
    bed = RayBed(directory)
    with _alone():
        _remove_abandoned()
        me.parent.mkdir(parents=True, exist_ok=True)
        me.touch()
        if not (directory / "port").exists():
            bed.start()
    bed.open_relay()
    try:
        yield bed
    finally:
        bed.relay.close()
        with _alone():
            me.unlink(missing_ok=True)
            if not any(me.parent.iterdir()):
                _end(directory)


@contextmanager
def own_bed() -> Iterator[RayBed]:
    """Have a cluster that a test may break."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    with _alone():
        (directory / "users").mkdir()
        (directory / "users" / str(os.getpid())).touch()
    bed = RayBed(directory)
    try:
        bed.start()
        bed.open_relay()
        yield bed
        bed.relay.close()
    finally:
        _end(directory)


@contextmanager
def _alone() -> Iterator[None]:
    """Be the only process that starts or ends such a cluster, while entered."""
    # Not in the directory: a process may wait for the lock while another removes that.
    path = Path(tempfile.gettempdir()) / f"nemo-run-test-ray-{os.getuid()}.lock"
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _end(directory: Path) -> None:
    RayBed(directory).stop()
    (directory / "port").unlink(missing_ok=True)
    # What was killed may still have files open, or make some.
    wait_until(lambda: _removed(directory), f"the end of {directory}")


def _removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def _remove_abandoned() -> None:
    """End the clusters of test runs that were killed."""
    for users in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/users"):
        with contextlib.suppress(OSError, ValueError):
            pids = [int(user.name) for user in users.iterdir()]
            if not any(map(is_running, pids)):
                _end(users.parent)
