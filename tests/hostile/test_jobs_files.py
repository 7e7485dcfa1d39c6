"""Files that a job may have replaced by anything are read, written and removed where they are."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from nemo_run._backends.docker.files import JobFiles
from nemo_run._backends.runai.volume import MountedVolume
from nemo_run._jobs import foreign


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "job"
    (root / "state").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("not the job's")
    return root


def untouched(root: Path) -> bool:
    outside = root.parent / "outside"
    return [path.read_text() for path in outside.iterdir()] == ["not the job's"]


def test_a_regular_file_is_what_it_is(root: Path) -> None:
    path = root / "state" / "file"
    foreign.write_file(path, root, b"one")
    foreign.write_file(path, root, b"two")
    assert foreign.read_file(path, root) == b"two"
    assert foreign.file_size(path, root) == 3
    os.utime(path, (1e11, 1e11))
    assert (foreign.written_at(path, root) or 0) <= time.time()
    foreign.remove_file(path, root)
    assert foreign.read_file(path, root) is None
    assert list((root / "state").iterdir()) == []


def test_a_link_in_the_place_of_a_file_leads_nowhere(root: Path) -> None:
    path = root / "state" / "file"
    path.symlink_to(root.parent / "outside" / "file")
    assert foreign.read_file(path, root) is None
    foreign.write_file(path, root, b"ours")
    assert foreign.read_file(path, root) == b"ours"
    assert untouched(root)


def test_a_link_in_the_place_of_a_directory_leads_nowhere(root: Path) -> None:
    (root / "state").rmdir()
    (root / "state").symlink_to(root.parent / "outside")
    path = root / "state" / "file"
    assert foreign.read_file(path, root) is None
    foreign.remove_file(path, root)
    with pytest.raises(OSError, match="directory"):
        foreign.write_file(path, root, b"ours")
    with pytest.raises(OSError, match="out of its root"), foreign.directory(root, root / ".."):
        pass
    assert untouched(root)


def test_no_more_is_read_than_was_wanted(root: Path) -> None:
    path = root / "state" / "file"
    path.touch()
    os.truncate(path, 1 << 40)
    assert foreign.read_file(path, root, limit=5) == b"\0" * 5


def test_a_fifo_is_not_waited_for(root: Path) -> None:
    path = root / "state" / "file"
    os.mkfifo(path)
    assert foreign.read_file(path, root) is None
    assert foreign.read_file(path) is None


class TestOldDockerJobs:
    """Earlier releases kept all files where containers write."""

    @pytest.fixture
    def files(self, root: Path) -> JobFiles:
        files = JobFiles.of(str(root), "job-1")
        files.directory.mkdir(parents=True)
        where = {"state_dir": str(files.directory), "containers": "{}"}
        (files.directory / "where.json").write_text(json.dumps(where))
        (files.directory / "outcome.json").write_text('{"state": "FAILED", "removed": true}')
        (files.directory / "cancelled").touch()
        return files

    def test_they_are_read(self, files: JobFiles) -> None:
        assert (files.read_where() or {})["state_dir"] == str(files.directory)
        assert files.read_outcome() is None, "the engine is asked first"
        assert (files.read_old_outcome() or {})["state"] == "FAILED"
        assert files.was_cancelled_at is not None

    def test_their_end_stays_known_when_they_are_submitted_again(self, files: JobFiles) -> None:
        files.write_where(files.read_where() or {})
        assert (files.read_outcome() or {})["state"] == "FAILED"

    def test_a_new_job_has_no_such_files(self, files: JobFiles) -> None:
        files.write_where({"state_dir": "", "containers": ""})
        (files.kept / "outcome.json").unlink()
        assert (files.read_old_outcome(), files.was_cancelled_at) == (None, None)


def test_logs_on_a_mounted_volume_are_files_and_no_links(root: Path) -> None:
    (root / "log_a.out").symlink_to(root.parent / "outside" / "file")
    os.mkfifo(root / "log_b.out")
    (root / "log_c.out").symlink_to("nowhere")
    (root / "log_d.out").write_text("said\n")
    assert b"".join(MountedVolume().read(str(root), "log_*.out")) == b"said\n"
