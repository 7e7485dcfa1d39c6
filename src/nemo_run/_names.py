"""Names people give to titles, experiments and jobs, as names of files and of applications."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePath, PurePosixPath

from nemo_run.exceptions import ConfigError

# File systems take 255 bytes; ids get a time appended, and files of a job a suffix.
MAX_BYTES = 200

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_SLUG = re.compile(r"[^A-Za-z0-9_.-]+")


def checked(name: str, what: str) -> str:
    """Return ``name`` if it can name a directory of its own; blanks, quotes and unicode can.

    Raises:
        ConfigError: it is empty, too long, ``.`` or ``..``, or has a slash or NUL in it.
    """
    if not isinstance(name, str):
        raise ConfigError(f"The {what} is text, not {name!r}.")
    if not name.strip():
        raise ConfigError(f"The {what} is empty. Give it a name.")
    if "/" in name or "\0" in name:
        raise ConfigError(
            f"The {what} {name!r} has a slash or NUL in it, but it names a directory. "
            "Use another character."
        )
    if name in (".", ".."):
        raise ConfigError(f"The {what} {name!r} means a directory that is there already.")
    if len(name.encode("utf-8", "surrogateescape")) > MAX_BYTES:
        raise ConfigError(
            f"The {what} {name[:40]!r}... is {len(name.encode())} bytes long; "
            f"at most {MAX_BYTES} are possible. Shorten it."
        )
    return name


def checked_line(name: str, what: str) -> str:
    """Return ``name`` if it is `checked` and can be printed within a line.

    Raises:
        ConfigError: also where it has line breaks or other control characters in it.
    """
    if isinstance(name, str) and _CONTROL.search(name):
        raise ConfigError(
            f"The {what} {name!r} has a control character in it, such as a line break, which would "
            "break lines that show it. Use another character."
        )
    return checked(name, what)


_OURS = frozenset(
    {
        "_CONFIG",
        "_VERSION",
        "_TASKS",
        "_TUNNELS",
        "_DONE",
        "_STATE",
        "_PLAN",
        "_PROVENANCE",
        "_CHANGES.patch",
        "__main__.py",
        "_SCRIPT",
        "__workspace__.py",
        "_WORKSPACE",
    }
)


def checked_job_name(name: str) -> str:
    """Return ``name`` if a job can be called like that; see `checked_line`.

    Raises:
        ConfigError: also where a file of the experiment has that name.
    """
    if name in _OURS or name.startswith("_CONDUCTOR"):
        raise ConfigError(f"A file of every experiment is called {name!r}. Use another job name.")
    return checked_line(name, "name of a job")


def check_text(name: str, value: object, of_what: str) -> None:
    """Refuse a variable of the environment that cannot be written as UTF-8.

    Raises:
        ConfigError: it has half a character in it.
    """
    try:
        f"{name}{value}".encode()
    except UnicodeEncodeError as err:
        raise ConfigError(
            f"{name!r} in the {of_what} has half a character (a surrogate) in it and cannot be "
            "written as UTF-8. Set it to text."
        ) from err


def directory_for_title(title: str) -> str:
    """Return the directory that runs of ``title`` are kept in.

    Slashes become ``_``, and a digest tells ``a/b`` from ``a_b``.

    Raises:
        ConfigError: no directory can be called like that.
    """
    if not isinstance(title, str):
        raise ConfigError(f"The title of an experiment is text, not {title!r}.")
    name = checked(title.replace("/", "_"), "title of an experiment")
    if "/" not in title:
        return name
    return f"{name}-{hashlib.sha256(title.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def directory_for_id(id: str) -> str:
    """Return the directory of one experiment, within that of its title; slashes become ``_``.

    Raises:
        ConfigError: no directory can be called like that.
    """
    return checked(id.replace("/", "_"), "id of an experiment")


def path_of_id(experiment_id: str) -> PurePosixPath:
    """Return where an experiment is below the job directory of a cluster."""
    return PurePosixPath(experiment_id.rpartition("_")[0] or experiment_id, experiment_id)


def is_path_of_id(path: str | PurePath, experiment_id: str) -> bool:
    """Tell whether ``path`` ends as that of an experiment does."""
    expected = path_of_id(experiment_id).parts
    return PurePosixPath(path).parts[-len(expected) :] == expected


def slug(name: str, max_length: int = 60) -> str:
    """Return ``name`` with everything but letters, digits and ``_.-`` replaced, and cut."""
    return _NOT_SLUG.sub("_", name)[:max_length].strip(".-_") or "job"
