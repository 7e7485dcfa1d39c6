"""Archives that are made to be unpacked somewhere else than where they are told to."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.hostile.examples import count
from tests.hostile.tars import attacks, entry, header, packed

import nemo_run as run
from nemo_run.core.packaging import _store, _unpack
from nemo_run.core.packaging._disk import DiskFiles
from nemo_run.core.packaging._unpack import unpack
from nemo_run.exceptions import BackendError, PackagingError

ATTACKS = sorted(attacks("/x/y"))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere" / "victim"
    path.parent.mkdir()
    path.write_text("mine")
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.mkdir()
    return path


def untouched(victim: Path) -> bool:
    same = victim.read_text() == "mine" and victim.stat().st_nlink == 1
    return same and list(victim.parent.iterdir()) == [victim]


def written(target: Path, data: bytes) -> None:
    try:
        unpack(io.BytesIO(data), target)
    except PackagingError:
        return


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_outside_is_written(name: str, victim: Path, target: Path) -> None:
    written(target, attacks(str(victim))[name])
    assert untouched(victim)
    for path in target.rglob("*"):
        assert str(path.resolve()).startswith(f"{target.resolve()}/")


@dataclass
class _Answer:
    stdout: str
    stderr: str = ""
    exited: int = 0
    command: str = ""


class _Session:
    """A program's own connection to a server that sends ``data`` for every directory."""

    is_connected = True

    def __init__(self, data: bytes) -> None:
        self.data = data

    def run(self, command: str, **options: Any) -> _Answer:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        return _Answer(done.stdout, done.stderr, done.returncode, command)

    def get(self, remote: str, local: str) -> None:
        Path(local).write_bytes(self.data)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_session_of_the_user_brings_nothing_out_of_place(
    name: str, victim: Path, target: Path, tmp_path: Path
) -> None:
    class Own(run.SSHTunnel):
        def connect(self) -> None:
            self.session = _Session(attacks(str(victim))[name])

    (tmp_path / "there").mkdir()
    with contextlib.suppress(BackendError):
        Own(host="far.invalid", user="me", job_dir="/x").get(str(tmp_path / "there"), str(target))
    assert untouched(victim)


def test_links_that_were_there_are_not_gone_through(victim: Path, target: Path) -> None:
    (target / "way").symlink_to(victim.parent)
    with pytest.raises(PackagingError, match="is no directory"):
        unpack(io.BytesIO(packed([entry("way/victim", b"taken")])), target)
    written(target, packed([entry("way/more", kind=tarfile.SYMTYPE, link="x")]))
    assert untouched(victim)


def test_a_file_takes_the_place_of_a_link(victim: Path, target: Path) -> None:
    (target / "a").symlink_to(victim)
    os.link(victim, target / "b")
    unpack(io.BytesIO(packed([entry("a", b"new"), entry("b", b"new")])), target)
    assert (target / "a").read_text() == (target / "b").read_text() == "new"
    assert untouched(victim)


def test_what_honest_senders_make_arrives(target: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "program").write_text("x")
    (tree / "deep" / "program").chmod(0o750)
    os.utime(tree / "deep" / "program", (1_000_000, 1_000_000))
    os.link(tree / "deep" / "program", tree / "same")
    (tree / "link").symlink_to("deep/program")
    sent = subprocess.run(["tar", "-cf", "-", "-C", tree, "."], stdout=subprocess.PIPE, check=True)

    unpack(io.BytesIO(sent.stdout), target)

    assert (target / "same").samefile(target / "deep" / "program")
    assert (target / "link").readlink() == Path("deep/program")
    there = (target / "deep" / "program").stat()
    assert (there.st_mode & 0o777, there.st_mtime) == (0o750, 1_000_000)


@pytest.mark.parametrize(
    "data",
    [
        header(tarfile.XHDTYPE, 1 << 40),
        header(tarfile.GNUTYPE_LONGNAME, 1 << 40),
        header(tarfile.GNUTYPE_SPARSE, 1 << 40),
        header(tarfile.REGTYPE, 1 << 62),
        packed([entry("d", kind=tarfile.CHRTYPE)]),
        packed([entry("d", kind=tarfile.FIFOTYPE)]),
    ],
    ids=["pax header", "long name", "holes", "huge file", "device", "fifo"],
)
def test_what_would_fill_memory_or_disk_is_refused(data: bytes, target: Path) -> None:
    with pytest.raises(PackagingError):
        unpack(io.BytesIO(data), target)
    assert not any(path.exists() for path in target.iterdir())


def test_headers_without_end_are_refused(target: Path) -> None:
    name = header(tarfile.XHDTYPE, 10) + b"10 a=bcde\n".ljust(512, b"\0")
    with pytest.raises(PackagingError):
        unpack(io.BytesIO(name * 5000), target)


def test_members_are_counted(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unpack, "MOST_MEMBERS", 10)
    unpack(io.BytesIO(packed(entry(str(n)) for n in range(10))), target)
    with pytest.raises(PackagingError, match="more than 10 members"):
        unpack(io.BytesIO(packed(entry(str(n)) for n in range(11))), target)


_names = st.sampled_from(["a", "b", "a/b", "../x", "/x", "a/../../x", "./a", "c\0d", "é", "a/b/c"])
_kinds = st.sampled_from([*b"0123457gxLKS"]).map(lambda code: bytes([code]))


@examples(max_examples=count(60))
@given(
    st.lists(st.tuples(_names, _kinds, _names, st.binary(max_size=20)), max_size=6),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=8),
)
def test_whatever_comes_stays_inside(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[str, bytes, str, bytes]],
    damage: list[tuple[int, int]],
) -> None:
    around = tmp_path_factory.mktemp("around")
    (around / "x").write_text("mine")
    (around / "target").mkdir()
    data = bytearray(
        packed(entry(n, c, kind=k, link=to) for n, k, to, c in entries if k in b"0123457")
    )
    for place, value in damage:
        data[place % len(data)] = value
    written(around / "target", bytes(data))
    assert (around / "x").read_text() == "mine"
    assert {path.name for path in around.iterdir()} == {"x", "target"}


def test_an_archive_that_was_changed_in_place_is_packed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.py").write_text("mine")
    monkeypatch.chdir(tree)

    def staged() -> Any:
        kept = _store.keep([DiskFiles({"a.py": str(tree / "a.py")})])
        assert _store.hash_of(kept.archive) == kept.sha256
        return kept

    os.utime(tree / "a.py", (1_000_000, 1_000_000))  # old enough for its time to stand for it
    first = staged()
    assert staged().archive.stat().st_ino == first.archive.stat().st_ino
    before = first.archive.stat()
    first.archive.chmod(0o600)
    with first.archive.open("r+b") as file:
        file.seek(before.st_size // 2)
        file.write(b"\0\1\2")
    os.utime(first.archive, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert staged().sha256 == first.sha256


def test_a_file_in_the_place_of_a_directory_is_refused(target: Path) -> None:
    with pytest.raises(PackagingError, match="cannot be written"):
        unpack(io.BytesIO(packed([entry("a/b"), entry("a", b"x")])), target)
