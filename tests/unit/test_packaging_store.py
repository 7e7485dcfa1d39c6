"""Archives are kept once, found by their hash, and removed when nothing names them any more."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.repositories import File, commit_all, make_repository, write_tree

import nemo_run as run
from nemo_run.core.packaging import _store
from nemo_run.core.packaging._sharing import one_look
from nemo_run.core.packaging._staging import StagedCode, stage


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with code, which is the current one."""
    here = tmp_path / "here"
    write_tree(here, {"a.py": File(b"a"), "data": File(bytes(100_000))})
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some time after everything was written."""
    now_ns = time.time_ns() + 10 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)


def staged(job_dir: Path, packager: run.Packager | None = None) -> StagedCode:
    found = stage(packager or run.SnapshotPackager(), str(job_dir), "job")
    assert found is not None
    return found


@dataclass(kw_only=True)
class OldPackager(run.Packager):
    """Written for 0.12: makes its own archive, unless it finds one."""

    def package(self, path: Path, job_dir: str, name: str) -> str:
        archive = Path(job_dir) / f"{name}.tar.gz"
        if not archive.exists():
            with tarfile.open(archive, "w:gz") as tar:
                tar.add(path / "a.py", arcname="a.py")
        return str(archive)


@dataclass(kw_only=True)
class Extended(run.GitArchivePackager):
    """One that does something to what we made."""

    def package(self, path: Path, job_dir: str, name: str) -> str:
        archive = Path(super().package(path, job_dir, name))
        archive.write_bytes(archive.read_bytes() + b"\0" * 512)
        return str(archive)


class TestStaging:
    def test_a_packager_that_takes_nothing_along_stages_nothing(
        self, here: Path, tmp_path: Path, nemorun_home: Path
    ) -> None:
        assert stage(run.Packager(), str(tmp_path / "job"), "job") is None
        assert not nemorun_home.exists()

    def test_the_archive_is_in_the_job_directory_and_found_by_its_hash(
        self, here: Path, tmp_path: Path
    ) -> None:
        code = staged(tmp_path / "job")
        assert code.archive == tmp_path / "job" / "job.tar.gz"
        assert code.sha256 == hashlib.sha256(code.archive.read_bytes()).hexdigest()
        found = _store.find(code.sha256)
        assert found is not None
        assert found.archive.samefile(code.archive)

    def test_nobody_else_can_read_the_store_and_nobody_write_an_archive(
        self, here: Path, tmp_path: Path, nemorun_home: Path
    ) -> None:
        code = staged(tmp_path / "job")
        assert (nemorun_home / "archives").stat().st_mode & 0o777 == 0o700
        assert code.archive.stat().st_mode & 0o777 == 0o400

    def test_packagers_of_others_are_kept_by_hash_too(self, here: Path, tmp_path: Path) -> None:
        (tmp_path / "job").mkdir()
        code = staged(tmp_path / "job", OldPackager())
        assert _store.find(code.sha256) is not None

    def test_packagers_of_others_package_what_is_there_now(
        self, here: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "job").mkdir()
        first = staged(tmp_path / "job", OldPackager())
        (here / "a.py").write_text("edited")
        second = staged(tmp_path / "job", OldPackager())
        assert first.sha256 != second.sha256
        with tarfile.open(second.archive) as tar:
            assert tar.extractfile("a.py").read() == b"edited"  # type: ignore[union-attr]

    def test_subclasses_that_package_in_their_own_way_are_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        top = make_repository(tmp_path / "top")
        write_tree(top, {"a.py": File(b"a")})
        commit_all(top)
        monkeypatch.chdir(top)
        plain = staged(tmp_path / "one", run.GitArchivePackager())
        code = staged(tmp_path / "two", Extended())
        assert code.archive.read_bytes().endswith(b"\0" * 512)
        assert code.sha256 == hashlib.sha256(code.archive.read_bytes()).hexdigest()
        # What it did to its archive it did to no other.
        assert hashlib.sha256(plain.archive.read_bytes()).hexdigest() == plain.sha256
        assert _store.find(plain.sha256) is not None


class TestOneLook:
    def test_jobs_launched_together_get_the_same_code(self, here: Path, tmp_path: Path) -> None:
        with one_look():
            first = staged(tmp_path / "one")
            (here / "a.py").write_text("edited meanwhile")
            second = staged(tmp_path / "two")
        assert second.sha256 == first.sha256
        assert second.archive.samefile(first.archive)
        assert staged(tmp_path / "three").sha256 != first.sha256

    def test_packagers_that_differ_do_not_share(self, here: Path, tmp_path: Path) -> None:
        write_tree(here, {"sub/b.py": File(b"b")})
        with one_look():
            whole = staged(tmp_path / "one")
            packager = run.SnapshotPackager(subpath="sub")
            part = staged(tmp_path / "two", packager)
            packager.subpath = ""
            again = staged(tmp_path / "three", packager)
        assert part.sha256 != whole.sha256
        assert again.sha256 == whole.sha256


class TestStore:
    def test_a_damaged_archive_is_not_found(self, here: Path, tmp_path: Path) -> None:
        code = staged(tmp_path / "job")
        code.archive.chmod(0o600)
        code.archive.write_bytes(b"oops")
        assert _store.find(code.sha256) is None

    def test_an_archive_that_is_gone_is_made_again(
        self, here: Path, tmp_path: Path, later: None
    ) -> None:
        code = staged(tmp_path / "one")
        _store.gc(older_than_s=-1)
        assert staged(tmp_path / "two").sha256 == code.sha256
        assert _store.find(code.sha256) is not None

    def test_on_another_file_system_it_is_copied(
        self, here: Path, tmp_path: Path, elsewhere: Path
    ) -> None:
        code = staged(elsewhere / "job")
        kept = _store.find(code.sha256)
        assert kept is not None
        assert not kept.archive.samefile(code.archive)
        assert code.archive.read_bytes() == kept.archive.read_bytes()

    @pytest.fixture
    def elsewhere(self, tmp_path: Path) -> Iterator[Path]:
        shared_memory = Path("/dev/shm")
        assert shared_memory.stat().st_dev != tmp_path.stat().st_dev
        directory = Path(tempfile.mkdtemp(dir=shared_memory))
        yield directory
        shutil.rmtree(directory)

    def test_a_full_disk_is_named_and_leaves_nothing(
        self, here: Path, tmp_path: Path, nemorun_home: Path
    ) -> None:
        code = """if True:
            import resource
            from nemo_run.core.packaging._staging import stage
            from nemo_run.core.packaging.snapshot import SnapshotPackager
            from nemo_run.exceptions import PackagingError
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            try:
                stage(SnapshotPackager(), "job", "job")
            except PackagingError as err:
                print(err)
        """
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert f"could not be written to '{nemorun_home / 'archives'}'" in done.stdout
        assert list((nemorun_home / "archives").iterdir()) == []
        assert not (here / "job").exists()

    def test_a_packer_that_is_killed_leaves_nothing_that_is_taken_for_an_archive(
        self, here: Path, tmp_path: Path, nemorun_home: Path
    ) -> None:
        code = """if True:
            import os, signal, sys
            import nemo_run as run
            from nemo_run.core.packaging import _store
            from nemo_run.core.packaging._members import Member
            class Deadly:
                def identity(self): return "deadly"
                def settled(self): return True
                def members(self):
                    yield Member("a", content=os.urandom(5_000_000))
                    os.kill(os.getpid(), signal.SIGKILL)
            _store.keep([Deadly()])
        """
        done = subprocess.run([sys.executable, "-c", code], check=False)
        assert done.returncode == -9
        left = list((nemorun_home / "archives").iterdir())
        assert [path.suffix for path in left] == [".tmp"]
        assert _store.gc(older_than_s=-1) == []
        day_ago = time.time() - 25 * 3600
        os.utime(left[0], (day_ago, day_ago))
        assert [item.path for item in _store.gc()] == left


class TestCollecting:
    def stage_two(self, here: Path, tmp_path: Path) -> tuple[StagedCode, StagedCode]:
        one = staged(tmp_path / "one")
        (here / "a.py").write_text("edited")
        return one, staged(tmp_path / "two")

    def kept(self, nemorun_home: Path) -> set[str]:
        return {path.name.partition(".")[0] for path in (nemorun_home / "archives").glob("*.gz")}

    def test_what_is_named_stays(self, here: Path, tmp_path: Path, nemorun_home: Path) -> None:
        one, two = self.stage_two(here, tmp_path)
        gone = _store.gc({one.sha256}, older_than_s=-1)
        assert [item.path.name for item in gone] == [f"{two.sha256}.tar.gz"]
        assert gone[0].size_bytes == two.size_bytes
        assert self.kept(nemorun_home) == {one.sha256}

    def test_what_was_used_lately_stays(
        self, here: Path, tmp_path: Path, nemorun_home: Path
    ) -> None:
        one, two = self.stage_two(here, tmp_path)
        month_ago = time.time() - 40 * 24 * 3600
        for code in (one, two):
            # Long ago it was made; but not long ago it was linked.
            os.utime(code.archive, (month_ago, month_ago))
        assert _store.gc() == []
        assert self.kept(nemorun_home) == {one.sha256, two.sha256}

    def test_a_dry_run_removes_nothing(
        self, here: Path, tmp_path: Path, nemorun_home: Path
    ) -> None:
        one, two = self.stage_two(here, tmp_path)
        assert len(_store.gc(older_than_s=-1, dry_run=True)) == 2
        assert self.kept(nemorun_home) == {one.sha256, two.sha256}

    def test_what_led_to_an_archive_goes_with_it(
        self, here: Path, tmp_path: Path, nemorun_home: Path, later: None
    ) -> None:
        one, _ = self.stage_two(here, tmp_path)
        known = nemorun_home / "archives" / "known"
        assert len(list(known.iterdir())) == 2
        _store.gc({one.sha256}, older_than_s=-1)
        assert len(list(known.iterdir())) == 1

    def test_jobs_keep_their_archives(self, here: Path, tmp_path: Path) -> None:
        code = staged(tmp_path / "job")
        _store.gc(older_than_s=-1)
        assert hashlib.sha256(code.archive.read_bytes()).hexdigest() == code.sha256

    def test_where_nothing_was_kept_there_is_nothing_to_collect(self) -> None:
        assert _store.gc(older_than_s=-1) == []
