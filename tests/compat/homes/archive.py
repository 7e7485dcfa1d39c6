"""Pack a recorded home, and unpack it somewhere else as if it had been written there."""

from __future__ import annotations

import base64
import json
import platform
import re
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = "/srv/nemo"
"""Where homes are recorded; nothing that they hold may name a directory outside of it."""

PARTS = ("home", "project")
ELSEWHERE = "workstation"
KEPT_PACKAGES = ("nemo_run", "torchx", "fiddle")

_PACKED = re.compile(r"eJ[\w\-]{20,}={0,2}")


def names() -> list[str]:
    """Return the commits of which a home was recorded."""
    return sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("*.tar.gz"))


def pack(root: Path, name: str) -> Path:
    """Store the home and the project below ``root``; return the archive."""
    for path in root.glob("home/experiments/*/*/_PROVENANCE"):
        _shorten(path)
    for path in files(root / "home"):
        _change(path, _from_elsewhere)
    archive = HERE / f"{name}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for part in PARTS:
            tar.add(root / part, part, filter=_anonymous)
    return archive


def extract(tar: tarfile.TarFile, root: Path) -> None:
    # The first releases of Python 3.10 and 3.11, which Debian has, know of no filters.
    if hasattr(tarfile, "tar_filter"):
        tar.extractall(root, filter="tar")
    else:
        tar.extractall(root)


def unpack(name: str, root: Path) -> Path:
    """Unpack a recorded home below ``root`` and return it; the python it names is this one."""
    with tarfile.open(HERE / f"{name}.tar.gz") as tar:
        extract(tar, root)
    for path in files(root):
        _change(path, lambda text: _moved(text, str(root)))
    python = root / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return root / "home"


def files(root: Path) -> Iterator[Path]:
    """Yield the text files below ``root``."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and b"\0" not in path.read_bytes():
            yield path


def plain(text: str) -> str:
    """Return ``text`` with the packed configs in it unpacked."""
    return _PACKED.sub(lambda match: _unpacked(match[0]), text)


def _change(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_text()
    if (changed := change(text)) != text:
        path.write_text(changed)


def _moved(text: str, root: str) -> str:
    def repack(match: re.Match[str]) -> str:
        packed = zlib.compress(_moved(_unpacked(match[0]), root).encode())
        return base64.urlsafe_b64encode(packed).decode()

    return _PACKED.sub(repack, text.replace(ROOT, root))


def _unpacked(text: str) -> str:
    return zlib.decompress(base64.urlsafe_b64decode(text)).decode()


def _shorten(path: Path) -> None:
    """Leave out the packages that happened to be installed, which are most of the bytes."""
    data = json.loads(path.read_text())
    data["packages"] = {name: data["packages"][name] for name in KEPT_PACKAGES}
    data["host"] = ELSEWHERE
    path.write_text(json.dumps(data, indent=1))


def _from_elsewhere(text: str) -> str:
    """Have local jobs been run by another machine: by this one they are only for who records."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    machine = Path("/etc/machine-id").read_text().strip()
    text = text.replace(f"{machine} {platform.node()}", f"{'0' * len(machine)} {ELSEWHERE}")
    return text.replace(boot, re.sub(r"\w", "0", boot))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    unwanted = {".git", "__pycache__", "gate"}
    return None if unwanted & set(Path(member.name).parts) else member
