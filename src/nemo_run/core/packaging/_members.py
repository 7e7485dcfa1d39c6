"""What an archive is made of: members, and the parts of a tree that they come from."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import BinaryIO, Protocol

from nemo_run.exceptions import PackagingError

log = logging.getLogger(__name__)

IN_MEMORY_BYTES = 64 * 1024 * 1024
"""Files up to this size are held whole; larger ones are read in pieces, twice."""

FILE_MODE, PROGRAM_MODE = 0o644, 0o755

_SHOWN = 10


class Kind(Enum):
    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"


@dataclass(frozen=True)
class Large:
    """Content that can be opened again and again."""

    size_bytes: int
    open: Callable[[], BinaryIO]


@dataclass(frozen=True)
class Member:
    """One entry of an archive. Bytes of its name that are not text are escaped as Python does."""

    name: str
    kind: Kind = Kind.FILE
    content: bytes | Large = b""
    mode: int = FILE_MODE
    target: str = ""

    @property
    def size_bytes(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.size_bytes


class Part(Protocol):
    """Some files of an archive, all from one place.

    1. Two parts of equal `identity` have equal members, if the first was `settled` when read.
    2. An identity is cheap: it is found without reading the content of files.
    3. An identity of None equals no other.
    4. Members come in an order that follows from what they are.
    """

    def identity(self) -> str | None: ...

    def members(self) -> Iterator[Member]: ...

    def settled(self) -> bool:
        """Tell, after reading, whether its identity may stand for what was read."""
        ...


@dataclass(frozen=True)
class Below:
    """A part moved into a directory."""

    directory: str
    part: Part

    def identity(self) -> str | None:
        inner = self.part.identity()
        return inner and f"{self.directory!a}/{inner}"

    def members(self) -> Iterator[Member]:
        for member in self.part.members():
            yield replace(member, name=f"{self.directory}/{member.name}")

    def settled(self) -> bool:
        return self.part.settled()


def merged(parts: Sequence[Part]) -> Iterator[Member]:
    """Yield the members of all parts, each name once: of the last part that has it.

    Links that lead out of the archive are left out, and that is said.
    """
    files: set[str] = set()
    directories: set[str] = set()
    outside: list[str] = []
    # From the last to the first, so that nothing has to be held back or written twice.
    for part in reversed(parts):
        for member in part.members():
            name = checked_name(member.name)
            if name in files or any(parent in files for parent in parents_of(name)):
                continue
            if name in directories:
                continue
            if member.kind is Kind.LINK and leads_out(name, member.target):
                outside.append(name)
                continue
            (directories if member.kind is Kind.DIRECTORY else files).add(name)
            directories.update(parents_of(name))
            yield replace(member, name=name) if name != member.name else member
    if outside:
        log.warning(
            "Left out of the archive: %s. Links that are absolute or lead out of the packaged "
            "directory would point to something else where the code is unpacked.",
            listed(outside),
        )


def checked_name(name: str) -> str:
    """Return ``name`` without its empty and ``.`` components.

    Raises:
        PackagingError: it is absolute, empty, or leads out of where it would be unpacked.
    """
    steps = [step for step in name.split("/") if step not in ("", ".")]
    if not steps or name.startswith("/") or ".." in steps or "\0" in name:
        raise PackagingError(
            f"{name!r} cannot be the name of a file in an archive: it has to stay below the "
            "directory that the archive is unpacked in."
        )
    return "/".join(steps)


def leads_out(name: str, target: str) -> bool:
    """Tell whether a link called ``name`` leads out of the tree that it is in."""
    there = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return target.startswith("/") or there == ".." or there.startswith("../")


def parents_of(name: str) -> Iterator[str]:
    end = name.rfind("/")
    while end > 0:
        yield name[:end]
        end = name.rfind("/", 0, end)


def listed(names: Iterable[str]) -> str:
    """Return some of ``names`` for a message, and how many there are."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more ({len(names)} in all)" if more > 0 else shown
