"""Files over ssh: large ones, many of them, and connections that break on the way."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.slurm.chaos import ChaosProxy
from tests.integration.slurm.daemons import wait_until
from tests.integration.slurm.sshd import ALIAS, Sshd

from nemo_run.core.tunnel.client import SSHTunnel
from nemo_run.core.tunnel.rsync import rsync
from nemo_run.exceptions import BackendUnavailableError

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20


@pytest.fixture
def tunnel(sshd: Sshd, proxy: ChaosProxy, tmp_path: Path) -> SSHTunnel:
    """A tunnel by way of the proxy."""
    return SSHTunnel(host=ALIAS, user=sshd.user, port=proxy.port, job_dir=str(tmp_path / "there"))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    with path.open("wb") as file:
        for _ in range(50):
            file.write(os.urandom(MEGABYTE))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_fifty_megabytes_arrive_and_come_back(
    tunnel: SSHTunnel, large: Path, tmp_path: Path
) -> None:
    there = Path(tunnel.job_dir, "large")
    tunnel.put(str(large), str(there))
    tunnel.get(str(there), str(tmp_path / "back"))
    assert digest(there) == digest(tmp_path / "back") == digest(large)


def test_two_thousand_small_files_are_one_command(
    tunnel: SSHTunnel, sshd: Sshd, tmp_path: Path
) -> None:
    here = tmp_path / "many"
    here.mkdir()
    for n in range(2000):
        (here / f"file {n}").write_text(str(n))

    tunnel.put(str(here), tunnel.job_dir)

    assert len(list(Path(tunnel.job_dir).iterdir())) == 2000
    assert (sshd.connections(), sshd.commands()) == (1, 1)


def test_a_file_whose_connection_is_cut_is_sent_again(
    tunnel: SSHTunnel, proxy: ChaosProxy, large: Path
) -> None:
    there = Path(tunnel.job_dir, "large")
    tunnel.setup()
    proxy.cut_after_bytes = 20 * MEGABYTE
    tunnel.put(str(large), str(there))

    assert proxy.connections == 2
    assert digest(there) == digest(large)


def test_a_directory_whose_connection_is_cut_is_sent_again(
    tunnel: SSHTunnel, proxy: ChaosProxy, large: Path
) -> None:
    tunnel.setup()
    proxy.cut_after_bytes = 20 * MEGABYTE
    tunnel.put(str(large.parent), tunnel.job_dir + "/copy")

    assert proxy.connections == 2
    assert digest(Path(tunnel.job_dir, "copy", "large")) == digest(large)


def test_a_file_that_cannot_be_sent_leaves_the_old_one(
    tunnel: SSHTunnel, proxy: ChaosProxy, large: Path
) -> None:
    there = Path(tunnel.job_dir, "large")
    tunnel.write(str(there), "old")
    sending = threading.Event()

    def cut() -> None:
        sending.wait()
        wait_until(
            lambda: any(p.stat().st_size > MEGABYTE for p in there.parent.iterdir()),
            "a part of the file",
            pause_s=0.001,
        )
        proxy.refuse()
        proxy.cut()

    cutter = threading.Thread(target=cut)
    cutter.start()
    proxy.delay_s = 0.001
    sending.set()
    with pytest.raises(BackendUnavailableError):
        tunnel.put(str(large), str(there))
    cutter.join()
    assert there.read_text() == "old"
    wait_until(
        lambda: [p.name for p in there.parent.iterdir()] == ["large"],
        "the end of what is left of the new one",
    )


def test_a_file_whose_way_back_is_cut_is_fetched_again(
    tunnel: SSHTunnel, sshd: Sshd, large: Path, tmp_path: Path
) -> None:
    back = tmp_path / "back"
    staged: list[int] = []

    def parts() -> Iterator[Path]:
        return tmp_path.glob(".back.*.tmp")

    def cut() -> None:
        wait_until(
            lambda: any(p.stat().st_size > MEGABYTE for p in parts()), "a part", pause_s=0.001
        )
        staged.append(1)
        sshd.drop_connections()

    cutter = threading.Thread(target=cut)
    cutter.start()
    tunnel.get(str(large), str(back))
    cutter.join()

    assert staged
    assert digest(back) == digest(large)
    assert list(parts()) == []


class TestFollowing:
    def test_no_byte_is_lost_or_doubled_by_cuts(self, tunnel: SSHTunnel, proxy: ChaosProxy) -> None:
        there = Path(tunnel.job_dir, "log")
        there.parent.mkdir()
        over = threading.Event()

        def write() -> None:
            with there.open("wb", buffering=0) as file:
                for n in range(3000):
                    file.write(b"line %d\n" % n)
                    time.sleep(0.002)
                    if n % 1000 == 500:
                        proxy.cut()
            over.set()

        writer = threading.Thread(target=write)
        writer.start()
        data = b"".join(tunnel.follow(str(there), ended=over.is_set))
        writer.join()

        assert data == b"".join(b"line %d\n" % n for n in range(3000))
        assert proxy.connections >= 2

    def test_it_goes_on_after_the_server_was_away(self, tunnel: SSHTunnel, sshd: Sshd) -> None:
        there = Path(tunnel.job_dir, "log")
        tunnel.write(str(there), "before\n")
        over = threading.Event()
        blocks = tunnel.follow(str(there), ended=over.is_set)
        assert next(blocks) == b"before\n"
        with sshd.down(), there.open("a") as file:
            file.write("while away\n")

        assert next(blocks) == b"while away\n"
        over.set()
        assert list(blocks) == []

    def test_nothing_is_left_running_there(self, tunnel: SSHTunnel) -> None:
        there = Path(tunnel.job_dir, "log")
        tunnel.write(str(there), "x\n")

        def tails() -> list[str]:
            search = ["pgrep", "-f", f"^tail .* -f -- {there}"]
            return subprocess.run(search, capture_output=True, text=True).stdout.split()

        def append_while_followed() -> None:
            wait_until(tails, "tail")
            with there.open("a") as file:
                file.write("y\n")

        appender = threading.Thread(target=append_while_followed)
        appender.start()
        blocks = tunnel.follow(str(there), ended=lambda: False)
        assert (next(blocks), next(blocks)) == (b"x\n", b"y\n")
        appender.join()
        assert tails()
        blocks.close()  # type: ignore[attr-defined]  # a generator
        wait_until(lambda: not tails(), "the end of tail")

    def test_more_files_than_there_are_sessions_are_followed(
        self, tunnel: SSHTunnel, sshd: Sshd
    ) -> None:
        over = threading.Event()
        logs = [Path(tunnel.job_dir, f"log{n}") for n in range(12)]
        tunnel.setup()
        said: dict[Path, bytes] = {}

        def follow(path: Path) -> None:
            said[path] = b"".join(tunnel.follow(str(path), ended=over.is_set))

        threads = [threading.Thread(target=follow, args=[path]) for path in logs]
        for thread in threads:
            thread.start()
        for path in logs:
            path.write_text(path.name)
        over.set()
        for thread in threads:
            thread.join()

        assert said == {path: path.name.encode() for path in logs}
        assert sshd.connections() == 1


class TestRsync:
    def test_only_what_changed_travels_over_the_shared_connection(
        self, tunnel: SSHTunnel, sshd: Sshd, tmp_path: Path
    ) -> None:
        here = tmp_path / "it's here"
        (here / "sub dir").mkdir(parents=True)
        (here / "sub dir" / "a b").write_text("1")
        (here / "skip.tmp").write_text("no")
        target = Path(tunnel.job_dir, "over 'there")

        rsync(tunnel, f"{here}/", str(target), exclude="*.tmp")
        (target / "extra").write_text("x")
        rsync(tunnel, f"{here}/", str(target), exclude=["*.tmp"], delete=True)

        found = sorted(str(p.relative_to(target)) for p in target.rglob("*"))
        assert found == ["sub dir", "sub dir/a b"]
        assert sshd.connections() == 1

    def test_its_failure_says_why(self, tunnel: SSHTunnel, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="No such file"):
            rsync(tunnel, str(tmp_path / "gone"), tunnel.job_dir)
