"""The archives of code that travelled, which are kept under ``<home>/archives``."""

from __future__ import annotations

from datetime import timedelta

from nemo_run._experiments.provenance.record import FILE, read_provenance
from nemo_run._experiments.store.places import experiments_root
from nemo_run.core.packaging import _store
from nemo_run.core.packaging._store import Collected

__all__ = ["Collected", "gc", "kept_archives"]


def gc(
    *,
    older_than: timedelta = timedelta(days=30),
    named_too: bool = False,
    dry_run: bool = True,
) -> list[Collected]:
    """Remove archives that were not used for a while, and return them, the largest first.

    Those that an experiment names stay, unless ``named_too``: without them it cannot be run again
    with ``reset(code="recorded")``. By default nothing is removed, only found.

    Raises:
        RecordError: it cannot be read which archives an experiment names; nothing was removed.
    """
    named = set() if named_too else kept_archives()
    return _store.gc(named, older_than.total_seconds(), dry_run=dry_run)


def kept_archives() -> set[str]:
    """Return the hashes of the archives that experiments name.

    Raises:
        RecordError: what an experiment recorded is damaged.
    """
    named: set[str] = set()
    for file in experiments_root().glob(f"*/*/{FILE}"):
        provenance = read_provenance(file.parent)
        if provenance is not None:
            named |= {archive.sha256 for archive in provenance.archives.values()}
    return named
