"""What all emulated services have, and how people try them by hand."""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.emulators.faults import Faults
from tests.emulators.http import Server

_APPLETS = """
[ awk base64 basename cat chgrp chmod chown cksum cmp comm cp cut date dd df diff dirname du
echo env expand expr false find fold getopt grep gunzip gzip head hexdump hostname id install
kill link ln ls md5sum mkdir mkfifo mknod mktemp more mv nice nl nproc od paste patch pidof
printf ps pwd readlink realpath rev rm rmdir sed seq setsid sh sha1sum sha256sum sha512sum
sleep sort split stat strings stty sum sync tac tail tar tee test time timeout touch tr true
truncate tty uname uniq unlink unxz usleep vi wc wget which whoami xargs xxd yes zcat
"""
"""Programs of the image ``busybox`` that a script might use."""


class Service:
    """Something on loopback that runs jobs, with ``directory`` for its volumes.

    Attributes:
        server: what answers; made last, since it does so at once.
        may_start: is not set while jobs have to wait.
        log_lag_s: how long after they were written lines can be read.
    """

    server: Server

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log_lag_s = 0.0
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
        """Return the ``PATH`` of a small image, which has what busybox has.

        Where there is no busybox, the machine's own programs of these names take its place, and a
        `tar` of ours. `make engines` runs the tests of files that come and go with a real one.
        """
        programs = self.directory / "busybox"
        with self._installing:
            if not programs.exists():
                programs.mkdir(parents=True)
                busybox = shutil.which("busybox")
                for name in _APPLETS.split():
                    found = busybox or shutil.which(name)
                    if found:
                        (programs / name).symlink_to(found)
                if not busybox:
                    _write_tar(programs / "tar")
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


def _write_tar(path: Path) -> None:
    path.unlink(missing_ok=True)
    program = [sys.executable, "-I", str(Path(__file__).with_name("tar.py"))]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
    path.chmod(0o755)


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
