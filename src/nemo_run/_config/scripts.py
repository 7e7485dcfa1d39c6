"""What a `Script` runs: a command line taken apart, inline text written to a file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from nemo_run.exceptions import ConfigError

# /nemo_run where it starts a path and is a whole component of it.
RUNDIR_PATH = re.compile(r"(?<![\w./}~-])/nemo_run(?![\w-]|\.\w)")

# Words that run something else; the something else is what a job should be called after.
_INTERPRETERS = re.compile(
    r"^(env|exec|sudo|nohup|bash|sh|zsh|(python|torchrun|uv|accelerate)[\d.]*)$"
)


def words_in(path: str) -> list[str] | None:
    """Return the words of a command line, or None where ``path`` names a file.

    Raises:
        ConfigError: it is neither.
    """
    try:
        if Path(path).exists():
            return None
    except OSError:  # too long for a path
        pass
    try:
        words = shlex.split(path)
    except ValueError as err:
        raise ConfigError(
            f"{path!r} is neither a file nor a command line ({err}). "
            "Give a path, or the whole script as inline text."
        ) from err
    return words if len(words) > 1 else None


def name_of(words: Sequence[str]) -> str:
    """Return what a job that runs a command line is called: the first word that says what it is."""
    named = (w for w in words if not w.startswith("-") and not _INTERPRETERS.match(Path(w).name))
    return Path(next(named, words[0])).name


def write(target: Path, text: str, entrypoint: str, rundir: str | None) -> None:
    """Write an executable file, with ``rundir`` in place of ``/nemo_run`` unless it is None."""
    if rundir is not None:
        text = RUNDIR_PATH.sub(lambda _: rundir, text)
    shebang = "/usr/bin/bash" if entrypoint == "bash" else f"/usr/bin/env {entrypoint}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"#!{shebang}\n{text}")
    target.chmod(target.stat().st_mode | 0o755)
