"""A commit as a part of an archive, as ``git archive`` makes it, and what differs from it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from nemo_run.core.packaging._git import Change, Repository
from nemo_run.core.packaging._members import (
    IN_MEMORY_BYTES,
    Below,
    Kind,
    Large,
    Member,
    Part,
    listed,
)
from nemo_run.core.packaging._tar import tar_members
from nemo_run.exceptions import PackagingError

log = logging.getLogger(__name__)

_HARMLESS_FILTERS = {"", "cat"}

# Git LFS stores these in place of large files, which are taken from the work tree.
_LONGEST_POINTER = 1024
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?"
    rb"oid sha256:(?P<sha256>[0-9a-f]{64})\nsize (?P<size>\d+)\n"
)


@dataclass
class GitTree:
    """The files of a commit below ``subpath``, which becomes the root.

    The attributes in effect are those of the commit: ``export-ignore``, ``export-subst``, line
    ends and filters are applied as ``git archive`` does.
    """

    repository: Repository
    commit: str
    subpath: str = ""
    _pointers: list[str] = field(init=False, default_factory=list, repr=False)

    def identity(self) -> str | None:
        if self._filters():
            return None
        attributes = [_text_of(path) for path in self._attribute_files()]
        refs = b""
        if any("export-subst" in text for text in attributes) or self.repository.mentions(
            self.commit, "export-subst", ".gitattributes"
        ):
            # What is substituted may name branches and tags.
            refs = self.repository.refs()
        about = json.dumps(
            [self.commit, self.subpath, dict(self.repository.settings), attributes, refs.hex()]
        )
        return f"git:{hashlib.sha256(about.encode()).hexdigest()}"

    def settled(self) -> bool:
        return not self._pointers

    def members(self) -> Iterator[Member]:
        prefix = f"{self.subpath}/" if self.subpath else ""
        with self.repository.archive(self.commit, self.subpath) as stream:
            for member in tar_members(stream, seekable=False):
                # The directories that lead to the subpath come first.
                if member.name.startswith(prefix):
                    yield replace(self._whole(member), name=member.name.removeprefix(prefix))
        if self._pointers:
            log.warning(
                "Packaged as the pointers that git stores: %s. The files they stand for are not "
                "in the work tree as committed: fetch them with `git lfs pull`.",
                listed(self._pointers),
            )

    def _whole(self, member: Member) -> Member:
        if _pointer(member) is None:
            return member
        content = _resolved(member, self.repository.top / member.name)
        if content is None:
            self._pointers.append(member.name)
        return content or member

    def _filters(self) -> bool:
        """Tell whether programs take part, whose results cannot be foreseen."""
        return any(
            name.startswith("filter.")
            and name.endswith((".smudge", ".process"))
            and value not in _HARMLESS_FILTERS
            for name, value in self.repository.settings.items()
        )

    def _attribute_files(self) -> list[Path]:
        config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        named = self.repository.settings.get("core.attributesfile") or f"{config}/git/attributes"
        return [
            self.repository.own_path("info/attributes"),
            Path(named).expanduser(),
            Path("/etc/gitattributes"),
        ]


def with_submodules(
    repository: Repository, commit: str, subpath: str = ""
) -> tuple[list[Part], list[str]]:
    """Return the parts of a commit and, at the commits it names, of its submodules, nested too.

    Second come the paths of submodules that are not checked out, so that nothing is known of them.

    Raises:
        PackagingError: a submodule does not have the commit.
    """
    parts: list[Part] = [GitTree(repository, commit, subpath)]
    missing = []
    for submodule in repository.submodules(commit, subpath):
        name = submodule.path.removeprefix(f"{subpath}/") if subpath else submodule.path
        top = repository.top / submodule.path
        if not (top / ".git").exists():
            missing.append(submodule.path)
            continue
        inner = Repository(top)
        if not inner.has(submodule.commit):
            raise PackagingError(
                f"Submodule {submodule.path!r} cannot be packaged: commit {submodule.commit} is "
                "not in its repository here. Run `git submodule update --init`."
            )
        found, absent = with_submodules(inner, submodule.commit)
        parts += [Below(name, part) for part in found]
        missing += [f"{submodule.path}/{path}" for path in absent]
    return parts, missing


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""


def changes_of(repository: Repository) -> list[Change]:
    """Return what differs from the last commit; a submodule that differs counts as one.

    Without Git LFS, which we keep it from running, git takes a large file for a changed pointer.
    """
    changes = repository.changes()
    large = repository.filtered((c.path for c in changes if not c.untracked), by="lfs")
    return [c for c in changes if c.path not in large or not _is_committed(repository, c.path)]


def file_by_file(repository: Repository, changes: Iterable[Change]) -> Iterator[Change]:
    """Yield the changes within submodules in place of them.

    A submodule is one itself where another commit is checked out than the one that is recorded.
    """
    for change in changes:
        inner = Repository(repository.top / change.path)
        if not is_submodule(repository, change):
            yield change
            continue
        within = list(file_by_file(inner, changes_of(inner)))
        if not within or inner.id_of("HEAD") != repository.id_of(f"HEAD:{change.path}"):
            yield change
        for each in within:
            yield replace(each, path=f"{change.path}/{each.path}")


def is_submodule(repository: Repository, change: Change) -> bool:
    return not change.untracked and (repository.top / change.path / ".git").exists()


def _is_committed(repository: Repository, name: str) -> bool:
    """Tell whether a file is the one that a committed pointer stands for."""
    pointer = Member(name, content=repository.content(f"HEAD:{name}"))
    return _resolved(pointer, repository.top / name) is not None


def _resolved(member: Member, path: Path) -> Member | None:
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
    if (
        member.kind is not Kind.FILE
        or isinstance(content, Large)
        or len(content) > _LONGEST_POINTER
    ):
        return None
    return _POINTER.match(content)
