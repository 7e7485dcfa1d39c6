"""Jobs that are launched together travel with the same code: the tree is looked at once."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nemo_run.core.packaging._store import StagedCode
    from nemo_run.core.packaging.base import Packager


@dataclass
class _Look:
    """What packagers found, by their settings and the directory they started from."""

    found: list[tuple[type, dict[str, Any], Path, StagedCode]] = field(default_factory=list)


_look: ContextVar[_Look | None] = ContextVar("look", default=None)


@contextmanager
def one_look() -> Iterator[None]:
    """Within this, packagers with equal settings collect once, whatever is edited meanwhile."""
    token = _look.set(_Look())
    try:
        yield
    finally:
        _look.reset(token)


def recall(packager: Packager, path: Path) -> StagedCode | None:
    """Return what an equal packager found during this look."""
    look = _look.get()
    if look is None:
        return None
    asked = (type(packager), vars(packager), path)
    return next((staged for *known, staged in look.found if tuple(known) == asked), None)


def remember(packager: Packager, path: Path, staged: StagedCode) -> None:
    look = _look.get()
    if look is not None:
        look.found.append((type(packager), copy.deepcopy(vars(packager)), path, staged))
