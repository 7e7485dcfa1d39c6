"""Archives, each kept once by the hash of its bytes, and found again without reading the tree.

    <home>/archives/<sha256>.tar.gz     archives, never changed once they are there
    <home>/archives/known/<identity>    which archive a tree has been packed into

No locks: files appear whole under names that follow from what they are, so it does not matter
which of several processes was first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nemo_run._files import make_private_directory, read_regular, read_whole, write_whole
from nemo_run._home import get_nemorun_home
from nemo_run.core.packaging._gzip import compressed
from nemo_run.core.packaging._members import Part, merged
from nemo_run.core.packaging._tar import tar_pieces
from nemo_run.exceptions import PackagingError
from nemo_run.package_info import __version__

# Part of every identity: an archive of an older form is not found again.
FORMAT = f"1 {__version__}"

_SUFFIX = ".tar.gz"
_HASH = re.compile(r"[0-9a-f]{64}")
_ABANDONED_S = 24 * 3600
# An archive is never written to, not even through one of its other names.
_MODE = 0o400


@dataclass(frozen=True)
class StagedCode:
    """An archive that is ready to travel."""

    archive: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Collected:
    """A file of the store that `gc` removes or would remove."""

    path: Path
    size_bytes: int
    unused_s: float


def archives() -> Path:
    """Return the directory of the store, which may not be there yet."""
    return Path(get_nemorun_home()) / "archives"


def find(sha256: str) -> StagedCode | None:
    """Return the archive of that hash, or None if it is not kept or has been damaged."""
    archive = _path(sha256)
    try:
        whole = hash_of(archive) == sha256
        return StagedCode(archive, sha256, archive.stat().st_size) if whole else None
    except FileNotFoundError:
        return None


def keep(parts: Sequence[Part]) -> StagedCode:
    """Return the archive of a tree, packing it unless it is known.

    Raises:
        PackagingError: something of the tree cannot be read.
    """
    identity = _identity(parts)
    if identity and (known := _known(identity)):
        return known
    with _said_if_it_fails(archives()):
        with _new_file() as file:
            kept = _moved_in(write(parts, file))
        if identity and all(part.settled() for part in parts):
            _remember(identity, kept)
    return kept


def adopt(archive: Path) -> StagedCode:
    """Keep a copy of an archive that was made elsewhere."""
    if kept := find(hash_of(archive)):
        return kept
    with _said_if_it_fails(archives()), _new_file() as file:
        shutil.copyfile(archive, file)
        return _moved_in(StagedCode(file, hash_of(file), file.stat().st_size))


def write(parts: Sequence[Part], file: Path) -> StagedCode:
    """Pack ``parts`` into a new file."""
    return _written(compressed(tar_pieces(merged(parts))), file)


def place(staged: StagedCode, path: Path, *, own: bool = False) -> StagedCode:
    """Give the archive another name, replacing what is there.

    It is a link, or a copy where there can be none; with ``own``, a copy that may be changed.
    """
    beside = path.with_name(f".{path.name[:100]}.{os.urandom(8).hex()}.tmp")
    with _said_if_it_fails(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The time of its last use, for gc: of all times it is the one that a link changes as well.
        staged.archive.chmod(_MODE)
        try:
            if own or not _linked(beside, staged.archive):
                shutil.copyfile(staged.archive, beside)
            beside.replace(path)
        finally:
            # Renaming one name of a file over another of the same file leaves both.
            beside.unlink(missing_ok=True)
    return StagedCode(path, staged.sha256, staged.size_bytes)


@contextmanager
def _said_if_it_fails(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise PackagingError(
            f"The archive of the code could not be written to {str(directory)!r}: {err}. Is there "
            "room, and may you write there?"
        ) from err


def _linked(link: Path, archive: Path) -> bool:
    try:
        link.hardlink_to(archive)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, one without links, or too many of them
        return False
    return True


def gc(
    keep: Collection[str] = (), older_than_s: float = 30 * 24 * 3600, *, dry_run: bool = False
) -> list[Collected]:
    """Remove what has not been used for that long, and return it, the largest first.

    Archives whose hashes are in ``keep`` stay. Jobs that have an archive linked into their
    directory keep it: removing it here then frees nothing until they are gone, too.
    """
    now = time.time()
    collected = []
    for file in _files(archives()):
        if file.name.removesuffix(_SUFFIX) in keep:
            continue
        with suppress(FileNotFoundError):
            found = file.stat()
            if file.name.endswith(_SUFFIX):
                unused_s, limit_s = now - max(found.st_mtime, found.st_ctime), older_than_s
            else:  # left by a process that was killed while it wrote
                unused_s, limit_s = now - found.st_mtime, _ABANDONED_S
            if unused_s > limit_s:
                collected.append(Collected(file, found.st_size, unused_s))
    if not dry_run:
        for item in collected:
            item.path.unlink(missing_ok=True)
        _forget_the_gone()
    return sorted(collected, key=lambda item: item.size_bytes, reverse=True)


def _identity(parts: Iterable[Part]) -> str | None:
    identities = [part.identity() for part in parts]
    if None in identities:
        return None
    return hashlib.sha256(json.dumps([FORMAT, *identities]).encode()).hexdigest()


def _known(identity: str) -> StagedCode | None:
    text = read_whole(archives() / "known" / identity)
    if text is None:
        return None
    try:
        sha256 = json.loads(text)[0]
    except (ValueError, LookupError, TypeError):
        return None
    # Read to its end: a job may have written to it through the name that its directory has for it,
    # and have put size and time back.
    return find(sha256) if isinstance(sha256, str) and _HASH.fullmatch(sha256) else None


def _remember(identity: str, staged: StagedCode) -> None:
    found = staged.archive.stat()
    line = json.dumps([staged.sha256, found.st_size, found.st_mtime_ns])
    known = make_private_directory(archives() / "known")
    write_whole(known / identity, line.encode(), sync=False)


def _forget_the_gone() -> None:
    for file in _files(archives() / "known"):
        with suppress(FileNotFoundError):
            text = read_regular(file)
            try:
                gone = not _path(json.loads(text)[0]).exists()
            except ValueError:
                gone = True
            if gone:
                file.unlink()


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_file()] if directory.is_dir() else []


@contextmanager
def _new_file() -> Iterator[Path]:
    """Give a path in the store for a file that is still being written."""
    file = make_private_directory(archives()) / f".{os.urandom(8).hex()}.tmp"
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def _moved_in(staged: StagedCode) -> StagedCode:
    if kept := find(staged.sha256):
        return kept  # so that jobs go on sharing one file
    staged.archive.replace(_path(staged.sha256))
    return StagedCode(_path(staged.sha256), staged.sha256, staged.size_bytes)


def _path(sha256: str) -> Path:
    return archives() / f"{sha256}{_SUFFIX}"


def _written(pieces: Iterable[bytes], file: Path) -> StagedCode:
    digest = hashlib.sha256()
    size_bytes = 0
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(descriptor, "wb") as output:
        for piece in pieces:
            digest.update(piece)
            output.write(piece)
            size_bytes += len(piece)
    return StagedCode(file, digest.hexdigest(), size_bytes)


def hash_of(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while piece := opened.read(1024 * 1024):
            digest.update(piece)
    return digest.hexdigest()
