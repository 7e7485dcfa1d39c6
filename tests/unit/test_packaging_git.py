"""What the git packager takes along, and what it says of the rest."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.contract.repositories import (
    File,
    Tree,
    commit_all,
    copy_of,
    git,
    make_repository,
    read_tree,
    state_of,
    write_tree,
)

import nemo_run as run
from nemo_run.core.packaging._staging import extract
from nemo_run.exceptions import ConfigError, PackagingError, UncommittedChangesError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = make_repository(tmp_path_factory.mktemp("template") / "top")
    write_tree(top, {"a.py": File(b"a"), "lib/b.py": File(b"b")})
    commit_all(top)
    return top


@pytest.fixture
def top(template: Path, tmp_path: Path) -> Path:
    return copy_of(template, tmp_path / "top")


@pytest.fixture(autouse=True)
def only_the_settings_of_the_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[protocol.file]\nallow = always\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


def taken(packager: run.Packager, path: Path, tmp_path: Path) -> Tree:
    """Return what is in the archive that a packager makes."""
    made = packager.package(path, str(tmp_path / "job"), "job")
    assert made is not None
    extract(Path(made), tmp_path / "code")
    return read_tree(tmp_path / "code")


def with_submodule(top: Path, inner: Path, path: str) -> None:
    git(top, "submodule", "--quiet", "add", str(inner), path)
    git(top, "submodule", "--quiet", "update", "--init", "--recursive")


class TestSettings:
    def test_the_top_of_the_repository_is_found_from_within(
        self, top: Path, tmp_path: Path
    ) -> None:
        found = taken(run.GitArchivePackager(), top / "lib", tmp_path)
        assert found == {"a.py": File(b"a"), "lib/b.py": File(b"b")}

    def test_a_subpath_becomes_the_root(self, top: Path, tmp_path: Path) -> None:
        packager = run.GitArchivePackager(subpath="./lib/")
        assert taken(packager, top, tmp_path) == {"b.py": File(b"b")}

    @pytest.mark.parametrize("name", ["a*", ":(top)", "-x", "l[i]b", "sp ace", "new\nline", "ü"])
    def test_a_subpath_is_a_name_and_no_pattern(self, top: Path, tmp_path: Path, name: str) -> None:
        write_tree(top, {f"{name}/c.py": File(b"c"), "ab/d.py": File(), "lib/e.py": File()})
        commit_all(top)
        for packager in (
            run.GitArchivePackager(subpath=name),
            run.SnapshotPackager(subpath=name),
        ):
            assert taken(packager, top, tmp_path) == {"c.py": File(b"c")}

    def test_a_basepath_replaces_the_directory(self, top: Path, tmp_path: Path) -> None:
        packager = run.GitArchivePackager(basepath=str(top / "lib"))
        assert set(taken(packager, tmp_path, tmp_path)) == {"a.py", "lib/b.py"}

    def test_another_commit_can_be_chosen(self, top: Path, tmp_path: Path) -> None:
        git(top, "tag", "old")
        (top / "a.py").write_text("new")
        commit_all(top)
        packager = run.GitArchivePackager(ref="old")
        assert taken(packager, top, tmp_path)["a.py"] == File(b"a")

    @pytest.mark.parametrize("subpath", ["..", "/etc", "lib/../.."])
    def test_a_subpath_outside_is_refused(self, top: Path, tmp_path: Path, subpath: str) -> None:
        with pytest.raises(ConfigError, match="subpath"):
            taken(run.GitArchivePackager(subpath=subpath), top, tmp_path)

    @pytest.mark.parametrize("subpath", ["nowhere", "a.py"])
    def test_a_subpath_that_is_no_directory_of_the_commit_is_named(
        self, top: Path, tmp_path: Path, subpath: str
    ) -> None:
        with pytest.raises(PackagingError, match=f"subpath='{subpath}' is not a directory"):
            taken(run.GitArchivePackager(subpath=subpath), top, tmp_path)

    @pytest.mark.parametrize("ref", ["nowhere", "--output=/tmp/x", "-h", ""])
    def test_a_ref_that_names_no_commit_is_named(self, top: Path, tmp_path: Path, ref: str) -> None:
        with pytest.raises(PackagingError, match=f"There is no commit '{ref}'"):
            taken(run.GitArchivePackager(ref=ref), top, tmp_path)

    def test_outside_of_a_repository_it_says_what_else_to_use(self, tmp_path: Path) -> None:
        plain = tmp_path / "plain"
        plain.mkdir()
        with pytest.raises(PackagingError, match="SnapshotPackager") as caught:
            taken(run.GitArchivePackager(), plain, tmp_path)
        assert isinstance(caught.value, subprocess.CalledProcessError)
        assert "not a git repository" in str(caught.value)

    def test_a_repository_without_commits_is_said_to_be_one(self, tmp_path: Path) -> None:
        empty = make_repository(tmp_path / "empty")
        with pytest.raises(PackagingError, match="Commit something first"):
            taken(run.GitArchivePackager(), empty, tmp_path)

    def test_without_git_that_is_said(
        self, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(PackagingError, match="not installed"):
            taken(run.GitArchivePackager(), top, tmp_path)


class TestPatterns:
    def test_files_on_disk_are_added_relative_to_the_top(self, top: Path, tmp_path: Path) -> None:
        write_tree(top, {"data/x 1.txt": File(b"1"), "data/sub/y": File(b"2"), "data/z": File()})
        packager = run.GitArchivePackager(include_pattern="data/[xs]*")
        found = taken(packager, top, tmp_path)
        assert set(found) == {"a.py", "lib/b.py", "data/x 1.txt", "data/sub/y"}

    def test_each_has_its_own_root(self, top: Path, tmp_path: Path) -> None:
        write_tree(top, {"one/x": File(b"1"), "two/y": File(b"2")})
        packager = run.GitArchivePackager(
            subpath="lib",
            include_pattern=["one", str(top / "two" / "*"), ""],
            include_pattern_relative_path=["", str(top / "two"), ""],
        )
        found = taken(packager, top, tmp_path)
        assert found == {"b.py": File(b"b"), "one/x": File(b"1"), "y": File(b"2")}

    def test_they_win_over_what_is_committed(self, top: Path, tmp_path: Path) -> None:
        (top / "a.py").write_text("edited")
        packager = run.GitArchivePackager(include_pattern="*.py")
        assert taken(packager, top, tmp_path)["a.py"] == File(b"edited")

    def test_what_they_take_along_is_not_said_to_stay(
        self, top: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (top / "a.py").write_text("edited")
        (top / "lib" / "b.py").write_text("edited")
        taken(run.GitArchivePackager(include_pattern="*.py"), top, tmp_path)
        assert "'lib/b.py'" in caplog.text
        assert "'a.py'" not in caplog.text

    def test_lists_of_different_lengths_are_refused(self, top: Path, tmp_path: Path) -> None:
        packager = run.GitArchivePackager(
            include_pattern=["a", "b"], include_pattern_relative_path=["a"]
        )
        with pytest.raises(ValueError, match="same length"):
            taken(packager, top, tmp_path)

    def test_a_pattern_that_matches_nothing_is_named(self, top: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"\*\.nope"):
            taken(run.GitArchivePackager(include_pattern="*.nope"), top, tmp_path)

    def test_files_that_are_not_below_the_relative_path_are_refused(
        self, top: Path, tmp_path: Path
    ) -> None:
        packager = run.GitArchivePackager(
            include_pattern="*.py", include_pattern_relative_path="lib"
        )
        with pytest.raises(ConfigError, match="not below"):
            taken(packager, top, tmp_path)


class TestChecks:
    def test_uncommitted_changes_can_be_refused(self, top: Path, tmp_path: Path) -> None:
        packager = run.GitArchivePackager(check_uncommitted_changes=True)
        write_tree(top, {"new.py": File(b"new")})
        taken(packager, top, tmp_path)
        (top / "a.py").write_text("edited")
        with pytest.raises(UncommittedChangesError, match=r"'a\.py'") as caught:
            taken(packager, top, tmp_path)
        assert isinstance(caught.value, RuntimeError)

    def test_staged_changes_are_uncommitted_too(self, top: Path, tmp_path: Path) -> None:
        git(top, "mv", "a.py", "moved.py")
        with pytest.raises(RuntimeError, match=r"moved\.py"):
            taken(run.GitArchivePackager(check_uncommitted_changes=True), top, tmp_path)

    def test_untracked_files_can_be_refused(self, top: Path, tmp_path: Path) -> None:
        packager = run.GitArchivePackager(check_untracked_files=True)
        write_tree(top, {".gitignore": File(b"*.log\n")})
        commit_all(top)
        write_tree(top, {"a.log": File()})
        (top / "a.py").write_text("edited")
        taken(packager, top, tmp_path)
        write_tree(top, {"new/file.py": File()})
        with pytest.raises(AssertionError, match=r"new/file\.py"):
            taken(packager, top, tmp_path)

    def test_what_stays_behind_is_said_once(
        self, top: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (top / "a.py").write_text("edited")
        for number in range(30):
            (top / f"new {number}").touch()
        for _ in range(3):
            taken(run.GitArchivePackager(), top, tmp_path)
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 1
        text = warnings[0].getMessage()
        assert "'a.py'" in text
        assert "31 in all" in text
        assert "SnapshotPackager" in text

    def test_only_what_would_have_been_taken_is_said_to_stay(
        self, top: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (top / "a.py").write_text("edited")
        taken(run.GitArchivePackager(subpath="lib"), top, tmp_path)
        assert caplog.text == ""


class TestAttributes:
    def test_they_are_those_of_the_commit(self, top: Path, tmp_path: Path) -> None:
        attributes = b"*.secret export-ignore\nversion.txt export-subst\n*.bat text eol=crlf\n"
        write_tree(
            top,
            {
                ".gitattributes": File(attributes),
                "lib/k.secret": File(b"secret"),
                "lib/version.txt": File(b"$Format:%H$"),
                "lib/run.bat": File(b"echo\necho\n"),
            },
        )
        (top / "lib" / ".gitattributes").write_text("version.txt export-subst\n")
        commit = commit_all(top)
        # Only what is committed counts.
        (top / ".gitattributes").write_text("")
        found = taken(run.GitArchivePackager(subpath="lib"), top, tmp_path)
        assert found["version.txt"] == File(commit.encode())
        assert found["run.bat"] == File(b"echo\r\necho\r\n")
        assert "k.secret" not in found

    def test_a_new_tag_is_seen_where_one_is_substituted(self, top: Path, tmp_path: Path) -> None:
        write_tree(
            top,
            {".gitattributes": File(b"v export-subst\n"), "v": File(b"$Format:%D$")},
        )
        commit_all(top)
        assert b"v1" not in taken(run.GitArchivePackager(), top, tmp_path)["v"].content
        git(top, "tag", "v1")
        assert b"v1" in taken(run.GitArchivePackager(), top, tmp_path)["v"].content

    def test_attributes_of_the_user_are_seen_when_they_change(
        self, top: Path, tmp_path: Path
    ) -> None:
        assert "a.py" in taken(run.GitArchivePackager(), top, tmp_path)
        (top / ".git" / "info").mkdir(exist_ok=True)
        (top / ".git" / "info" / "attributes").write_text("a.py export-ignore\n")
        assert "a.py" not in taken(run.GitArchivePackager(), top, tmp_path)

    def test_settings_of_the_user_are_seen_when_they_change(
        self, top: Path, tmp_path: Path
    ) -> None:
        write_tree(top, {".gitattributes": File(b"a.py text\n"), "a.py": File(b"1\n2\n")})
        commit_all(top)
        assert taken(run.GitArchivePackager(), top, tmp_path)["a.py"] == File(b"1\n2\n")
        git(top, "config", "core.autocrlf", "true")
        assert taken(run.GitArchivePackager(), top, tmp_path)["a.py"] == File(b"1\r\n2\r\n")

    def test_a_filter_is_asked_every_time(self, top: Path, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        git(top, "config", "filter.fill.smudge", f"cat; cat '{secret}'")
        write_tree(top, {".gitattributes": File(b"a.py filter=fill\n")})
        commit_all(top)
        for word in ("one", "two"):
            secret.write_text(word)
            found = taken(run.GitArchivePackager(), top, tmp_path)
            assert found["a.py"] == File(f"a{word}".encode())


class TestLargeFileStorage:
    CONTENT = b"weights" * 1000

    @pytest.fixture
    def stored(self, top: Path, tmp_path: Path) -> Path:
        """A repository with a pointer committed, and filters that would leave a trace."""
        import hashlib

        pointer = (
            "version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{hashlib.sha256(self.CONTENT).hexdigest()}\nsize {len(self.CONTENT)}\n"
        )
        write_tree(
            top,
            {
                ".gitattributes": File(b"*.bin filter=lfs diff=lfs merge=lfs -text\n"),
                "w.bin": File(pointer.encode()),
            },
        )
        commit_all(top)
        trace = f"touch '{tmp_path / 'ran'}'; cat"
        for name in ("smudge", "clean"):
            git(top, "config", f"filter.lfs.{name}", trace)
        git(top, "config", "filter.lfs.required", "true")
        return top

    def test_the_file_is_taken_from_the_work_tree(self, stored: Path, tmp_path: Path) -> None:
        (stored / "w.bin").write_bytes(self.CONTENT)
        assert taken(run.GitArchivePackager(), stored, tmp_path)["w.bin"] == File(self.CONTENT)
        assert not (tmp_path / "ran").exists()

    def test_a_file_that_is_the_committed_one_is_not_said_to_be_changed(
        self, stored: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (stored / "w.bin").write_bytes(self.CONTENT)
        taken(run.GitArchivePackager(check_uncommitted_changes=True), stored, tmp_path)
        assert caplog.text == ""

    def test_a_file_that_is_not_there_is_named_until_it_is(
        self, stored: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        found = taken(run.GitArchivePackager(), stored, tmp_path)
        assert found["w.bin"].content.startswith(b"version https://git-lfs")
        assert "'w.bin'" in caplog.text
        assert "git lfs pull" in caplog.text
        (stored / "w.bin").write_bytes(self.CONTENT)
        assert taken(run.GitArchivePackager(), stored, tmp_path)["w.bin"] == File(self.CONTENT)

    def test_a_file_that_was_changed_is_not_taken_for_the_committed_one(
        self, stored: Path, tmp_path: Path
    ) -> None:
        (stored / "w.bin").write_bytes(self.CONTENT.swapcase())
        found = taken(run.GitArchivePackager(), stored, tmp_path)
        assert found["w.bin"].content.startswith(b"version https://git-lfs")
        with pytest.raises(UncommittedChangesError, match=r"w\.bin"):
            taken(run.GitArchivePackager(check_uncommitted_changes=True), stored, tmp_path)


@pytest.fixture(scope="module")
def nested_template(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("submodules")
    inner = make_repository(work / "inner")
    write_tree(inner, {"i.py": File(b"inner")})
    commit_all(inner)
    middle = make_repository(work / "middle")
    write_tree(middle, {"m.py": File(b"middle")})
    with_submodule(middle, inner, "deep/in")
    commit_all(middle)
    top = copy_of(template, work / "top")
    with_submodule(top, middle, "third party/mid")
    commit_all(top)
    return top


class TestSubmodules:
    @pytest.fixture
    def nested(self, nested_template: Path, tmp_path: Path) -> Path:
        """``top`` with a submodule at ``third party/mid`` that has another at ``deep/in``."""
        return copy_of(nested_template, tmp_path / "nested")

    def test_nested_ones_arrive_at_their_full_paths(self, nested: Path, tmp_path: Path) -> None:
        found = taken(run.GitArchivePackager(), nested, tmp_path)
        assert found["third party/mid/m.py"] == File(b"middle")
        assert found["third party/mid/deep/in/i.py"] == File(b"inner")

    def test_they_can_be_left_out(self, nested: Path, tmp_path: Path) -> None:
        found = taken(run.GitArchivePackager(include_submodules=False), nested, tmp_path)
        assert not [name for name in found if name.startswith("third party")]

    def test_those_outside_of_the_subpath_stay(self, nested: Path, tmp_path: Path) -> None:
        assert taken(run.GitArchivePackager(subpath="lib"), nested, tmp_path) == {
            "b.py": File(b"b")
        }

    def test_those_inside_of_the_subpath_are_relative_to_it(
        self, nested: Path, tmp_path: Path
    ) -> None:
        found = taken(run.GitArchivePackager(subpath="third party"), nested, tmp_path)
        assert set(found) == {"mid/.gitmodules", "mid/m.py", "mid/deep/in/i.py"}

    def test_the_commit_is_the_one_that_is_recorded(
        self, nested: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        module = nested / "third party" / "mid"
        git(nested, "tag", "before")
        (module / "m.py").write_text("newer")
        commit_all(module)
        found = taken(run.GitArchivePackager(), nested, tmp_path)
        assert found["third party/mid/m.py"] == File(b"middle")
        assert "'third party/mid'" in caplog.text
        commit_all(nested)
        found = taken(run.GitArchivePackager(), nested, tmp_path)
        assert found["third party/mid/m.py"] == File(b"newer")
        found = taken(run.GitArchivePackager(ref="before"), nested, tmp_path)
        assert found["third party/mid/m.py"] == File(b"middle")

    def test_what_is_changed_within_them_is_named_file_by_file(
        self, nested: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        module = nested / "third party" / "mid"
        (module / "deep" / "in" / "i.py").write_text("edited")
        (module / "new.py").touch()
        taken(run.GitArchivePackager(), nested, tmp_path)
        assert "'third party/mid/deep/in/i.py', 'third party/mid/new.py (new)'" in caplog.text
        assert "'third party/mid'" not in caplog.text

    def test_what_is_changed_within_them_stays_with_them(
        self, nested: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (nested / "third party" / "mid" / "m.py").write_text("edited")
        taken(run.GitArchivePackager(include_submodules=False), nested, tmp_path)
        assert caplog.text == ""

    def test_one_that_is_not_checked_out_is_named(
        self, nested: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        clone = tmp_path / "clone"
        git(tmp_path, "clone", "-q", str(nested), str(clone))
        found = taken(run.GitArchivePackager(), clone, tmp_path)
        assert found["a.py"] == File(b"a")
        assert "'third party/mid'" in caplog.text
        assert "submodule update" in caplog.text

    def test_one_that_lacks_the_commit_is_an_error(self, nested: Path, tmp_path: Path) -> None:
        absent = "1" * 40
        git(nested, "update-index", "--cacheinfo", f"160000,{absent},third party/mid")
        git(nested, "commit", "-q", "-m", "points nowhere")
        with pytest.raises(PackagingError, match=f"'third party/mid'.*{absent}"):
            taken(run.GitArchivePackager(), nested, tmp_path)

    def test_nothing_is_written_into_them(self, nested: Path, tmp_path: Path) -> None:
        before = state_of(nested)
        taken(run.GitArchivePackager(), nested, tmp_path)
        assert state_of(nested) == before


class TestKindsOfRepositories:
    def test_a_worktree(self, top: Path, tmp_path: Path) -> None:
        git(top, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "side")
        (tmp_path / "tree" / "a.py").write_text("side")
        commit_all(tmp_path / "tree")
        found = taken(run.GitArchivePackager(), tmp_path / "tree", tmp_path)
        assert found["a.py"] == File(b"side")
        assert taken(run.GitArchivePackager(), top, tmp_path)["a.py"] == File(b"a")

    def test_a_shallow_clone(self, top: Path, tmp_path: Path) -> None:
        commit_all(top)
        clone = tmp_path / "shallow"
        git(tmp_path, "clone", "-q", "--depth", "1", f"file://{top}", str(clone))
        assert set(taken(run.GitArchivePackager(), clone, tmp_path)) == {"a.py", "lib/b.py"}

    def test_a_detached_head_in_a_directory_with_a_newline(self, top: Path, tmp_path: Path) -> None:
        odd = tmp_path / "new\nline\n"
        shutil.move(top, odd)
        git(odd, "checkout", "-q", "--detach")
        assert set(taken(run.GitArchivePackager(), odd, tmp_path)) == {"a.py", "lib/b.py"}

    def test_an_empty_commit(self, tmp_path: Path) -> None:
        empty = make_repository(tmp_path / "empty")
        git(empty, "commit", "-q", "--allow-empty", "-m", "nothing")
        assert taken(run.GitArchivePackager(), empty, tmp_path) == {}

    def test_one_whose_hook_launches_us(
        self, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = make_repository(tmp_path / "other")
        monkeypatch.setenv("GIT_DIR", str(other / ".git"))
        monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere"))
        assert set(taken(run.GitArchivePackager(), top, tmp_path)) == {"a.py", "lib/b.py"}

    def test_no_program_that_it_names_is_run(self, top: Path, tmp_path: Path) -> None:
        trace = tmp_path / "ran"
        hook = top / ".git" / "hooks" / "trace"
        hook.write_text(f"#!/bin/sh\ntouch '{trace}'\n")
        hook.chmod(0o755)
        for setting in ("core.fsmonitor", "diff.external", "core.pager"):
            git(top, "config", setting, str(hook))
        (top / "a.py").write_text("edited")
        trace.unlink(missing_ok=True)
        taken(run.GitArchivePackager(), top, tmp_path)
        assert not trace.exists()

    def test_one_that_is_broken_fails_with_what_git_said(self, top: Path, tmp_path: Path) -> None:
        blob = git(top, "rev-parse", "HEAD:a.py")
        (top / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
        with pytest.raises(PackagingError, match=blob):
            taken(run.GitArchivePackager(), top, tmp_path)
        assert not (tmp_path / "job").exists()


class TestConcatenating:
    """A method that subclasses written for 0.12 call."""

    def fragment(self, path: Path, **files: str) -> str:
        source = path.with_suffix(".d")
        write_tree(source, {name: File(text.encode()) for name, text in files.items()})
        subprocess.run(["tar", "-cf", str(path), "-C", str(source), "."], check=True)
        return str(path)

    def test_later_files_win_and_inputs_are_deleted(self, tmp_path: Path) -> None:
        one = self.fragment(tmp_path / "one.tar", a="1", b="1")
        two = self.fragment(tmp_path / "two.tar", b="2", c="2")
        output = str(tmp_path / "out.tar")
        run.GitArchivePackager()._concatenate_tar_files(None, output, [one, two])
        with tarfile.open(output, "r:") as tar:
            assert sorted(name for name in tar.getnames()) == ["./a", "./b", "./c"]
        extract(Path(output), tmp_path / "code")
        found = {name: file.content for name, file in read_tree(tmp_path / "code").items()}
        assert found == {"a": b"1", "b": b"2", "c": b"2"}
        assert not Path(one).exists()
        assert not Path(two).exists()

    def test_no_files_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no files"):
            run.GitArchivePackager()._concatenate_tar_files(None, str(tmp_path / "out"), [])
