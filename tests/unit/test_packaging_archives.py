"""Archives: the same bytes for the same tree, read by every tool, unpacked nowhere else."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import random
import stat
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.repositories import File, odd_tree, read_tree, write_tree

from nemo_run.core.packaging._gzip import BLOCK_BYTES, compressed
from nemo_run.core.packaging._members import IN_MEMORY_BYTES, leads_out
from nemo_run.core.packaging._staging import extract, pack_directory
from nemo_run.exceptions import PackagingError


def noise(size_bytes: int) -> bytes:
    """Return bytes that can be compressed a little."""
    return random.Random(size_bytes).randbytes(size_bytes).translate(b"abcdefgh" * 32)


class TestGzip:
    @pytest.mark.parametrize(
        "size_bytes", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 7]
    )
    def test_every_tool_reads_it(self, size_bytes: int) -> None:
        data = noise(size_bytes)
        stream = b"".join(compressed([data]))
        assert gzip.decompress(stream) == data
        subprocess.run(["gzip", "-t"], input=stream, check=True)
        done = subprocess.run(["gzip", "-dc"], input=stream, capture_output=True, check=True)
        assert done.stdout == data

    @settings(max_examples=10, deadline=None)
    @given(
        cuts=st.lists(st.integers(0, 2 * BLOCK_BYTES + 100), max_size=6),
        workers=st.integers(1, 4),
    )
    def test_the_bytes_do_not_depend_on_how_they_come(self, cuts: list[int], workers: int) -> None:
        data = noise(2 * BLOCK_BYTES + 100)
        edges = [0, *sorted(cuts), len(data)]
        pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
        whole = b"".join(compressed([data], workers=1))
        assert b"".join(compressed(pieces, workers=workers)) == whole

    def test_it_is_one_member_without_a_time(self) -> None:
        stream = b"".join(compressed([noise(3 * BLOCK_BYTES)]))
        assert stream[4:8] == bytes(4)
        # Busybox and others stop at the end of the first member.
        reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert len(reader.decompress(stream)) == 3 * BLOCK_BYTES
        assert reader.eof
        assert reader.unused_data == b""

    def test_an_error_while_reading_comes_through(self) -> None:
        def broken() -> object:
            yield b"x" * BLOCK_BYTES
            raise PackagingError("gone")

        with pytest.raises(PackagingError, match="gone"):
            list(compressed(broken()))  # type: ignore[arg-type]


class TestPackingDirectories:
    def test_everything_comes_back(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "job", odd_tree())
        (tmp_path / "job" / "empty dir").mkdir()
        staged = pack_directory(tmp_path / "job", tmp_path / "out.tar.gz")
        extract(staged.archive, tmp_path / "again")
        assert read_tree(tmp_path / "again") == odd_tree()
        assert (tmp_path / "again" / "empty dir").is_dir()

    def test_what_only_its_owner_can_read_stays_so(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "job", {"secret": File(b"x"), "open": File(b"y")})
        (tmp_path / "job" / "secret").chmod(0o600)
        (tmp_path / "job" / "mine").mkdir(mode=0o700)
        staged = pack_directory(tmp_path / "job", tmp_path / "out.tar.gz")
        extract(staged.archive, tmp_path / "again")
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "again").iterdir()
        }
        assert modes == {"secret": 0o600, "open": 0o644, "mine": 0o700}

    def test_an_archive_within_is_replaced_and_not_packed(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "job", {"a": File(b"x")})
        first = pack_directory(tmp_path / "job", tmp_path / "job" / "out.tar.gz")
        second = pack_directory(tmp_path / "job", tmp_path / "job" / "out.tar.gz")
        assert first == second
        assert {path.name for path in (tmp_path / "job").iterdir()} == {"a", "out.tar.gz"}

    def test_an_empty_directory_can_be_packed(self, tmp_path: Path) -> None:
        (tmp_path / "job").mkdir()
        extract(pack_directory(tmp_path / "job", tmp_path / "out").archive, tmp_path / "again")
        assert list((tmp_path / "again").iterdir()) == []

    @pytest.mark.slow
    def test_a_file_that_does_not_fit_into_memory_arrives(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "job", {"small": File(b"x")})
        with (tmp_path / "job" / "large").open("wb") as file:
            file.write(b"begin")
            file.truncate(IN_MEMORY_BYTES + 12345)
            file.seek(0, os.SEEK_END)
            file.write(b"end")
        staged = pack_directory(tmp_path / "job", tmp_path / "out.tar.gz")
        extract(staged.archive, tmp_path / "again")
        subprocess.run(
            ["cmp", tmp_path / "job" / "large", tmp_path / "again" / "large"], check=True
        )
        subprocess.run(["gzip", "-t", staged.archive], check=True)


class TestTimes:
    def test_python_does_not_run_what_it_compiled_of_an_earlier_version(
        self, tmp_path: Path
    ) -> None:
        write_tree(tmp_path / "source", {"rate.py": File(b"print(0.01)")})
        said = []
        for text in ("print(0.01)", "print(0.02)"):
            (tmp_path / "source" / "rate.py").write_text(text)
            staged = pack_directory(tmp_path / "source", tmp_path / "out")
            (tmp_path / "code").mkdir(exist_ok=True)
            # As a cluster would: over what is there, with the compiled files of the last job.
            subprocess.run(["tar", "-xzf", staged.archive, "-C", tmp_path / "code"], check=True)
            done = subprocess.run(
                [sys.executable, "-c", "import rate"],
                cwd=tmp_path / "code",
                capture_output=True,
                text=True,
                check=True,
                env={"PYTHONPATH": str(tmp_path / "code")},
            )
            said.append(done.stdout.strip())
        assert said == ["0.01", "0.02"]

    def test_equal_content_has_equal_times(self, tmp_path: Path) -> None:
        times = []
        for moment in (1_000_000_000, 1_500_000_000):
            write_tree(tmp_path / str(moment), {"a": File(b"x")})
            os.utime(tmp_path / str(moment) / "a", (moment, moment))
            staged = pack_directory(tmp_path / str(moment), tmp_path / "out")
            with tarfile.open(staged.archive) as tar:
                times.append(tar.getmember("a").mtime)
        assert times[0] == times[1]


def archive(path: Path, *members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            info, content = member if isinstance(member, tuple) else (member, b"")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


class TestUnpacking:
    @pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a/.."])
    def test_names_that_lead_out_are_refused(self, tmp_path: Path, name: str) -> None:
        made = archive(tmp_path / "a.tar.gz", entry("fine"), (entry(name), b"x"))
        with pytest.raises(PackagingError, match="stay below"):
            extract(made, tmp_path / "in" / "code")
        assert not list(tmp_path.rglob("evil"))
        assert list((tmp_path / "in").iterdir()) == []

    @pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
    def test_devices_are_refused(self, tmp_path: Path, kind: bytes) -> None:
        made = archive(tmp_path / "a.tar.gz", entry("device", kind))
        with pytest.raises(PackagingError, match="'device' is neither"):
            extract(made, tmp_path / "code")

    @pytest.mark.parametrize("target", ["/etc/passwd", "..", "../x", "sub/../../x"])
    def test_links_that_lead_out_are_left_out(
        self, tmp_path: Path, target: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = archive(tmp_path / "a.tar.gz", entry("bad", tarfile.SYMTYPE, target), entry("good"))
        extract(made, tmp_path / "code")
        assert set(read_tree(tmp_path / "code")) == {"good"}
        assert "'bad'" in caplog.text

    def test_nothing_is_written_through_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "victim").mkdir()
        made = archive(
            tmp_path / "a.tar.gz",
            entry("way", tarfile.SYMTYPE, "../victim"),
            (entry("way/evil"), b"x"),
        )
        extract(made, tmp_path / "code")
        assert list((tmp_path / "victim").iterdir()) == []

    def test_links_that_lead_out_together_are_left_out(self, tmp_path: Path) -> None:
        made = archive(
            tmp_path / "a.tar.gz",
            (entry("d/e/f/file"), b"x"),
            entry("short", tarfile.SYMTYPE, "d/e/f"),
            entry("d/e/f/up", tarfile.SYMTYPE, "../../.."),
            # Harmless word by word: short/.. is the root. Followed, it is d/e.
            entry("out", tarfile.SYMTYPE, "short/up/../x"),
        )
        extract(made, tmp_path / "code")
        root = str((tmp_path / "code").resolve())
        for path in (tmp_path / "code").rglob("*"):
            assert str(path.resolve()).startswith(root)

    def test_a_hard_link_to_somewhere_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "victim").write_text("secret")
        made = archive(
            tmp_path / "a.tar.gz", entry("link", tarfile.LNKTYPE, str(tmp_path / "victim"))
        )
        with pytest.raises(PackagingError, match="no file of the archive"):
            extract(made, tmp_path / "code")

    def test_no_program_gets_the_rights_of_its_owner(self, tmp_path: Path) -> None:
        made = archive(tmp_path / "a.tar.gz", (entry("p", mode=0o6777), b"x"))
        extract(made, tmp_path / "code")
        assert stat.S_IMODE((tmp_path / "code" / "p").stat().st_mode) == 0o755

    def test_of_two_of_the_same_name_the_later_stays(self, tmp_path: Path) -> None:
        made = archive(
            tmp_path / "a.tar.gz",
            (entry("a"), b"1"),
            entry("b", tarfile.SYMTYPE, "a"),
            (entry("a"), b"2"),
            (entry("b"), b"3"),
            (entry("c"), b"4"),
            entry("c", tarfile.SYMTYPE, "a"),
        )
        extract(made, tmp_path / "code")
        assert read_tree(tmp_path / "code") == {
            "a": File(b"2"),
            "b": File(b"3"),
            "c": File(link="a"),
        }

    def test_what_was_there_is_replaced(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "code", {"old": File(b"x"), "d/old": File()})
        extract(archive(tmp_path / "a.tar.gz", (entry("new"), b"x")), tmp_path / "code")
        assert set(read_tree(tmp_path / "code")) == {"new"}
        assert {path.name for path in tmp_path.iterdir()} == {"a.tar.gz", "code"}

    @pytest.mark.parametrize("content", [b"", b"no archive", gzip.compress(b"no tar", mtime=0)])
    def test_what_is_no_archive_is_refused_and_replaces_nothing(
        self, tmp_path: Path, content: bytes
    ) -> None:
        write_tree(tmp_path / "code", {"old": File(b"x")})
        (tmp_path / "a.tar.gz").write_bytes(content)
        with pytest.raises(PackagingError, match=r"a\.tar\.gz.*not a whole tar file"):
            extract(tmp_path / "a.tar.gz", tmp_path / "code")
        assert set(read_tree(tmp_path / "code")) == {"old"}

    def test_half_an_archive_is_refused(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "job", {f"{number}": File(noise(50_000)) for number in range(50)})
        staged = pack_directory(tmp_path / "job", tmp_path / "out")
        half = tmp_path / "half"
        half.write_bytes(staged.archive.read_bytes()[: staged.size_bytes // 2])
        with pytest.raises(PackagingError, match="not a whole tar file"):
            extract(half, tmp_path / "code")
        assert not (tmp_path / "code").exists()

    @given(
        name=st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4),
        target=st.lists(st.sampled_from(["..", ".", "a", "b", ""]), min_size=1, max_size=8),
    )
    def test_the_way_of_a_link_is_judged_as_the_system_would(
        self, name: list[str], target: list[str]
    ) -> None:
        depth = len(name) - 1
        for step in target:
            depth += {"..": -1, ".": 0, "": 0}.get(step, 1)
            if depth < 0:
                break
        lexical = leads_out("/".join(name), "/".join(target))
        # A way that leaves and comes back ends inside; that is judged when it is followed.
        assert not lexical or depth < 0 or "/".join(target).startswith("/")
