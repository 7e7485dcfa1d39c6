"""Which lines of a log are wanted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchx.schedulers.api import Stream

from nemo_run._jobs.shown_text import for_terminal as for_terminal
from nemo_run.exceptions import ConfigError


@dataclass(frozen=True, kw_only=True)
class LogQuery:
    """Which part of a job's logs is wanted.

    Attributes:
        last_only: only the end will be looked at; a backend may leave out what is before it.
    """

    role: str
    replica: int = 0
    stream: Stream = Stream.COMBINED
    follow: bool = False
    since: datetime | None = None
    until: datetime | None = None
    last_only: bool = False


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends; the last may have none."""
    # Unlike str.splitlines: a carriage return, say of a progress bar, does not end a line.
    *whole, rest = text.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])


def line_filter(regex: str | None) -> Any:
    """Return what tells the lines that match, or None for all.

    Raises:
        ConfigError: ``regex`` is not a regular expression.
    """
    if not regex:
        return None
    try:
        return re.compile(regex).search
    except re.error as err:
        raise ConfigError(f"{regex!r} is not a regular expression: {err}.") from err
