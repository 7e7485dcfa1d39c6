"""Names of the public API that later pieces bring.

One table for all suites. A test of a name in it is expected to fail, strictly: a name that arrives
makes the suite fail until it is taken off the list. A module in the table stands for all its names.
"""

from __future__ import annotations

import pytest

_DEVSPACE = "the devspaces"
_RAY = "Ray clusters and jobs"

TO_COME: dict[str, str] = {
    "nemo_run.DevSpace": _DEVSPACE,
    "nemo_run.devspace": _DEVSPACE,
    "nemo_run.cli.devspace": _DEVSPACE,
    "nemo_run.run.ray": _RAY,
}
"""Dotted name → the piece that brings it."""


def piece_for(name: str) -> str | None:
    """The piece that brings ``name`` or a module it is in; None if it is due now."""
    parts = name.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((TO_COME[prefix] for prefix in prefixes if prefix in TO_COME), None)


def waits_for(name: str) -> pytest.MarkDecorator:
    """Mark a test that cannot pass before ``name`` is there."""
    piece = piece_for(name)
    return pytest.mark.xfail(piece is not None, reason=f"comes with {piece}", strict=True)
