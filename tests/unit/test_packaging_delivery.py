"""Archives are brought to the far side once, whole, and from where an attempt broke off."""

from __future__ import annotations

import logging
import os
import pty
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.contract.repositories import File, write_tree

from nemo_run.core.packaging._staging import StagedCode, deliver, pack_directory, upload
from nemo_run.exceptions import PackagingError


@dataclass
class Shell:
    """A far side that is this machine. It can lose the connection after some bytes."""

    breaks_after_bytes: int | None = None
    sent_bytes: int = 0
    commands: list[str] = field(default_factory=list)

    def run(self, command: str) -> str:
        self.commands.append(command)
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        return done.stdout

    def send(self, command: str, stream: BinaryIO) -> None:
        self.commands.append(command)
        with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            while piece := stream.read(1000):
                process.stdin.write(piece)
                self.sent_bytes += len(piece)
                if self.breaks_after_bytes and self.sent_bytes >= self.breaks_after_bytes:
                    process.stdin.close()
                    process.wait()
                    raise ConnectionError("gone")


@pytest.fixture
def staged(tmp_path: Path) -> StagedCode:
    write_tree(tmp_path / "source", {"a": File(os.urandom(100_000))})
    return pack_directory(tmp_path / "source", tmp_path / "a.tar.gz")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "far side's $HOME" / "a b"


class TestDelivering:
    def test_it_arrives_under_its_hash(self, staged: StagedCode, there: Path) -> None:
        path = deliver(staged, Shell(), str(there))
        assert path == str(there / f"{staged.sha256}.tar.gz")
        assert Path(path).read_bytes() == staged.archive.read_bytes()
        assert list(there.iterdir()) == [Path(path)]

    def test_what_is_there_is_not_sent_again(self, staged: StagedCode, there: Path) -> None:
        deliver(staged, Shell(), str(there))
        again = Shell()
        deliver(staged, again, str(there))
        assert again.sent_bytes == 0
        assert len(again.commands) == 1

    def test_what_was_changed_there_is_sent_again(self, staged: StagedCode, there: Path) -> None:
        path = Path(deliver(staged, Shell(), str(there)))
        before = path.stat()
        path.write_bytes(b"x" * before.st_size)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert deliver(staged, Shell(), str(there)) == str(path)
        assert path.read_bytes() == staged.archive.read_bytes()

    def test_code_is_for_its_owner_to_read(self, staged: StagedCode, there: Path) -> None:
        path = Path(deliver(staged, Shell(), str(there)))
        assert path.stat().st_mode & 0o077 == 0

    def test_a_far_side_may_greet(self, staged: StagedCode, there: Path) -> None:
        class Polite(Shell):
            def run(self, command: str) -> str:
                return super().run(f"echo Welcome, user; {command}")

        path = deliver(staged, Polite(), str(there))
        assert Path(path).read_bytes() == staged.archive.read_bytes()

    def test_it_goes_on_where_it_broke_off(self, staged: StagedCode, there: Path) -> None:
        with pytest.raises(ConnectionError):
            deliver(staged, Shell(breaks_after_bytes=60_000), str(there))
        assert not (there / f"{staged.sha256}.tar.gz").exists()
        far = Shell()
        path = deliver(staged, far, str(there))
        assert far.sent_bytes == staged.size_bytes - 60_000
        assert Path(path).read_bytes() == staged.archive.read_bytes()

    def test_a_beginning_that_still_grows_does_no_harm(
        self, staged: StagedCode, there: Path
    ) -> None:
        there.mkdir(parents=True)
        part = there / f"{staged.sha256}.tar.gz.0.part"
        data = staged.archive.read_bytes()
        part.write_bytes(data[:1000])

        class Late(Shell):
            def send(self, command: str, stream: BinaryIO) -> None:
                # Of an attempt whose connection has just broken: its last bytes come now.
                with part.open("ab") as file:
                    file.write(data[1000:3000])
                super().send(command, stream)

        far = Late()
        path = deliver(staged, far, str(there))
        assert far.sent_bytes == staged.size_bytes - 1000
        assert Path(path).read_bytes() == data
        assert list(there.iterdir()) == [Path(path)]

    def test_what_was_left_there_a_month_ago_is_removed(
        self, staged: StagedCode, there: Path
    ) -> None:
        there.mkdir(parents=True)
        others = [there / name for name in ("a" * 64 + ".tar.gz", "b" * 64 + ".tar.gz.part")]
        kept = [there / "mine.tar.gz", there / f"{staged.sha256}.tar.gz"]
        for path in [*others, *kept]:
            path.write_bytes(b"x")
            month_ago = time.time() - 40 * 24 * 3600
            os.utime(path, (month_ago, month_ago))
        new = there / ("c" * 64 + ".tar.gz")
        new.write_bytes(b"x")
        deliver(staged, Shell(), str(there))
        assert set(there.iterdir()) == {*kept, new}

    def test_a_spoiled_beginning_is_thrown_away(self, staged: StagedCode, there: Path) -> None:
        there.mkdir(parents=True)
        (there / f"{staged.sha256}.tar.gz.0.part").write_bytes(b"something else")
        path = deliver(staged, Shell(), str(there))
        assert Path(path).read_bytes() == staged.archive.read_bytes()
        assert list(there.iterdir()) == [Path(path)]

    def test_what_does_not_arrive_whole_is_an_error(self, staged: StagedCode, there: Path) -> None:
        class Lossy(Shell):
            def send(self, command: str, stream: BinaryIO) -> None:
                stream.read(10)
                super().send(command, stream)

        with pytest.raises(PackagingError, match="did not arrive whole"):
            deliver(staged, Lossy(), str(there))
        assert list(there.iterdir()) == []

    def test_several_may_deliver_at_once(self, staged: StagedCode, there: Path) -> None:
        paths: list[str] = []
        threads = [
            threading.Thread(target=lambda: paths.append(deliver(staged, Shell(), str(there))))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(paths) == 4
        assert Path(paths[0]).read_bytes() == staged.archive.read_bytes()

    def test_one_who_is_late_does_not_write_into_what_arrived(
        self, staged: StagedCode, there: Path
    ) -> None:
        after_it_wrote: list[bytes] = []

        class Late(Shell):
            def send(self, command: str, stream: BinaryIO) -> None:
                with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE) as process:
                    assert process.stdin is not None
                    while not list(there.glob("*.part")):
                        time.sleep(0.01)
                    path = deliver(staged, Shell(), str(there))
                    shutil.copyfileobj(stream, process.stdin)
                after_it_wrote.append(Path(path).read_bytes())

        path = deliver(staged, Late(), str(there))
        assert after_it_wrote == [staged.archive.read_bytes()]
        assert list(there.iterdir()) == [Path(path)]


class TestUploading:
    def test_a_command_gets_it_as_its_input(self, staged: StagedCode, tmp_path: Path) -> None:
        upload(staged.archive, ["tee", str(tmp_path / "copy")], label="code")
        assert (tmp_path / "copy").read_bytes() == staged.archive.read_bytes()

    def test_a_function_gets_it_as_a_file(self, staged: StagedCode, tmp_path: Path) -> None:
        def take(stream: BinaryIO) -> None:
            with (tmp_path / "copy").open("wb") as copy:
                shutil.copyfileobj(stream, copy)

        upload(staged.archive, take, offset=10)
        assert (tmp_path / "copy").read_bytes() == staged.archive.read_bytes()[10:]

    def test_a_command_that_fails_is_an_error_with_what_it_said(self, staged: StagedCode) -> None:
        with pytest.raises(PackagingError, match=r"'sh' ended with exit code 3\. no room"):
            upload(staged.archive, ["sh", "-c", "echo no room >&2; exit 3"])

    def test_nothing_is_shown_where_there_is_no_terminal(
        self, staged: StagedCode, capfd: pytest.CaptureFixture[str]
    ) -> None:
        upload(staged.archive, ["sh", "-c", "sleep 0.2; cat >/dev/null"])
        assert capfd.readouterr() == ("", "")

    def test_where_there_is_no_terminal_what_takes_long_is_said_now_and_then(
        self,
        staged: StagedCode,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.INFO)
        monkeypatch.setattr("nemo_run.core.packaging._delivery._REPORT_S", 0.0)
        upload(staged.archive, ["sh", "-c", "cat >/dev/null"], label="the code")
        assert "the code: 0 of 0 MB so far" in caplog.text

    def test_what_was_read_in_vain_can_be_read_again(self, staged: StagedCode) -> None:
        def take(stream: BinaryIO) -> None:
            begin = stream.tell()
            stream.read(50_000)
            stream.seek(begin)
            assert stream.read() == staged.archive.read_bytes()[10:]

        upload(staged.archive, take, offset=10)

    @pytest.mark.slow
    @pytest.mark.parametrize(("pause_s", "shown"), [(0, False), (1.5, True)])
    def test_on_a_terminal_what_takes_long_is_shown(
        self, tmp_path: Path, pause_s: float, shown: bool
    ) -> None:
        archive = tmp_path / "a.tar.gz"
        archive.write_bytes(bytes(2_000_000))
        code = """if True:
            import sys
            from pathlib import Path
            from nemo_run.core.packaging._staging import upload
            command = ["sh", "-c", f"sleep {sys.argv[2]}; cat > /dev/null"]
            upload(Path(sys.argv[1]), command, label="the code")
        """
        leader, follower = pty.openpty()
        done = subprocess.Popen(
            [sys.executable, "-c", code, str(archive), str(pause_s)], stderr=follower
        )
        os.close(follower)
        said = b""
        while True:
            try:
                piece = os.read(leader, 1000)
            except OSError:  # how a terminal ends whose other side is closed
                break
            said += piece
        os.close(leader)
        assert done.wait() == 0
        assert (b"the code" in said) is shown
