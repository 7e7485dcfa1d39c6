"""Where nemo_run keeps what it remembers: asked for when needed, never at import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nemo_run.exceptions import ConfigError

_chosen: str | None = None


def get_nemorun_home() -> str:
    """Return the home directory: what was set, else ``$NEMORUN_HOME``, else ``~/.nemo_run``."""
    return _chosen if _chosen is not None else home_from(os.environ)


def set_nemorun_home(path: str | os.PathLike[str]) -> None:
    """Use ``path`` as the home directory of this process from now on."""
    global _chosen
    _chosen = str(Path(path).expanduser().absolute())


def home_from(environ: Mapping[str, str]) -> str:
    """Return the home directory that ``environ`` asks for.

    Raises:
        ConfigError: it is below the user's home, and this user has none.
    """
    path = Path(environ.get("NEMORUN_HOME") or "~/.nemo_run")
    try:
        path = path.expanduser()
    except RuntimeError as err:
        raise ConfigError(
            f"{str(path)!r} cannot be found: HOME is not set, and user {os.getuid()} has no entry "
            "in /etc/passwd. Set NEMORUN_HOME to a directory that this user can write to."
        ) from err
    return str(path if path.is_absolute() else working_directory() / path)


def working_directory() -> Path:
    """Return the directory that this process works in.

    Raises:
        ConfigError: it was deleted.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as err:
        raise ConfigError(
            "The working directory of this process was deleted, so jobs cannot start there. "
            "Change to one that exists (cd), and try again."
        ) from err


def check_surroundings() -> None:
    """Refuse to go on where torchx cannot be imported, which asks for both directories then.

    Raises:
        ConfigError: the working directory was deleted, or the user has no home directory.
    """
    working_directory()
    try:
        Path.home()
    except RuntimeError as err:
        raise ConfigError(
            f"There is no home directory: HOME is not set, and user {os.getuid()} has no entry in "
            "/etc/passwd. Set HOME to a directory that this user can write to."
        ) from err
