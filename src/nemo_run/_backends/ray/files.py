"""Which files of a directory travel to a Ray cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from nemo_run.exceptions import ConfigError, PackagingError


def copy_unignored(source: Path, target: Path) -> None:
    """Copy what git would not ignore; the directory need not be a repository."""
    with tempfile.TemporaryDirectory() as scratch:
        _git("init", "--quiet", "--bare", scratch)
        listed = _git(
            f"--git-dir={scratch}",
            f"--work-tree={source}",
            *("ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"),
            cwd=source,
        )
    for name in filter(None, listed.split(b"\0")):
        here = source / os.fsdecode(name)
        there = target / os.fsdecode(name)
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_dir() and not here.is_symlink():
            # A repository of its own, which git does not look into.
            there.mkdir(exist_ok=True)
            copy_unignored(here, there)
        else:
            shutil.copy2(here, there, follow_symlinks=False)


def _git(*words: str, cwd: Path | None = None) -> bytes:
    program = shutil.which("git")
    if program is None:
        raise ConfigError("There is no git on this machine. Install it to send workdir.")
    done = subprocess.run(
        [program, *words], cwd=cwd, capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise PackagingError(f"git {' '.join(words)} failed: {said}")
    return done.stdout
