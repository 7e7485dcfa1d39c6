"""Tar files that no honest sender makes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable

Entry = tuple[tarfile.TarInfo, bytes]


def entry(
    name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, content


def packed(entries: Iterable[Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def header(kind: bytes, size_bytes: int) -> bytes:
    """Return the beginning of a member that says it is that large."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size_bytes
    return info.tobuf(tarfile.GNU_FORMAT)


def attacks(victim: str) -> dict[str, bytes]:
    """Return archives that would change the file ``victim``, by what they do."""
    folder = victim.rpartition("/")[0]
    return {
        "hard link, then written": packed(
            [entry("a", kind=tarfile.LNKTYPE, link=victim), entry("a", b"taken")]
        ),
        "hard link by a way up": packed(
            [
                entry("a", kind=tarfile.LNKTYPE, link="../" * 20 + victim[1:]),
                entry("a", b"taken"),
            ]
        ),
        "link, then written": packed(
            [entry("a", kind=tarfile.SYMTYPE, link=victim), entry("a", b"taken")]
        ),
        "linked directory": packed(
            [
                entry("a", kind=tarfile.SYMTYPE, link=folder),
                entry(f"a/{victim.rpartition('/')[2]}", b"taken"),
            ]
        ),
        "hard link to a link": packed(
            [
                entry("a", kind=tarfile.SYMTYPE, link=victim),
                entry("b", kind=tarfile.LNKTYPE, link="a"),
                entry("b", b"taken"),
            ]
        ),
        "absolute name": packed([entry(victim, b"taken")]),
        "way up": packed([entry("../" * 20 + victim[1:], b"taken")]),
    }
