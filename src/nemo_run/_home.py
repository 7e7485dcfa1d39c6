"""Where nemo_run keeps what it remembers: asked for when needed, never at import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_chosen: str | None = None


def get_nemorun_home() -> str:
    """Return the home directory: what was set, else ``$NEMORUN_HOME``, else ``~/.nemo_run``."""
    return _chosen if _chosen is not None else home_from(os.environ)


def set_nemorun_home(path: str | os.PathLike[str]) -> None:
    """Use ``path`` as the home directory of this process from now on."""
    global _chosen
    _chosen = str(Path(path).expanduser().absolute())


def home_from(environ: Mapping[str, str]) -> str:
    """Return the home directory that ``environ`` asks for."""
    return str(Path(environ.get("NEMORUN_HOME") or "~/.nemo_run").expanduser().absolute())
