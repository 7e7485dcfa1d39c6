"""Files that are put on a cluster, many at once."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class File:
    """A file, or with ``link`` a symbolic link, to be put on the cluster."""

    path: str
    data: bytes = b""
    mode: int = 0o600
    link: str = ""


def packed(files: Sequence[File]) -> bytes:
    """Return a tar of files with absolute paths; directories that are private are made so."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for file in files:
            info = tarfile.TarInfo(file.path.lstrip("/"))
            info.mode, info.mtime = file.mode, int(time.time())
            if file.link:
                info.type, info.linkname = tarfile.SYMTYPE, file.link
                tar.addfile(info)
            elif file.path.endswith("/"):
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(file.data)
                tar.addfile(info, io.BytesIO(file.data))
    return buffer.getvalue()
