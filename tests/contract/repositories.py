"""Repositories to package, with everything in them that a file system and git allow."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

IDENTITY = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}

ODD_NAMES = [
    "plain.py",
    "with blank.py",
    " leading and trailing ",
    'it\'s "quoted".py',
    "new\nline.py",
    "tab\tand\\backslash",
    "-rf",
    "--output=x",
    ":(top)magic",
    "*",
    "[ab]?",
    "$HOME `id`",
    "naïve ☃.py",
    os.fsdecode(b"not \xff\xfe text.py"),
    "a" * 200,
    "deep/er/" + "b" * 120 + "/" + "c" * 120 + "/file.py",
]


@dataclass(frozen=True)
class File:
    """What is expected of a file, directory or link in an archive."""

    content: bytes = b""
    program: bool = False
    link: str = ""


Tree = dict[str, File]


def git(directory: Path, *argv: str) -> str:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", "-C", str(directory), *argv],
        env={**os.environ, **IDENTITY},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_repository(directory: Path) -> Path:
    directory.mkdir(parents=True)
    git(directory, "init", "-q", "-b", "main")
    return directory


def commit_all(repository: Path, message: str = "more") -> str:
    git(repository, "add", "--all", "--force")
    git(repository, "commit", "-q", "--allow-empty", "-m", message)
    return git(repository, "rev-parse", "HEAD")


def copy_of(repository: Path, to: Path) -> Path:
    """Return a copy of a repository, which is made much faster than the repository."""
    return Path(shutil.copytree(repository, to, symlinks=True))


def write_tree(directory: Path, tree: Tree) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, file in tree.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            path.symlink_to(file.link)
        else:
            path.write_bytes(file.content)
            path.chmod(0o755 if file.program else 0o644)


def read_tree(directory: Path) -> Tree:
    """Return all files and links below a directory."""
    tree = {}
    for parent, directories, files in os.walk(directory):
        for entry in [*directories, *files]:
            path = Path(parent, entry)
            name = str(path.relative_to(directory))
            if path.is_symlink():
                tree[name] = File(link=str(path.readlink()))
            elif path.is_file():
                program = bool(path.stat().st_mode & 0o100)
                tree[name] = File(path.read_bytes(), program)
    return tree


def odd_tree() -> Tree:
    tree = {name: File(f"content of {name!a}".encode()) for name in ODD_NAMES}
    tree["run.sh"] = File(b"#!/bin/sh\necho hi\n", program=True)
    tree["empty"] = File()
    tree["binary"] = File(bytes(range(256)) * 5000)
    tree["block"] = File(b"x" * 1024)
    tree["to file"] = File(link="plain.py")
    tree["to directory"] = File(link="deep/er")
    tree["deep/up"] = File(link="../plain.py")
    tree["to nothing"] = File(link="not there")
    tree["d" * 150 + "/link"] = File(link="e" * 150)
    return tree


def state_of(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything about a directory that somebody who writes into it would change."""
    found = {}
    for parent, directories, files in os.walk(directory):
        for entry in [*directories, *files]:
            path = Path(parent, entry)
            seen = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (seen.st_mtime_ns, seen.st_mode, content)
    return found
