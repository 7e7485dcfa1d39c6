"""A real Docker engine in a directory, on a socket of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import requests
from tests.integration.docker import images
from tests.integration.slurm.daemons import (
    Daemons,
    children,
    end,
    owned_directory,
    search_path,
    wait_until,
)

PROGRAMS = ("dockerd", "containerd", "runc", "busybox")
PREFIX = "nemo-run-docker-"
_CLONE_NEWNET = 0x40000000
_STARTED: dict[Path, DockerEngine] = {}


class DockerEngine:
    """An engine that any process can take over by its directory.

    Containers go on while it is stopped (``live_restore``), as on machines that are set up so.
    """

    def __init__(self, directory: Path, *, live_restore: bool = True) -> None:
        self.directory = directory
        self.socket = directory / "docker.sock"
        self.network = directory / "network"
        self._live_restore = live_restore
        self._daemons = Daemons(directory, os.environ)

    @classmethod
    def at(cls, directory: Path) -> DockerEngine:
        """Return the engine of a directory, by the object that started it if this process did."""
        return _STARTED.get(directory) or cls(directory)

    @property
    def environment(self) -> dict[str, str]:
        """What leads programs here."""
        return {"DOCKER_HOST": f"unix://{self.socket}"}

    @contextmanager
    def client(self) -> Iterator[Any]:
        with contextlib.closing(docker.DockerClient(base_url=f"unix://{self.socket}")) as client:
            yield client

    def start(self) -> None:
        """Start the engine and return when it answers."""
        _check_programs()
        for name in ("run", "log"):
            (self.directory / name).mkdir(exist_ok=True)
        self._make_network()
        (self.directory / "daemon.json").write_text("{}")  # and not what this machine may have
        self._daemons.start("dockerd", self._command())
        wait_until(self._answers, "an answer of dockerd", timeout_s=120)

    def _make_network(self) -> None:
        """Make a network with nothing but a loopback, which the engine and its containers share.

        Nothing can leave it, and engines do not see each other's bridges.
        """
        if not self.network.exists():
            self.network.touch()
            up = ["busybox", "ip", "link", "set", "lo", "up"]
            subprocess.run(["unshare", f"--net={self.network}", *up], check=True)

    def listen(self) -> socket.socket:
        """Return a socket on the loopback of that network."""
        with ThreadPoolExecutor(1) as alone, self.network.open() as network:
            return alone.submit(_listen_in, network.fileno()).result()

    def _command(self) -> list[str]:
        argv = ["nsenter", f"--net={self.network}"]
        argv += ["dockerd", "--host", f"unix://{self.socket}"]
        argv += ["--data-root", str(self.directory / "root")]
        argv += ["--exec-root", str(self.directory / "exec")]
        argv += ["--pidfile", str(self.directory / "dockerd.pid")]
        argv += ["--config-file", str(self.directory / "daemon.json")]
        argv += ["--exec-opt", "native.cgroupdriver=cgroupfs"]
        argv += ["--storage-driver=overlay2", "--default-ulimit=nofile=20000:20000"]
        argv += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        return [*argv, "--live-restore"] if self._live_restore else argv

    def _answers(self) -> bool:
        if self._daemons.pid("dockerd") is None:
            raise RuntimeError(f"dockerd ended: {self._daemons.said('dockerd')[-2000:]}")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as way:
            way.settimeout(20)
            way.connect(str(self.socket))
            way.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in way.recv(100)
        return False

    def halt(self, *, kill: bool = False) -> None:
        """Stop the engine alone."""
        self._daemons.stop("dockerd", kill=kill)
        # Not before it has let go of what the next one needs.
        (self.directory / "dockerd.pid").unlink(missing_ok=True)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Have no engine while entered."""
        self.halt()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def out_of_reach(self) -> Iterator[None]:
        """Have nothing where programs look for the engine while entered; it goes on."""
        aside = self.socket.with_suffix(".aside")
        self.socket.rename(aside)
        try:
            yield
        finally:
            aside.rename(self.socket)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Have an engine that takes requests and does not answer while entered."""
        pid = self._daemons.pid("dockerd")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def clear(self) -> None:
        """Remove all containers."""
        with self.client() as client:
            for container in client.containers.list(all=True, ignore_removed=True):
                with contextlib.suppress(docker.errors.APIError):
                    container.remove(force=True)

    def stop(self) -> None:
        """End everything that runs here, and undo what was changed outside of the directory."""
        if self._daemons.pid("dockerd") is not None:
            with contextlib.suppress(
                docker.errors.DockerException, requests.exceptions.RequestException
            ):
                self.clear()
                with self.client() as client:
                    client.networks.prune()
        self.halt()
        for pid in self._left():
            for below in [*children(pid), pid]:
                end(below, kill=True)
        self._unmount()

    def _left(self) -> list[int]:
        """Return what still runs of this engine: its containerd, and those of containers."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    command = (entry / "cmdline").read_bytes().split(b"\0")
                    if b"containerd" in command[0] and any(
                        bytes(self.directory) in word for word in command
                    ):
                        found.append(int(entry.name))
        return found

    def _unmount(self) -> None:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        places = [line.split()[1] for line in lines]
        for place in reversed([p for p in places if p.startswith(f"{self.directory}/")]):
            subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)


def _listen_in(network: int) -> socket.socket:
    """Return a socket in a network; the calling thread stays there."""
    if ctypes.CDLL(None, use_errno=True).setns(network, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter the network of the engine")
    return socket.create_server(("127.0.0.1", 0))


def _check_programs() -> None:
    path = search_path(os.environ)
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        raise FileNotFoundError(
            f"A Docker engine needs {', '.join(missing)}: run scripts/system-packages.sh"
        )
    if os.getuid() != 0:
        raise PermissionError("A Docker engine makes containers, so run as root")


@contextmanager
def temporary_engine(*, live_restore: bool = True) -> Iterator[DockerEngine]:
    """Have an engine with the images of the tests while entered, and nothing of it afterwards."""
    with owned_directory(PREFIX, lambda directory: DockerEngine(directory).stop()) as directory:
        engine = DockerEngine(directory, live_restore=live_restore)
        _STARTED[directory] = engine
        try:
            engine.start()
            with engine.client() as client:
                images.load(client)
            yield engine
        finally:
            # By the object that started it, which can wait for its child.
            engine.stop()
            del _STARTED[directory]
