"""Every packager, on repositories with everything in them that git knows of."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contract.packagers import CASES, Case
from tests.contract.repositories import (
    File,
    Tree,
    commit_all,
    copy_of,
    git,
    make_repository,
    odd_tree,
    read_tree,
    state_of,
    write_tree,
)

import nemo_run as run
from nemo_run.core.packaging._staging import extract

pytestmark = pytest.mark.slow

CONTENT = b"weights" * 1000
POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    f"oid sha256:{hashlib.sha256(CONTENT).hexdigest()}\nsize {len(CONTENT)}\n"
)
ATTRIBUTES = b"*.bin filter=lfs diff=lfs merge=lfs -text\nnotes.txt export-ignore\n"
MIDDLE, INNER = "third party/mid", "third party/mid/deep/in"


def fill(top: Path) -> None:
    """Add what no commit holds, and no clone brings along."""
    (top / "src" / "w.bin").write_bytes(CONTENT)
    (top / "src" / "empty dir" / "er").mkdir(parents=True)


def original(template: Path, to: Path) -> Path:
    return copy_of(template, to)


def worktree(template: Path, to: Path) -> Path:
    main = copy_of(template, to.with_name("main"))
    git(main, "worktree", "add", "-q", "--detach", str(to))
    git(to, "submodule", "--quiet", "update", "--init", "--recursive")
    return to


def shallow_clone(template: Path, to: Path) -> Path:
    git(to.parent, "clone", "-q", "--depth", "1", f"file://{template}", str(to))
    git(to, "submodule", "--quiet", "update", "--init", "--recursive", "--depth", "1")
    assert git(to, "rev-parse", "--is-shallow-repository") == "true"
    return to


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with submodules in submodules, files in Git LFS, and some not to be exported."""
    work = tmp_path_factory.mktemp("template")
    inner = make_repository(work / "inner")
    write_tree(inner, {"i.py": File(b"inner")})
    commit_all(inner)
    middle = make_repository(work / "middle")
    write_tree(middle, {"m.py": File(b"middle")})
    git(middle, "submodule", "--quiet", "add", str(inner), "deep/in")
    commit_all(middle)
    top = make_repository(work / "top")
    commit_all(top)  # so that a shallow clone leaves something out
    write_tree(top / "src", odd_tree())
    write_tree(
        top / "src",
        {
            ".gitattributes": File(ATTRIBUTES),
            "w.bin": File(POINTER.encode()),
            "notes.txt": File(b"not for others"),
        },
    )
    git(top, "submodule", "--quiet", "add", str(middle), f"src/{MIDDLE}")
    git(top, "submodule", "--quiet", "update", "--init", "--recursive")
    commit_all(top)
    return top


@pytest.fixture(scope="module", params=[original, worktree, shallow_clone])
def kind(
    request: pytest.FixtureRequest, template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A repository of each kind; not to be changed."""
    make: Callable[[Path, Path], Path] = request.param
    top = make(template, tmp_path_factory.mktemp("kind") / "the repository")
    fill(top)
    return top


@pytest.fixture(params=[pytest.param(case, id=name) for name, case in CASES.items()])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def expected(template: Path, *, from_disk: bool) -> Tree:
    tree = {
        **odd_tree(),
        ".gitattributes": File(ATTRIBUTES),
        "w.bin": File(CONTENT),
        f"{MIDDLE}/m.py": File(b"middle"),
        f"{MIDDLE}/.gitmodules": File((template / "src" / MIDDLE / ".gitmodules").read_bytes()),
        f"{INNER}/i.py": File(b"inner"),
    }
    return {**tree, "notes.txt": File(b"not for others")} if from_disk else tree


def unpacked(packager: run.Packager, tmp_path: Path) -> Path:
    made = packager.package(tmp_path, str(tmp_path / "job"), "job")
    assert made is not None
    extract(Path(made), tmp_path / "code")
    return tmp_path / "code"


def test_everything_arrives_and_nothing_is_said_to_stay(
    case: Case, kind: Path, template: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    code = unpacked(case.make(kind), tmp_path) / case.below
    # What leads a submodule to its repository is a file like any other to a pattern.
    found = {name: file for name, file in read_tree(code).items() if not name.endswith("/.git")}
    assert found == expected(template, from_disk=case.from_disk)
    assert (code / "empty dir" / "er").is_dir() is case.from_disk
    assert caplog.text == ""


def test_nothing_is_written_into_the_repository(case: Case, kind: Path, tmp_path: Path) -> None:
    before = state_of(kind.parent)
    unpacked(case.make(kind), tmp_path)
    assert state_of(kind.parent) == before


def test_an_edit_within_a_submodule_arrives_or_is_named(
    case: Case, template: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    top = copy_of(template, tmp_path / "top")
    (top / "src" / INNER / "i.py").write_text("edited")
    code = unpacked(case.make(top), tmp_path) / case.below
    arrived = (code / INNER / "i.py").read_text() == "edited"
    assert arrived is case.from_disk
    assert arrived or f"'src/{INNER}/i.py'" in caplog.text
