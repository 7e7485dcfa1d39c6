"""Which tests need more than Python, git, make and OpenSSH's client.

Such a test is marked `engine`, because of its folder, because of a fixture that it uses, or because
it says so with `@pytest.mark.needs("dot")`. All others run on a fresh machine, for any user.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FOLDERS = {
    Path(__file__).parent / "integration" / name for name in ("docker", "ray", "skypilot", "slurm")
}
"""Those of tests whose fixtures, most of them, start an engine."""

FIXTURES = {
    *(
        "slurm_with_accounting",
        "slurm_without_accounting",
        "docker_engine",
        "ray_bed",
        "skypilot_bed",
    ),
    "small_disk",
    "certificate",
}
"""Those that start an engine, mount something or call OpenSSL, for tests in other folders."""

PROGRAMS = {
    *("busybox", "cc", "dot", "fish", "openssl", "pgrep", "ps", "rsync", "sshd", "zsh"),
    *("containerd", "docker", "dockerd", "podman"),
    "ray",
    *("mariadbd", "munged", "sbatch", "slurmctld", "slurmd", "slurmdbd"),
}
"""What a fresh machine may lack; `scripts/system-packages.sh` installs them."""


def mark_engines(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if (
            item.path.parent in FOLDERS
            or FIXTURES.intersection(getattr(item, "fixturenames", ()))
            or item.get_closest_marker("needs")
        ):
            item.add_marker("engine")


class NotOnAFreshMachine(BaseException):
    """A test that is not marked uses an engine. Not an Exception, so that nothing swallows it."""


class _Now:
    needs_nothing = False


def begin(item: pytest.Item) -> None:
    """Remember whether what runs from now on may use engines."""
    _Now.needs_nothing = item.get_closest_marker("engine") is None


def end() -> None:
    _Now.needs_nothing = False


def refuse_programs(event: str, args: tuple[Any, ...]) -> None:
    """Fail where a test starts what it did not say that it needs; an audit hook of Python's."""
    if not _Now.needs_nothing or event not in {"subprocess.Popen", "os.posix_spawn"}:
        return
    program = os.fsdecode(args[0] or args[1][0])
    # Some tests are about programs that are missing.
    if Path(program).name in PROGRAMS and shutil.which(program):
        raise NotOnAFreshMachine(f"{program} may be missing: mark the test with `needs`")
