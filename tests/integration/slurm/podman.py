"""Podman's images and containers in a directory of their own. There is no daemon."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import patience
from tests.integration.docker import images
from tests.integration.slurm.daemons import owned_directory

PREFIX = "nemo-run-podman-"

# Limits as low as any machine has them: a container may be refused higher ones.
_CONTAINERS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""

_STORAGE = """
[storage]
driver = "vfs"
runroot = "{directory}/run"
graphroot = "{directory}/images"
"""


class PodmanStore:
    """What ``podman`` knows wherever `environment` is set."""

    def __init__(self, directory: Path) -> None:
        self.environment = {
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
        }
        Path(self.environment["CONTAINERS_CONF"]).write_text(_CONTAINERS)
        storage = _STORAGE.format(directory=directory)
        Path(self.environment["CONTAINERS_STORAGE_CONF"]).write_text(storage)

    def load(self) -> None:
        """Take in the images of the tests."""
        changes = [part for change in images.CHANGES for part in ("--change", change)]
        for name, data in images.archives():
            self._podman("import", *changes, "-", name, stdin=data)

    def running(self) -> int:
        """Return how many containers there are."""
        return len(self._podman("ps", "--quiet").split())

    def empty(self) -> None:
        """End all containers, and forget the images."""
        self._podman("rm", "--all", "--force", "--time", "0")
        self._podman("rmi", "--all", "--force")

    def _podman(self, *arguments: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["podman", *arguments],
            env={**os.environ, **self.environment},
            input=stdin,
            capture_output=True,
            timeout=patience.seconds(120),
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return done.stdout.decode()


@contextmanager
def temporary_store() -> Iterator[PodmanStore]:
    """A store with the images of the tests; nothing is left of it afterwards."""
    with owned_directory(PREFIX, lambda directory: PodmanStore(directory).empty()) as directory:
        store = PodmanStore(directory)
        store.load()
        yield store
