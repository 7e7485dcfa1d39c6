"""What all emulated services have, and how people try them by hand."""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.emulators.faults import Faults
from tests.emulators.http import Server


class Service:
    """Something on loopback that runs jobs, with ``directory`` for its volumes.

    Attributes:
        server: what answers; made last, since it does so at once.
        may_start: is not set while jobs have to wait.
    """

    server: Server

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.may_start = threading.Event()
        self.may_start.set()
        self._installing = threading.Lock()

    @property
    def faults(self) -> Faults:
        return self.server.faults

    def volume(self, name: str) -> Path:
        """Return the directory of this machine that holds a volume."""
        path = self.directory / "volumes" / re.sub(r"[^A-Za-z0-9.-]+", "_", name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def busybox(self) -> str:
        """Return the ``PATH`` of a small image, which has what busybox has."""
        programs = self.directory / "busybox"
        with self._installing:
            if not programs.exists():
                programs.mkdir(parents=True)
                busybox = shutil.which("busybox")
                assert busybox, "no busybox: run `make setup`"
                subprocess.run([busybox, "--install", "-s", str(programs)], check=True)
        return str(programs)

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Have new jobs wait while entered."""
        self.may_start.clear()
        try:
            yield
        finally:
            self.may_start.set()

    def advice(self) -> str:
        """Return what to type in another terminal."""
        raise NotImplementedError

    def close(self) -> None:
        """End every job and stop answering."""
        raise NotImplementedError


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(make: Callable[[Path, int], Service], description: str | None) -> None:
    """Run a service until Ctrl-C; ``make`` gets a directory for its volumes and a port."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=0, help="of loopback; 0 for any")
    parser.add_argument("--directory", type=Path, help="for volumes; a temporary one by default")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background has the first ignored
        signal.signal(number, signal.default_int_handler)
    service = make(options.directory or Path(tempfile.mkdtemp(prefix="emulator-")), options.port)
    print(f"# It is up. In another terminal:\n{service.advice()}")
    volumes = service.directory / "volumes"
    print(f"# Volumes are in {volumes}. Ctrl-C ends it and its jobs.", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    service.close()
