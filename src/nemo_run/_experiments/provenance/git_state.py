"""The state of the git repository around a directory.

Nothing here is fatal: what git does not say, for whatever reason, is noted as not known.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nemo_run._experiments.provenance.record import PATCH, GitState
from nemo_run._files import PRIVATE_FILE
from nemo_run._secrets.masking import holds_secret, masked_text
from nemo_run._secrets.shapes import login_length

PATCH_LIMIT_BYTES = 50 * 1024 * 1024
PATIENCE_S = 10.0
"""How long git may take altogether, say on a slow network file system."""

_NAMES_KEPT = 10_000
_LOOK_S = 0.02

# Looking must not change the index, start a program of the repository's choice, or ask the user.
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")
_STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal")
_REMOTES = ("config", "-z", "--get-regexp", r"^remote\..*\.url$")
_DIFF = (
    *("-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false", "diff", "HEAD"),
    *("--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative"),
)
# Set where a git hook launched us, and then meant for its own repository.
_FROM_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
# Fields before the path of a file that was changed, renamed, or is in conflict.
_FIELDS = {"1": 7, "2": 8, "u": 9}
_HELPER = re.compile(r"[\w-]+::")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/+", re.IGNORECASE)
_OVER_SSH = re.compile(r"([^/]*)@([^/@]+:.*)", re.DOTALL)  # user@host:path


def git_state(
    root: Path,
    directory: Path,
    *,
    patience_s: float = PATIENCE_S,
    patch_limit_bytes: int = PATCH_LIMIT_BYTES,
) -> GitState:
    """Return the state of the work tree at ``root``; changes are written into ``directory``."""
    git = _Git(root, patience_s)
    state = _parsed(git.said(*_STATUS), root)
    remote = _origin(git.said(*_REMOTES))
    patch = directory / PATCH
    # Without a commit there is nothing that a file could differ from.
    kept = bool(state.commit and state.changed) and git.save(patch, patch_limit_bytes, *_DIFF)
    return replace(state, remote=remote, patch=PATCH if kept else "", note=git.note)


class _Git:
    """git in one work tree, for a limited time."""

    def __init__(self, root: Path, patience_s: float) -> None:
        self._root = root
        self._patience_s = patience_s
        self._deadline = time.monotonic() + patience_s
        self.note = ""

    def said(self, *argv: str) -> bytes:
        """Return what git prints; what it complains about is noted."""
        process = self._start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if process is None:
            return b""
        try:
            said, complaint = process.communicate(timeout=self._left_s())
        except subprocess.TimeoutExpired:
            self._give_up(process)
            process.communicate()
            return b""
        if process.returncode and complaint:
            first = os.fsdecode(complaint).strip().partition("\n")[0]
            self.note = self.note or masked_text(first.removeprefix("fatal: "))
        return said

    def save(self, path: Path, limit_bytes: int, *argv: str) -> bool:
        """Put what git prints into a file, unless it is too much; say whether it is there."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
        except OSError as err:
            self.note = self.note or f"the changes are not kept: {err.strerror}"
            return False
        with os.fdopen(descriptor, "wb") as file:
            # Not heard: one warning for each of many files would fill a pipe.
            process = self._start(argv, stdout=descriptor, stderr=subprocess.DEVNULL)
            while process is not None and process.poll() is None:
                if not self._left_s() or os.fstat(descriptor).st_size > limit_bytes:
                    self._give_up(process)
                time.sleep(_LOOK_S)
            size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > limit_bytes:
            self.note = f"the changes are not kept: more than {limit_bytes >> 20} MiB"
        elif process is not None and process.returncode == 0:
            return True
        path.unlink(missing_ok=True)
        return False

    def _start(
        self, argv: Sequence[str], *, stdout: int, stderr: int
    ) -> subprocess.Popen[bytes] | None:
        environ = {name: v for name, v in os.environ.items() if name not in _FROM_A_HOOK}
        try:
            return subprocess.Popen(
                [*_GIT, *argv],
                cwd=self._root,
                env={**environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        except OSError as err:
            self.note = self.note or f"git cannot be asked: {err.strerror}"
            return None

    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _give_up(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        self.note = self.note or f"git took longer than {self._patience_s:g} s"


def without_credentials(url: str) -> str:
    """Return the address of a repository without password and token, with a user only for ssh."""
    if helper := _HELPER.match(url):
        return helper[0] + without_credentials(url[helper.end() :])
    if scheme := _SCHEME.match(url):
        address = url[scheme.end() :]
        end = login_length(address)
        login, place = address[:end], re.split("[?#]", address[end:], maxsplit=1)[0]
        kept = login if "ssh" in scheme[0].lower() and _is_user(login[:-1]) else ""
        return scheme[0] + kept + place
    if over_ssh := _OVER_SSH.match(url):
        return url if _is_user(over_ssh[1]) else over_ssh[2]
    return url


def _is_user(login: str) -> bool:
    """Tell whether a login is a name that may be shown, neither with a password nor a token."""
    return bool(login) and ":" not in login and not holds_secret("", login)


def _parsed(status: bytes, root: Path) -> GitState:
    commit = branch = ""
    changed: list[str] = []
    untracked: list[str] = []
    entries = iter(os.fsdecode(status).split("\0"))
    for entry in entries:
        kind, _, rest = entry.partition(" ")
        if kind == "#":
            name, _, value = rest.partition(" ")
            commit = value if name == "branch.oid" and value != "(initial)" else commit
            branch = value if name == "branch.head" and value != "(detached)" else branch
        elif kind == "?":
            untracked.append(rest)
        elif kind in _FIELDS:
            changed.append(rest.split(" ", _FIELDS[kind])[-1])
            if kind == "2":
                next(entries, None)  # what it was called before
    return GitState(
        root=str(root),
        commit=commit,
        branch=branch,
        changed=tuple(changed[:_NAMES_KEPT]),
        untracked=tuple(untracked[:_NAMES_KEPT]),
    )


def _origin(remotes: bytes) -> str:
    found = dict(_pairs(remotes))
    url = found.get("remote.origin.url") or next(iter(found.values()), "")
    return without_credentials(url)


def _pairs(remotes: bytes) -> Iterator[tuple[str, str]]:
    for item in filter(None, os.fsdecode(remotes).split("\0")):
        name, _, value = item.partition("\n")
        yield name, value
