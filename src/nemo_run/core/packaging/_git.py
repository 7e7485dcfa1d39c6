"""What we ask of git. Nothing here writes into a repository or runs a program it names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tarfile import BLOCKSIZE
from tempfile import TemporaryFile
from typing import IO, BinaryIO, cast

from nemo_run.exceptions import PackagingError

_GITLINK = b"160000"

# Set by git for the programs it starts, such as a hook that launches us; they name its repository.
_ITS_OWN = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
)

# It would download what is missing into the repository; see `_gittree`.
_WITHOUT_LFS = {
    "filter.lfs.smudge": "",
    "filter.lfs.clean": "",
    "filter.lfs.process": "",
    "filter.lfs.required": "false",
}


class GitError(PackagingError, subprocess.CalledProcessError):
    """git said no. A ``CalledProcessError`` too, since scripts may have caught that."""

    def __init__(self, argv: Sequence[str], returncode: int, said: str, message: str = "") -> None:
        super().__init__(returncode, list(argv))
        self.said = said
        self.message = message or f"git {argv[0]} failed: {said}"

    def __str__(self) -> str:
        return self.message

    def about(self, message: str) -> GitError:
        """Return the same with words for the user."""
        return GitError(self.cmd, self.returncode, self.said, message)


@dataclass(frozen=True)
class Change:
    """A path whose content on disk is not that of the last commit."""

    path: str
    untracked: bool


@dataclass(frozen=True)
class Submodule:
    """A repository that a tree names by a commit."""

    path: str
    commit: str


@dataclass(frozen=True)
class Repository:
    """A work tree, by its top directory."""

    top: Path

    @classmethod
    def around(cls, directory: Path) -> Repository:
        """Return the repository whose work tree ``directory`` is in.

        Raises:
            GitError: it is in none, or git refuses to say.
        """
        try:
            top = _git(directory, "rev-parse", "--show-toplevel")
        except GitError as err:
            raise err.about(
                f"{str(directory)!r} cannot be packaged with git: {err.said}. Run this inside a "
                "git repository, or use another packager, such as SnapshotPackager."
            ) from err
        # One newline ends the answer; others may belong to the name.
        return cls(Path(os.fsdecode(top.removesuffix(b"\n"))))

    def commit(self, ref: str) -> str:
        """Return the id of the commit that ``ref`` names.

        Raises:
            GitError: there is no such commit.
        """
        # Where it could be taken for an option it names no commit either.
        wanted = f"{ref}^{{commit}}" if not ref.startswith("-") else ""
        try:
            said = self._git("rev-parse", "--verify", wanted)
        except GitError as err:
            raise err.about(
                f"There is no commit {ref!r} in {str(self.top)!r}: {err.said}. Commit something "
                "first, or give another ref."
            ) from err
        return said.decode().strip()

    def changes(self) -> list[Change]:
        """Return what differs from the last commit; a submodule that differs counts as one."""
        said = self._git(
            "status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none"
        )
        changes = []
        fields = iter(said.split(b"\0"))
        for line in filter(None, fields):
            changes.append(Change(os.fsdecode(line[3:]), line.startswith(b"??")))
            if b"R" in line[:2] or b"C" in line[:2]:
                next(fields)  # what it was called before
        return changes

    def filtered(self, paths: Iterable[str], *, by: str) -> set[str]:
        """Return which paths have the filter of that name, by the attributes of the work tree."""
        wanted = b"".join(os.fsencode(path) + b"\0" for path in paths)
        if not wanted:
            return set()
        argv = ["check-attr", "-z", "--stdin", "filter"]
        done = _run(self.top, argv, stdin=wanted)
        if done.returncode:
            raise _failure(argv, done.returncode, done.stderr)
        fields = done.stdout.split(b"\0")
        told = zip(fields[::3], fields[2::3], strict=False)
        return {os.fsdecode(path) for path, value in told if value == by.encode()}

    def id_of(self, name: str) -> str:
        """Return the id of an object; empty where there is none of that name."""
        return _run(self.top, ["rev-parse", "--quiet", "--verify", name]).stdout.decode().strip()

    def content(self, name: str) -> bytes:
        """Return what a file of a commit holds, as it is stored; nothing where there is none."""
        return _run(self.top, ["cat-file", "blob", name]).stdout

    def submodules(self, commit: str, subpath: str = "") -> list[Submodule]:
        """Return the submodules of a commit that are below ``subpath``, not those within them."""
        arguments = ["ls-tree", "-r", "-z", "--full-tree", commit]
        said = self._git(*arguments, *(["--", subpath] if subpath else []))
        found = []
        for line in filter(None, said.split(b"\0")):
            if line.startswith(_GITLINK):
                about, _, path = line.partition(b"\t")
                found.append(Submodule(os.fsdecode(path), about.split()[2].decode()))
        return found

    def is_directory(self, commit: str, path: str) -> bool:
        """Tell whether a commit has a directory at ``path``."""
        argv = ["cat-file", "-t", f"{commit}:{path}"]
        return _run(self.top, argv).stdout == b"tree\n"

    def files(self) -> list[str]:
        """Return the paths of all files that are tracked, or new and not ignored.

        Those of submodules are not among them; a submodule is a path like any other. A path that
        ends with a slash is a directory: a new repository within this one, or an empty one.
        """
        found = self._listed("--cached", "--others", "--directory")
        whole = {path for path in found if path.endswith("/") and not self._is_repository(path)}
        if not whole:
            return found
        ignored = set(self._listed("--others", "--ignored", "--directory"))
        empty = [path for name in sorted(whole) for path in self._empty_below(name, ignored)]
        kept = (path for path in found if path not in whole)
        return list(dict.fromkeys([*kept, *self._listed("--others"), *empty]))

    def _listed(self, *kinds: str) -> list[str]:
        said = self._git("ls-files", "-z", "--exclude-standard", *kinds)
        return [os.fsdecode(path) for path in said.split(b"\0") if path]

    def _is_repository(self, path: str) -> bool:
        return (self.top / path / ".git").exists()

    def _empty_below(self, path: str, ignored: Collection[str]) -> Iterator[str]:
        """Yield which of a directory and those in it are empty."""
        if path in ignored or self._is_repository(path):
            return
        try:
            with os.scandir(self.top / path) as entries:
                names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError:  # gone since, or not ours to look at
            return
        if not names:
            yield path
        for name in sorted(name for name, is_directory in names if is_directory):
            yield from self._empty_below(f"{path}{name}/", ignored)

    def has(self, commit: str) -> bool:
        try:
            self._git("cat-file", "-e", f"{commit}^{{commit}}")
        except GitError:
            return False
        return True

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """What git's configuration files say, taken together."""
        said = self._git("config", "--list", "-z").decode(errors="surrogateescape")
        pairs = (item.partition("\n") for item in said.split("\0") if item)
        return {name: value for name, _, value in pairs}

    def own_path(self, name: str) -> Path:
        """Return where the repository keeps something of its own, such as ``info/attributes``."""
        said = self._git("rev-parse", "--git-path", name).removesuffix(b"\n")
        return self.top / os.fsdecode(said)

    def mentions(self, commit: str, word: str, file_name: str) -> bool:
        """Tell whether a word is in one of a commit's files of that name, in any directory."""
        glob = f":(glob)**/{file_name}"
        argv = ["grep", "--quiet", "--fixed-strings", "-e", word, commit, "--", glob]
        done = _run(self.top, argv, literal=False)
        if done.returncode > 1:
            raise _failure(argv, done.returncode, done.stderr)
        return done.returncode == 0

    def refs(self) -> bytes:
        """Return all branches and tags with what they point to."""
        return self._git("for-each-ref", "--format=%(refname) %(objectname)")

    @contextmanager
    def archive(self, commit: str, subpath: str = "") -> Iterator[BinaryIO]:
        """Give the tar file that ``git archive`` makes of a commit, as a stream.

        Raises:
            GitError: git could not finish it.
        """
        argv = ["archive", "--format=tar", commit, *(["--", subpath] if subpath else [])]
        with TemporaryFile() as errors:
            git = _start(self.top, argv, errors)
            assert git.stdout is not None  # a pipe was asked for
            try:
                with git.stdout as stream:
                    _skip_comment(stream)
                    yield cast("BinaryIO", stream)
                    # The end of a tar file comes before the end of the stream.
                    while stream.read(1 << 16):
                        pass
            finally:
                code = git.wait()
                if code > 0:
                    errors.seek(0)
                    raise _failure(argv, code, errors.read())

    def _git(self, *argv: str) -> bytes:
        return _git(self.top, *argv)


def _git(directory: Path, *argv: str) -> bytes:
    done = _run(directory, argv)
    if done.returncode:
        raise _failure(argv, done.returncode, done.stderr)
    return done.stdout


def _run(
    directory: Path, argv: Sequence[str], *, literal: bool = True, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    with _git_found(directory):
        return subprocess.run(
            _command(directory, argv, literal=literal),
            input=stdin,
            capture_output=True,
            env=_environment(),
            check=False,
        )


def _start(directory: Path, argv: Sequence[str], errors: BinaryIO) -> subprocess.Popen[bytes]:
    with _git_found(directory):
        return subprocess.Popen(
            _command(directory, argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(),
            bufsize=1 << 20,
        )


def _command(directory: Path, argv: Sequence[str], *, literal: bool = True) -> list[str]:
    # Looking at a tree would else refresh the index, and may start a monitor that stays.
    words = ["git", "--no-optional-locks", "-C", str(directory), "-c", "core.fsmonitor=false"]
    for name, value in _WITHOUT_LFS.items():
        words += ["-c", f"{name}={value}"]
    return [*words, *(["--literal-pathspecs"] if literal else []), *argv]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _ITS_OWN}
    # What a commit holds, whatever was put in its place locally, and messages we can show.
    return {**kept, "GIT_NO_REPLACE_OBJECTS": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _skip_comment(stream: IO[bytes]) -> None:
    """Read over the name of the commit, which comes first.

    Python's tarfile takes an archive that has nothing else in it for a broken one.
    """
    header = stream.read(BLOCKSIZE)
    if header:
        size_bytes = int(header[124:136].rstrip(b"\0 "), 8)
        stream.read(size_bytes + -size_bytes % BLOCKSIZE)


@contextmanager
def _git_found(directory: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as err:
        raise PackagingError(
            f"{str(directory)!r} cannot be packaged with git: the program is not installed. "
            "Install it, or use a packager that does without, such as PatternPackager."
        ) from err


def _failure(argv: Sequence[str], code: int, stderr: bytes) -> GitError:
    lines = os.fsdecode(stderr).strip().splitlines()
    said = lines[0].removeprefix("fatal: ").rstrip(".") if lines else f"exit code {code}"
    return GitError(argv, code, said)
