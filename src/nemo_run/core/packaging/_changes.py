"""Which files on disk are not as committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nemo_run.core.packaging import _lfs
from nemo_run.core.packaging._git import Change, Repository
from nemo_run.core.packaging._members import Member


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
    return _lfs.resolved(pointer, repository.top / name) is not None
