"""Files as they are on disk: found by walking or by patterns, told apart without being read."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from nemo_run.core.packaging._members import (
    FILE_MODE,
    IN_MEMORY_BYTES,
    PROGRAM_MODE,
    Kind,
    Large,
    Member,
)
from nemo_run.core.packaging._store import archives
from nemo_run.exceptions import ConfigError, PackagingError

# A file that is written once more within the tick of its file system's clock looks the same.
_TICK_NS = 2_000_000_000


@dataclass
class DiskFiles:
    """Files, links and empty directories on disk, by their names in the archive.

    With ``private``, what only its owner can read stays so; else modes are those git knows.
    """

    paths: Mapping[str, str]
    private: bool = False
    _stats: dict[str, os.stat_result] = field(init=False, default_factory=dict, repr=False)
    _looked_ns: int = field(init=False, default=0, repr=False)

    def __post_init__(self) -> None:
        self._looked_ns = time.time_ns()
        for name in sorted(self.paths, key=os.fsencode):
            # What was deleted since it was listed is not part of the tree.
            try:
                self._stats[name] = os.lstat(self.paths[name])
            except OSError as err:
                if err.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise _unreadable(self.paths[name], err) from err

    def identity(self) -> str | None:
        digest = hashlib.sha256(b"private" if self.private else b"")
        for name, seen in self._stats.items():
            digest.update(os.fsencode(name))
            digest.update(
                b"\0%d %d %d %d %d %d\0"
                % (
                    seen.st_dev,
                    seen.st_ino,
                    seen.st_mode,
                    seen.st_size,
                    seen.st_mtime_ns,
                    # Cannot be set: also tells what was put back to its old time.
                    seen.st_ctime_ns,
                )
            )
        return f"disk:{digest.hexdigest()}"

    def settled(self) -> bool:
        newest = max(
            (max(seen.st_mtime_ns, seen.st_ctime_ns) for seen in self._stats.values()), default=0
        )
        return newest < self._looked_ns - _TICK_NS

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the files, in bytes."""
        return {
            name: seen.st_size for name, seen in self._stats.items() if stat.S_ISREG(seen.st_mode)
        }

    def members(self) -> Iterator[Member]:
        for name, seen in self._stats.items():
            try:
                member = self._member(name, self.paths[name], seen)
            except FileNotFoundError:
                continue
            except OSError as err:
                raise _unreadable(self.paths[name], err) from err
            if member:
                yield member

    def _member(self, name: str, path: str, seen: os.stat_result) -> Member | None:
        program = stat.S_ISDIR(seen.st_mode) or seen.st_mode & stat.S_IXUSR
        mode = PROGRAM_MODE if program else FILE_MODE
        if self.private and not seen.st_mode & 0o044:
            mode &= 0o700
        if stat.S_ISLNK(seen.st_mode):
            target = os.readlink(path)  # noqa: PTH115  # a Path would write it differently
            return Member(name, Kind.LINK, target=target)
        if stat.S_ISDIR(seen.st_mode):
            return Member(name, Kind.DIRECTORY, mode=mode)
        if not stat.S_ISREG(seen.st_mode):
            return None
        if seen.st_size > IN_MEMORY_BYTES:
            return Member(name, Kind.FILE, Large(seen.st_size, partial(_open, path)), mode)
        with _open(path) as file:
            return Member(name, Kind.FILE, file.read(), mode)


def everything_below(directory: str, skip: Collection[str] = ()) -> Iterator[str]:
    """Yield the paths of all files, links and empty directories, except what is in ``skip``.

    Names of ``skip`` without a slash stand for everything that is called so.
    """
    try:
        with os.scandir(directory) as entries:
            found = [e for e in entries if e.name not in skip and e.path not in skip]
    except OSError as err:
        raise _unreadable(directory, err) from err
    if not found:
        yield directory
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from everything_below(entry.path, skip)
        else:
            yield entry.path


def found_by(pattern: str, relative_to: str, *, start: Path) -> dict[str, str]:
    """Return what is at and below the paths that a pattern matches, by name in the archive.

    Patterns are those of a shell, with ``**`` for any number of directories. Relative paths start
    at ``start``; names are relative to ``relative_to``.

    Raises:
        ConfigError: nothing matches, or a match is not below ``relative_to``.
    """
    wanted = str(start / Path(pattern).expanduser())
    matches = _matches(wanted)
    if not matches:
        raise ConfigError(
            f"Nothing can be packaged for the pattern {pattern!r}: it matches no file below "
            f"{str(start)!r}. Correct it, or leave it out."
        )
    root = str(start / Path(relative_to).expanduser())
    skip = {str(archives())}
    paths: dict[str, str] = {}
    for match in matches:
        for path in everything_below(match, skip) if Path(match).is_dir() else [match]:
            paths[_name_below(root, path)] = path
    paths.pop("", None)
    return paths


def _matches(pattern: str) -> list[str]:
    # As in a shell: a name with brackets in it may just be a name.
    if os.path.lexists(pattern):
        return [pattern]
    # Unlike Path.glob, it leaves out hidden files as a shell does.
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207


def pairs(
    patterns: str | Sequence[str], relative_paths: str | Sequence[str], *, fields: str
) -> list[tuple[str, str]]:
    """Return each pattern that is not empty with the path that belongs to it.

    Raises:
        ConfigError: there are more of one than of the other.
    """
    firsts, seconds = _as_list(patterns), _as_list(relative_paths)
    if len(firsts) != len(seconds):
        raise ConfigError(
            f"{fields} have to be of the same length, one path for each pattern, and are of "
            f"{len(firsts)} and {len(seconds)}."
        )
    return [(first, second) for first, second in zip(firsts, seconds, strict=True) if first]


def _as_list(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _name_below(root: str, path: str) -> str:
    name = os.path.relpath(path, root)
    if name == os.pardir or name.startswith("../"):
        # One of them may be written with a link in it.
        name = os.path.relpath(Path(path).parent.resolve() / Path(path).name, Path(root).resolve())
    if name == os.pardir or name.startswith("../"):
        raise ConfigError(
            f"{path!r} cannot be stored relative to {root!r}: it is not below it. Choose a "
            "relative path that all files of the pattern are below."
        )
    return "" if name == os.curdir else name


def _open(path: str) -> BinaryIO:
    # Neither through a link nor waiting for a pipe that has taken the place of the file.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.fdopen(os.open(path, flags), "rb")


def _unreadable(path: str, err: OSError) -> PackagingError:
    return PackagingError(
        f"{path!r} could not be packaged: {err.strerror or err}. Make it readable, or leave it out."
    )
