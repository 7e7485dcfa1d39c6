"""Files written whole, directories for their owner."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nemo_run._files import make_private_directory, read_whole, swap_whole, write_whole


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    data = b"\0\xff" * 100_000
    write_whole(tmp_path / "a", data)
    assert read_whole(tmp_path / "a") == data


def test_a_missing_file_reads_as_none(tmp_path: Path) -> None:
    assert read_whole(tmp_path / "a") is None
    assert read_whole(tmp_path / "no" / "a") is None


def test_a_file_is_for_its_owner_unless_told_otherwise(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"")
    write_whole(tmp_path / "b", b"", mode=0o755)
    assert mode(tmp_path / "a") == 0o600
    assert mode(tmp_path / "b") == 0o755


def test_a_write_replaces_what_was_there_and_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o644)
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert mode(path) == 0o600


def test_somebody_reading_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_whole(path, b"old")
    with path.open("rb") as file:
        write_whole(path, b"new")
        assert file.read() == b"old"


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_names_of_the_longest_kind_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 255)
    write_whole(path, b"x")
    assert path.read_bytes() == b"x"


def test_a_swap_is_made_when_the_file_is_as_expected(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert swap_whole(path, None, b"1")
    assert swap_whole(path, b"1", b"2")
    assert path.read_bytes() == b"2"
    assert mode(path) == 0o600


@pytest.mark.parametrize("expected", [None, b"1"])
def test_a_swap_is_not_made_when_the_file_has_changed(
    tmp_path: Path, expected: bytes | None
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"2")
    assert not swap_whole(path, expected, b"3")
    assert path.read_bytes() == b"2"
    assert list(tmp_path.iterdir()) == [path]


def test_a_swap_is_not_made_when_the_file_is_gone(tmp_path: Path) -> None:
    assert not swap_whole(tmp_path / "a", b"1", b"2")
    assert list(tmp_path.iterdir()) == []


def test_every_directory_made_is_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    assert make_private_directory(path) == path
    assert [mode(p) for p in (path, path.parent, path.parent.parent)] == [0o700] * 3


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.mkdir(mode=0o755)
    assert make_private_directory(path) == path
    assert mode(path) == 0o755


def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(OSError, match="a"):
        make_private_directory(tmp_path / "a" / "b")
