"""Names people give to titles, experiments and jobs, as names of files and of applications."""

from __future__ import annotations

import re

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


def directory_for_title(title: str) -> str:
    """Return the directory that runs of ``title`` are kept in; slashes become ``_``.

    Raises:
        ConfigError: no directory can be called like that.
    """
    if not isinstance(title, str):
        raise ConfigError(f"The title of an experiment is text, not {title!r}.")
    return checked(title.replace("/", "_"), "title of an experiment")


def slug(name: str, max_length: int = 60) -> str:
    """Return ``name`` with everything but letters, digits and ``_.-`` replaced, and cut."""
    return _NOT_SLUG.sub("_", name)[:max_length].strip(".-_") or "job"
