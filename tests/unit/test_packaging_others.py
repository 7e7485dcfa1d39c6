"""What the packagers for snapshots, patterns and mixtures take along."""

from __future__ import annotations

import dataclasses
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.contract.repositories import (
    File,
    Tree,
    commit_all,
    git,
    make_repository,
    read_tree,
    write_tree,
)

import nemo_run as run
from nemo_run.core.packaging._staging import extract
from nemo_run.exceptions import ConfigError, PackagingError


def taken(packager: run.Packager, path: Path, tmp_path: Path) -> Tree:
    """Return what is in the archive that a packager makes."""
    made = packager.package(path, str(tmp_path / "job"), "job")
    assert made is not None
    extract(Path(made), tmp_path / "code")
    return read_tree(tmp_path / "code")


BASE = {"debug": False, "symlink_from_remote_dir": None}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (run.Packager, {}),
        (
            run.GitArchivePackager,
            {
                "basepath": "",
                "subpath": "",
                "ref": "HEAD",
                "include_submodules": True,
                "include_pattern": "",
                "include_pattern_relative_path": "",
                "check_uncommitted_changes": False,
                "check_untracked_files": False,
            },
        ),
        (run.PatternPackager, {"include_pattern": "required", "relative_path": "required"}),
        (run.HybridPackager, {"sub_packagers": {}, "extract_at_root": False}),
    ],
)
def test_settings_are_those_of_0_12(kind: type[run.Packager], expected: dict[str, Any]) -> None:
    found = {}
    for item in dataclasses.fields(kind):
        assert item.kw_only
        if item.default_factory is not dataclasses.MISSING:
            found[item.name] = item.default_factory()
        else:
            found[item.name] = "required" if item.default is dataclasses.MISSING else item.default
    assert found == BASE | expected


class TestSnapshot:
    @pytest.fixture
    def top(self, tmp_path: Path) -> Path:
        top = make_repository(tmp_path / "top")
        write_tree(
            top,
            {"a.py": File(b"a"), "gone.py": File(), "lib/b.py": File(), ".gitignore": File(b"*.x")},
        )
        commit_all(top)
        return top

    def test_changed_new_and_deleted_files_are_as_on_disk(self, top: Path, tmp_path: Path) -> None:
        (top / "a.py").write_text("edited")
        (top / "gone.py").unlink()
        write_tree(top, {"new/n.py": File(b"n"), "ignored.x": File(b"x")})
        assert taken(run.SnapshotPackager(), top / "lib", tmp_path) == {
            ".gitignore": File(b"*.x"),
            "a.py": File(b"edited"),
            "lib/b.py": File(),
            "new/n.py": File(b"n"),
        }

    def test_a_subpath_becomes_the_root(self, top: Path, tmp_path: Path) -> None:
        write_tree(top, {"lib2/c.py": File(), "lib/new.py": File()})
        packager = run.SnapshotPackager(subpath="lib")
        assert set(taken(packager, top, tmp_path)) == {"b.py", "new.py"}

    def test_what_is_tracked_is_taken_even_if_ignored(self, top: Path, tmp_path: Path) -> None:
        write_tree(top, {"kept.x": File(b"x")})
        commit_all(top)
        assert taken(run.SnapshotPackager(), top, tmp_path)["kept.x"] == File(b"x")

    def test_a_repository_without_commits_has_files_too(self, tmp_path: Path) -> None:
        top = make_repository(tmp_path / "fresh")
        write_tree(top, {"a.py": File(b"a")})
        assert taken(run.SnapshotPackager(), top, tmp_path) == {"a.py": File(b"a")}

    def test_submodules_and_repositories_within_are_as_on_disk(
        self, top: Path, tmp_path: Path
    ) -> None:
        inner = make_repository(tmp_path / "inner")
        write_tree(inner, {"i.py": File(b"i"), ".gitignore": File(b"out/")})
        commit_all(inner)
        git(top, "submodule", "--quiet", "add", str(inner), "sub")
        commit_all(top)
        write_tree(top / "sub", {"new.py": File(b"n"), "out/big": File(b"x")})
        write_tree(make_repository(top / "own"), {"o.py": File(b"o")})
        found = taken(run.SnapshotPackager(), top, tmp_path)
        assert found["sub/i.py"] == File(b"i")
        assert found["sub/new.py"] == File(b"n")
        assert found["own/o.py"] == File(b"o")
        assert "sub/out/big" not in found

    def test_an_empty_place_for_a_submodule_stays_one(self, top: Path, tmp_path: Path) -> None:
        git(top, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
        (top / "sub").mkdir()
        taken(run.SnapshotPackager(), top, tmp_path)
        assert (tmp_path / "code" / "sub").is_dir()

    def test_empty_directories_are_kept_unless_they_are_ignored(
        self, top: Path, tmp_path: Path
    ) -> None:
        (top / ".gitignore").write_text("*.x\nout/\n")
        for name in ("lib/empty", "new/er/empty", "out", "new/out/empty"):
            (top / name).mkdir(parents=True)
        write_tree(top, {"new/n.py": File(b"n"), "only/ignored.x": File(), "new/out/x": File()})
        write_tree(make_repository(top / "own"), {".gitignore": File(b"out/")})
        (top / "own" / "out").mkdir()
        (top / "own" / "empty").mkdir()
        found = taken(run.SnapshotPackager(), top, tmp_path)
        assert found["new/n.py"] == File(b"n")
        directories = {
            str(Path(parent).relative_to(tmp_path / "code"))
            for parent, below, files in os.walk(tmp_path / "code")
            if not below and not files
        }
        assert directories == {"lib/empty", "new/er/empty", "own/empty"}

    def test_outside_of_git_everything_is_taken(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "plain", {"a.py": File(b"a"), ".env/x": File(), "d/e.py": File()})
        (tmp_path / "plain" / "empty" / "er").mkdir(parents=True)
        found = taken(run.SnapshotPackager(), tmp_path / "plain", tmp_path)
        assert set(found) == {"a.py", ".env/x", "d/e.py"}
        assert (tmp_path / "code" / "empty" / "er").is_dir()

    def test_a_file_in_place_of_a_directory_is_what_arrives(
        self, top: Path, tmp_path: Path
    ) -> None:
        (top / "lib" / "b.py").unlink()
        (top / "lib").rmdir()
        (top / "lib").write_text("a file now")
        assert taken(run.SnapshotPackager(), top, tmp_path)["lib"] == File(b"a file now")

    def test_a_link_in_place_of_a_directory_is_what_arrives(
        self, top: Path, tmp_path: Path
    ) -> None:
        (top / "lib").rename(top / "moved")
        (top / "lib").symlink_to("moved")
        found = taken(run.SnapshotPackager(), top, tmp_path)
        assert found["lib"] == File(link="moved")
        assert "lib/b.py" not in found

    def test_our_own_files_are_not_taken_along(
        self, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NEMORUN_HOME", str(top / "lib" / "runs"))
        before = set(taken(run.SnapshotPackager(), top, tmp_path))
        (top / "new.py").touch()
        after = set(taken(run.SnapshotPackager(), top, tmp_path))
        assert after - before == {"new.py"}
        assert "lib/b.py" in after

    def test_what_is_too_large_is_refused_by_name(self, top: Path, tmp_path: Path) -> None:
        for number in range(8):
            (top / f"weights {number}.bin").write_bytes(bytes(100_000 * (number + 1)))
        with pytest.raises(PackagingError) as caught:
            taken(run.SnapshotPackager(max_size_mb=2), top, tmp_path)
        text = str(caught.value)
        assert "4 MB in 12 files" in text
        assert "'weights 7.bin' (0.8 MB), 'weights 6.bin' (0.7 MB)" in text
        assert "weights 1.bin" not in text
        assert "max_size_mb=2" in text
        assert taken(run.SnapshotPackager(max_size_mb=4), top, tmp_path)

    def test_a_repository_that_git_refuses_is_not_taken_for_a_plain_directory(
        self, top: Path, tmp_path: Path
    ) -> None:
        (top / ".git" / "HEAD").write_text("nonsense")
        with pytest.raises(PackagingError, match="not a git repository"):
            taken(run.SnapshotPackager(), top, tmp_path)

    @pytest.mark.parametrize("subpath", ["nowhere", "a.py"])
    def test_a_subpath_that_is_no_directory_is_named(
        self, top: Path, tmp_path: Path, subpath: str
    ) -> None:
        with pytest.raises(ConfigError, match=f"subpath='{subpath}'"):
            taken(run.SnapshotPackager(subpath=subpath), top, tmp_path)

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "plain", {"a.py": File(b"a")})
        os.mkfifo(tmp_path / "plain" / "pipe")
        found = taken(run.SnapshotPackager(), tmp_path / "plain", tmp_path)
        assert set(found) == {"a.py"}


class TestPatterns:
    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        here = tmp_path / "here"
        write_tree(
            here,
            {
                "a.py": File(b"a"),
                ".hidden": File(b"h"),
                "d/b.py": File(b"b"),
                "d/.hidden": File(b"h"),
                "d/e/c.txt": File(b"c"),
                "odd[1]/x": File(b"x"),
            },
        )
        (here / "d" / "empty").mkdir()
        monkeypatch.chdir(here)
        return here

    @pytest.mark.parametrize(
        ("pattern", "relative_path", "expected"),
        [
            ("*.py", ".", {"a.py"}),
            ("*", "", {"a.py", "d/b.py", "d/.hidden", "d/e/c.txt", "odd[1]/x"}),
            ("d", ".", {"d/b.py", "d/.hidden", "d/e/c.txt"}),
            ("d/*", "d", {"b.py", "e/c.txt"}),
            ("**/*.txt", ".", {"d/e/c.txt"}),
            ("odd[1]", ".", {"odd[1]/x"}),
            ("odd[1]/x", "odd[1]", {"x"}),
            ([".hidden", "d/[a-b].py"], [".", "d"], {".hidden", "b.py"}),
            (["", "a.py"], ["x", "."], {"a.py"}),
        ],
    )
    def test_what_patterns_match(
        self,
        tmp_path: Path,
        pattern: str | list[str],
        relative_path: str | list[str],
        expected: set[str],
    ) -> None:
        packager = run.PatternPackager(include_pattern=pattern, relative_path=relative_path)
        assert set(taken(packager, tmp_path, tmp_path)) == expected

    def test_empty_directories_are_known_and_kept(self, tmp_path: Path) -> None:
        taken(run.PatternPackager(include_pattern="d", relative_path="."), tmp_path, tmp_path)
        assert (tmp_path / "code" / "d" / "empty").is_dir()

    def test_the_home_directory_can_be_written_as_in_a_shell(
        self, tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(here))
        packager = run.PatternPackager(include_pattern="~/*.py", relative_path="~")
        assert set(taken(packager, tmp_path, tmp_path)) == {"a.py"}

    def test_a_relative_path_may_be_written_with_a_link_in_it(
        self, tmp_path: Path, here: Path
    ) -> None:
        (tmp_path / "link").symlink_to(here)
        packager = run.PatternPackager(
            include_pattern=str(here / "d"), relative_path=str(tmp_path / "link")
        )
        assert "d/b.py" in taken(packager, tmp_path, tmp_path)

    @pytest.mark.parametrize(
        ("pattern", "relative_path", "message"),
        [
            ("*.nope", ".", r"'\*\.nope'"),
            ("a.py", "d", "not below"),
            (["a.py"], ["d", "e"], "same length"),
            (["a.py", "b.py"], "d", "of 2 and 1"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(
        self,
        tmp_path: Path,
        pattern: str | list[str],
        relative_path: str | list[str],
        message: str,
    ) -> None:
        packager = run.PatternPackager(include_pattern=pattern, relative_path=relative_path)
        with pytest.raises(ConfigError, match=message):
            taken(packager, tmp_path, tmp_path)


@dataclass(kw_only=True)
class TarPackager(run.Packager):
    """One as somebody else would write it, with owners, hard links and a root entry."""

    source: str

    def package(self, path: Path, job_dir: str, name: str) -> str:
        archive = Path(job_dir) / f"{name}.tar.gz"
        if not archive.exists():
            with tarfile.open(archive, "w:gz") as tar:
                tar.add(self.source, arcname=".")
        return str(archive)


class TestHybrid:
    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        here = tmp_path / "here"
        write_tree(here, {"one/a": File(b"1"), "one/both": File(b"1")})
        write_tree(here, {"two/b": File(b"2"), "two/both": File(b"2")})
        (here / "two" / "hard").hardlink_to(here / "two" / "b")
        monkeypatch.chdir(here)
        return here

    def subs(self) -> dict[str, run.Packager]:
        return {
            "first": run.PatternPackager(include_pattern="one/*", relative_path="one"),
            "none": run.Packager(),
            "second": TarPackager(source="two"),
        }

    def test_each_has_a_directory_of_its_own(self, tmp_path: Path) -> None:
        found = taken(run.HybridPackager(sub_packagers=self.subs()), tmp_path, tmp_path)
        assert found == {
            "first/a": File(b"1"),
            "first/both": File(b"1"),
            "second/b": File(b"2"),
            "second/both": File(b"2"),
            "second/hard": File(b"2"),
        }

    def test_at_the_root_the_later_one_wins(self, tmp_path: Path) -> None:
        packager = run.HybridPackager(sub_packagers=self.subs(), extract_at_root=True)
        found = taken(packager, tmp_path, tmp_path)
        assert found["both"] == File(b"2")
        packager = run.HybridPackager(
            sub_packagers=dict(reversed(self.subs().items())), extract_at_root=True
        )
        assert taken(packager, tmp_path, tmp_path)["both"] == File(b"1")

    def test_a_directory_gives_way_to_a_later_file(self, tmp_path: Path, here: Path) -> None:
        write_tree(here, {"three/a/deep": File(b"3")})
        three = run.PatternPackager(include_pattern="three/a", relative_path="three")
        one = run.PatternPackager(include_pattern="one/*", relative_path="one")
        packager = run.HybridPackager(
            sub_packagers={"three": three, "one": one}, extract_at_root=True
        )
        assert taken(packager, tmp_path, tmp_path)["a"] == File(b"1")
        packager = run.HybridPackager(
            sub_packagers={"one": one, "three": three}, extract_at_root=True
        )
        assert taken(packager, tmp_path, tmp_path)["a/deep"] == File(b"3")

    def test_of_nothing_it_is_empty(self, tmp_path: Path) -> None:
        assert taken(run.HybridPackager(), tmp_path, tmp_path) == {}

    def test_they_can_be_nested(self, tmp_path: Path) -> None:
        inner = run.HybridPackager(sub_packagers=self.subs())
        packager = run.HybridPackager(sub_packagers={"outer": inner})
        assert "outer/second/b" in taken(packager, tmp_path, tmp_path)

    def test_only_the_archive_is_left(self, tmp_path: Path) -> None:
        taken(run.HybridPackager(sub_packagers=self.subs()), tmp_path, tmp_path)
        assert [path.name for path in (tmp_path / "job").iterdir()] == ["job.tar.gz"]

    @pytest.mark.parametrize("key", ["", ".", "..", "a/b", "/a", "a\0b"])
    def test_a_key_that_is_no_name_of_a_directory_is_refused(
        self, tmp_path: Path, key: str
    ) -> None:
        packager = run.HybridPackager(sub_packagers={key: run.Packager()})
        with pytest.raises(ConfigError, match="sub-packager"):
            taken(packager, tmp_path, tmp_path)
