"""What every packager promises: the code arrives as it is, and collecting it changes nothing."""

from __future__ import annotations

import copy
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fiddle as fdl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.experiments import experiment, log_of, script
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
from tests.unit.test_code_travels import Elsewhere

import nemo_run as run
from nemo_run.core.frontend.console.api import configure_logging
from nemo_run.core.packaging._staging import extract, stage
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

pytestmark = pytest.mark.slow


def params(cases: Iterable[str]) -> list[Any]:
    """Return the cases for every test; those made of others are left to the slow suites."""
    return [
        pytest.param(CASES[name], id=name, marks=[pytest.mark.slow] if CASES[name].mixed else [])
        for name in cases
    ]


@pytest.fixture(params=params(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = make_repository(tmp_path_factory.mktemp("template") / "top")
    write_tree(top / "src", odd_tree())
    write_tree(top, {"outside.py": File(b"not asked for")})
    commit_all(top)
    return top


@pytest.fixture
def top(template: Path, tmp_path: Path) -> Path:
    """A repository with an odd tree in ``src``, all of it committed."""
    return copy_of(template, tmp_path / "the repository")


def archive_of(packager: run.Packager, directory: Path, name: str = "job") -> Path:
    made = packager.package(directory, str(directory), name)
    assert made is not None
    return Path(made)


def content_of(archive: Path, case: Case, target: Path) -> Tree:
    extract(archive, target)
    return read_tree(target / case.below)


class TestWhatArrives:
    def test_the_archive_is_where_an_executor_looks_for_it(
        self, case: Case, top: Path, tmp_path: Path
    ) -> None:
        made = case.make(top).package(top, str(tmp_path / "job dir"), "a name")
        assert made == str(tmp_path / "job dir" / "a name.tar.gz")
        assert tarfile.is_tarfile(made)

    def test_all_files_arrive_and_no_others(self, case: Case, top: Path, tmp_path: Path) -> None:
        archive = archive_of(case.make(top), tmp_path)
        assert content_of(archive, case, tmp_path / "code") == odd_tree()

    def test_tar_reads_it_too(self, case: Case, top: Path, tmp_path: Path) -> None:
        archive = archive_of(case.make(top), tmp_path)
        target = tmp_path / "code"
        target.mkdir()
        subprocess.run(["tar", "-xzf", str(archive), "-C", str(target)], check=True)
        assert read_tree(target / case.below) == odd_tree()

    def test_owners_times_and_permissions_of_this_machine_do_not(
        self, case: Case, top: Path, tmp_path: Path
    ) -> None:
        with tarfile.open(archive_of(case.make(top), tmp_path)) as tar:
            for info in tar:
                assert (info.uid, info.gid, info.uname, info.gname) == (0, 0, "", "")
                assert info.mode in (0o644, 0o755) or info.issym()
                assert 315532800 < info.mtime < 1 << 30

    def test_every_name_is_there_once(self, case: Case, top: Path, tmp_path: Path) -> None:
        with tarfile.open(archive_of(case.make(top), tmp_path)) as tar:
            names = tar.getnames()
        assert sorted(names) == sorted(set(names))

    def test_links_that_lead_out_are_left_out_and_named(
        self, case: Case, top: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write_tree(top / "src", {"bad": File(link="/etc"), "d/worse": File(link="../../../x")})
        commit_all(top)
        archive = archive_of(case.make(top), tmp_path)
        assert content_of(archive, case, tmp_path / "code") == odd_tree()
        assert "bad" in caplog.text
        assert "d/worse" in caplog.text


class TestSameBytes:
    def test_the_same_tree_makes_the_same_bytes_elsewhere(
        self, case: Case, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = archive_of(case.make(top), tmp_path, "one").read_bytes()
        # Other times, other inodes, another umask, and nothing known of the first.
        other = tmp_path / "other"
        shutil.copytree(top, other, symlinks=True, copy_function=shutil.copy)
        for path in other.rglob("*"):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o700)
        monkeypatch.setenv("NEMORUN_HOME", str(tmp_path / "another home"))
        assert archive_of(case.make(other), tmp_path, "two").read_bytes() == first

    def test_jobs_share_one_file(self, case: Case, top: Path, tmp_path: Path) -> None:
        one = archive_of(case.make(top), tmp_path, "one")
        two = archive_of(case.make(top), tmp_path, "two")
        assert one.samefile(two)

    @pytest.mark.slow
    def test_processes_that_pack_at_once_share_one_file(
        self, top: Path, tmp_path: Path, nemorun_home: Path
    ) -> None:
        code = """if True:
            import sys
            from pathlib import Path
            from tests.contract.packagers import CASES
            top, directory, number = sys.argv[1:]
            for name, case in CASES.items():
                case.make(Path(top)).package(Path(top), directory, name + number)
        """
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(top), str(tmp_path), str(number)],
                cwd=Path(__file__).parents[2],
            )
            for number in range(6)
        ]
        assert [process.wait() for process in processes] == [0] * 6
        for name in CASES:
            files = {(tmp_path / f"{name}{number}.tar.gz").read_bytes() for number in range(6)}
            assert len(files) == 1
        left = [path for path in (nemorun_home / "archives").iterdir() if path.suffix == ".tmp"]
        assert left == []


class TestChanges:
    def test_an_edit_arrives_or_is_named(
        self, case: Case, top: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING)
        archive_of(case.make(top), tmp_path)
        (top / "src" / "plain.py").write_text("edited")
        archive = archive_of(case.make(top), tmp_path)
        arrived = content_of(archive, case, tmp_path / "code")["plain.py"] == File(b"edited")
        assert arrived is case.from_disk
        assert arrived or "src/plain.py" in caplog.text

    def test_an_edit_runs_or_is_named(
        self, case: Case, top: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (top / "src" / "run.sh").write_text("#!/bin/sh\necho edited\n")
        with experiment(executor=Elsewhere(packager=case.make(top))) as exp:
            configure_logging("WARNING")
            program = Path(exp._exp_dir) / "job" / "code" / case.below / "run.sh"
            exp.add(script(f"'{program}'"), name="job")
            exp.run()
        assert log_of(exp, "job") == ("edited\n" if case.from_disk else "hi\n")
        assert case.from_disk or "'src/run.sh'" in capsys.readouterr().err

    def test_a_new_file_arrives_or_is_named(
        self, case: Case, top: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (top / "src" / "brand new.py").write_text("new")
        archive = archive_of(case.make(top), tmp_path)
        arrived = "brand new.py" in content_of(archive, case, tmp_path / "code")
        assert arrived is case.from_disk
        assert arrived or "src/brand new.py (new)" in caplog.text

    def test_a_new_commit_is_packaged_into_the_same_place(
        self, case: Case, top: Path, tmp_path: Path
    ) -> None:
        archive_of(case.make(top), tmp_path)
        (top / "src" / "plain.py").write_text("edited")
        commit_all(top)
        archive = archive_of(case.make(top), tmp_path)
        assert content_of(archive, case, tmp_path / "code")["plain.py"] == File(b"edited")

    @pytest.mark.parametrize("case", params(name for name in CASES if CASES[name].from_disk))
    def test_edits_in_quick_succession_are_all_seen(
        self, case: Case, top: Path, tmp_path: Path
    ) -> None:
        file = top / "src" / "plain.py"
        begin = file.stat()
        for number in range(5):
            # Same size, same inode, and put back to the same time.
            file.write_text(f"rate = {number}")
            os.utime(file, ns=(begin.st_atime_ns, begin.st_mtime_ns))
            archive = archive_of(case.make(top), tmp_path)
            found = content_of(archive, case, tmp_path / "code")["plain.py"]
            assert found == File(f"rate = {number}".encode())

    def test_a_changed_mode_is_seen(self, case: Case, top: Path, tmp_path: Path) -> None:
        archive_of(case.make(top), tmp_path)
        (top / "src" / "plain.py").chmod(0o755)
        commit_all(top)
        archive = archive_of(case.make(top), tmp_path)
        assert content_of(archive, case, tmp_path / "code")["plain.py"].program

    def test_a_deleted_file_is_gone(self, case: Case, top: Path, tmp_path: Path) -> None:
        archive_of(case.make(top), tmp_path)
        (top / "src" / "plain.py").unlink()
        commit_all(top)
        archive = archive_of(case.make(top), tmp_path)
        assert "plain.py" not in content_of(archive, case, tmp_path / "code")


class TestSideEffects:
    def test_nothing_is_written_into_the_repository(
        self, case: Case, top: Path, tmp_path: Path
    ) -> None:
        # Makes git want to refresh its index, and look at everything.
        for path in (top / "src").rglob("*"):
            os.utime(path, follow_symlinks=False)
        (top / "src" / "plain.py").write_text("edited")
        before = state_of(top)
        archive_of(case.make(top), tmp_path)
        assert state_of(top) == before

    def test_the_packager_is_not_changed(self, case: Case, top: Path, tmp_path: Path) -> None:
        packager = case.make(top)
        before, config = copy.deepcopy(packager), packager.to_config()
        archive_of(packager, tmp_path)
        assert packager == before
        assert packager.to_config() == config

    def test_it_can_be_stored(self, case: Case, top: Path) -> None:
        packager = case.make(top)
        text = ZlibJSONSerializer().serialize(packager.to_config())
        assert fdl.build(ZlibJSONSerializer().deserialize(text)) == packager

    def test_nothing_is_left_in_temporary_places(
        self, case: Case, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(scratch))
        job_dir = tmp_path / "job"
        archive = archive_of(case.make(top), job_dir)
        assert list(scratch.iterdir()) == []
        assert list(job_dir.iterdir()) == [archive]

    def test_what_is_staged_says_its_hash(
        self, case: Case, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(top)
        staged = stage(case.make(top), str(tmp_path), "job")
        assert staged is not None
        said = subprocess.run(
            ["sha256sum", str(staged.archive)], capture_output=True, text=True, check=True
        )
        assert said.stdout.split()[0] == staged.sha256
        assert staged.size_bytes == staged.archive.stat().st_size


class TestKnownTrees:
    def test_a_tree_that_did_not_change_is_not_read_again(
        self, case: Case, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A file that was written in this very moment could be written once more.
        later_ns = time.time_ns() + 10 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: later_ns)
        begin = bytes_read()
        first = archive_of(case.make(top), tmp_path, "one")
        between = bytes_read()
        second = archive_of(case.make(top), tmp_path, "two")
        end = bytes_read()
        assert first.samefile(second)
        size_bytes = (top / "src" / "binary").stat().st_size
        assert end - between < size_bytes < between - begin

    def test_an_archive_that_was_damaged_is_made_again(
        self, case: Case, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        later_ns = time.time_ns() + 10 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: later_ns)
        archive = archive_of(case.make(top), tmp_path, "one")
        good = archive.read_bytes()
        archive.chmod(0o600)
        archive.write_bytes(b"oops")
        assert archive_of(case.make(top), tmp_path, "two").read_bytes() == good


def bytes_read() -> int:
    """Return how much this process has read, from files and pipes."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def names() -> st.SearchStrategy[str]:
    byte = st.integers(1, 255).filter(lambda code: code != ord("/"))
    component = st.lists(byte, min_size=1, max_size=12).map(bytes)
    # git keeps these for itself, whatever their case.
    allowed = component.filter(
        lambda name: name not in (b".", b"..") and b"git" not in name.lower()
    )
    return st.lists(allowed.map(os.fsdecode), min_size=1, max_size=4).map("/".join)


def trees() -> st.SearchStrategy[Tree]:
    """Return files and links; these stay inside, and may lead to anything or nothing there."""
    file = st.builds(File, st.binary(max_size=3000), st.booleans())
    link = st.builds(lambda name: File(link=name), names())
    return st.dictionaries(names(), file | link, max_size=8).map(_without_conflicts)


def _without_conflicts(tree: Tree) -> Tree:
    return {
        name: file
        for name, file in tree.items()
        if not any(other.startswith(f"{name}/") for other in tree)
    }


def make_directories(top: Path, directories: Iterable[str], tree: Tree) -> set[str]:
    """Make directories where they do not get in the way of the tree; return the empty ones."""
    for name in directories:
        if not any(f"{name}/".startswith(f"{other}/") for other in tree):
            (top / name).mkdir(parents=True, exist_ok=True)
    return empty_directories(top)


def empty_directories(top: Path) -> set[str]:
    return {
        str(Path(parent).relative_to(top))
        for parent, directories, files in os.walk(top)
        if not directories and not files
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=trees(), directories=st.lists(names(), max_size=3))
def test_any_tree_arrives_as_it_is(
    case: Case, tmp_path: Path, tree: Tree, directories: list[str]
) -> None:
    work = tmp_path / os.urandom(8).hex()
    top = make_repository(work / "top")
    tree = {"always.py": File(b"there"), **tree}
    write_tree(top / "src", tree)
    empty = make_directories(top / "src", directories, tree)
    commit_all(top)
    assert git(top, "status", "--porcelain") == ""
    archive = archive_of(case.make(top), work)
    assert content_of(archive, case, work / "code") == tree
    # git itself knows of none.
    assert empty_directories(work / "code" / case.below) == (empty if case.from_disk else set())
    shutil.rmtree(work)
