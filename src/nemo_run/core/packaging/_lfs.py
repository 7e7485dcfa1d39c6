"""Pointers that git stores in place of large files: the files are taken from the work tree."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

from nemo_run.core.packaging._members import IN_MEMORY_BYTES, Kind, Large, Member

_LONGEST_BYTES = 1024
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?"
    rb"oid sha256:(?P<sha256>[0-9a-f]{64})\nsize (?P<size>\d+)\n"
)


def is_pointer(member: Member) -> bool:
    return _pointer(member) is not None


def resolved(member: Member, path: Path) -> Member | None:
    """Return a member with the content it points to, or None if the file at ``path`` is not that.

    Since a pointer has the hash of the content, no program has to be run and nothing trusted.
    """
    pointer = _pointer(member)
    if pointer is None or path.is_symlink() or not path.is_file():
        return None
    size_bytes = int(pointer["size"])
    if path.stat().st_size != size_bytes:
        return None
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1024 * 1024):
            digest.update(piece)
    if digest.hexdigest() != pointer["sha256"].decode():
        return None
    if size_bytes > IN_MEMORY_BYTES:
        return replace(member, content=Large(size_bytes, lambda: path.open("rb")))
    return replace(member, content=path.read_bytes())


def _pointer(member: Member) -> re.Match[bytes] | None:
    content = member.content
    if member.kind is not Kind.FILE or isinstance(content, Large) or len(content) > _LONGEST_BYTES:
        return None
    return _POINTER.match(content)
