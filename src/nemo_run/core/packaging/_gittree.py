"""A commit as a part of an archive: what ``git archive`` makes of it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from nemo_run.core.packaging import _lfs
from nemo_run.core.packaging._git import Repository
from nemo_run.core.packaging._members import Below, Member, Part, listed
from nemo_run.core.packaging._tar import tar_members
from nemo_run.exceptions import PackagingError

log = logging.getLogger(__name__)

_HARMLESS_FILTERS = {"", "cat"}


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
        if not _lfs.is_pointer(member):
            return member
        content = _lfs.resolved(member, self.repository.top / member.name)
        if content is None:
            self._pointers.append(member.name)
        return content or member

    def _filters(self) -> bool:
        """Tell whether programs take part, whose results nobody can foresee."""
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
