"""Look for a secret wherever it could have been left."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import zlib
from pathlib import Path

_PACKED = re.compile(rb"eJ[\w\-+/]{20,}={0,2}")


def readable_files_with(secret: str, *directories: Path) -> list[Path]:
    """Return the files with ``secret``, also packed, that others than their owner may read."""
    paths = (
        Path(at, name) for top in directories for at, _, names in os.walk(top) for name in names
    )
    return [path for path in paths if holds(secret, _readable_by_others(path))]


def _readable_by_others(path: Path) -> bytes:
    """Return what others may read there; files of a live job may be gone by now."""
    try:
        shared = path.is_file() and path.stat().st_mode & 0o077
        return path.read_bytes() if shared else b""
    except FileNotFoundError:
        return b""


def holds(secret: str, data: bytes) -> bool:
    """Tell whether ``data`` has the secret in plain, or in the packed form of our configs."""
    wanted = secret.encode()
    if wanted in data or base64.b64encode(wanted) in data:
        return True
    return any(holds(secret, inner) for inner in map(_unpacked, _PACKED.findall(data)) if inner)


def _unpacked(text: bytes) -> bytes:
    try:
        return zlib.decompress(base64.urlsafe_b64decode(text))
    except (zlib.error, binascii.Error):
        return b""


def command_lines() -> str:
    """Return the arguments of every process of this machine, a process in each line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # It may end while it is looked at.
            with contextlib.suppress(OSError):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" "))
    return b"\n".join(found).decode("utf-8", "replace")
