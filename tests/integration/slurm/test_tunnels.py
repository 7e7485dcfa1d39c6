"""What a tunnel owes, whether it leads to this machine or over ssh."""

from __future__ import annotations

import copy
import errno
import hashlib
import itertools
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.integration.slurm.sshd import ALIAS, Sshd

import nemo_run as run
from nemo_run.core.tunnel.client import Callback, Tunnel
from nemo_run.exceptions import (
    BackendError,
    CommandFailedError,
    ConfigError,
    ConnectionLostError,
    NemoRunError,
)

pytestmark = pytest.mark.slow

ODD_NAMES = [
    "a b",
    "it's",
    'say "hi"',
    "$HOME",
    "`id`",
    "x\ny",
    "naïve",
    "-rf",
    "*",
    "~",
    "a;b&c|d",
    "back\\slash",
    "!history",
]


@pytest.fixture(params=["local", "ssh"])
def tunnel(
    request: pytest.FixtureRequest,
    shared_sshd: Sshd,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Tunnel:
    job_dir = str(tmp_path / "there")
    if request.param == "local":
        return run.LocalTunnel(job_dir=job_dir)
    monkeypatch.setenv("PATH", shared_sshd.environment["PATH"])
    return run.SSHTunnel(host=ALIAS, user=shared_sshd.user, job_dir=job_dir)


def test_a_command_says_how_it_ended_and_what_it_wrote(tunnel: Tunnel) -> None:
    result = tunnel.run("echo out; echo err >&2; exit 3", warn=True)

    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert (result.exited, result.return_code, result.ok, result.failed) == (3, 3, False, True)
    assert not result
    assert result.command == "echo out; echo err >&2; exit 3"


def test_a_command_that_fails_raises_with_its_last_words(tunnel: Tunnel) -> None:
    with pytest.raises(CommandFailedError, match=r"exit code 7.*no such luck") as caught:
        tunnel.run("echo no such luck >&2; exit 7")
    assert caught.value.result.exited == 7


def test_a_command_may_end_with_the_code_that_ssh_itself_uses(tunnel: Tunnel) -> None:
    assert tunnel.run("echo x; exit 255", warn=True).exited == 255


def test_a_command_that_is_killed_has_failed(tunnel: Tunnel) -> None:
    assert tunnel.run("kill -9 $$", warn=True).failed


@pytest.mark.parametrize("name", [*ODD_NAMES, "", "tab\there"])
def test_arguments_arrive_unchanged(tunnel: Tunnel, name: str) -> None:
    assert tunnel.run(["printf", "%s|", name, "end"]).stdout == f"{name}|end|"


def test_input_reaches_the_command_byte_by_byte(tunnel: Tunnel) -> None:
    data = bytes(range(256)) * 1000
    assert hashlib.sha256(data).hexdigest() in tunnel.run("sha256sum", input=data).stdout


@pytest.mark.parametrize("hide", [True, False])
def test_a_command_need_not_read_its_input(tunnel: Tunnel, hide: bool) -> None:
    assert tunnel.run("exit 3", input=b"x" * 3_000_000, hide=hide, warn=True).exited == 3


def test_without_input_a_command_does_not_wait_for_any(tunnel: Tunnel) -> None:
    assert tunnel.run("cat", timeout=30).stdout == ""


def test_output_of_any_length_is_kept(tunnel: Tunnel) -> None:
    result = tunnel.run("head -c 3000000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero >&2")
    assert (len(result.stdout), len(result.stderr)) == (3_000_000, 300_000)


def test_output_can_be_shown_as_it_comes(
    tunnel: Tunnel, capsys: pytest.CaptureFixture[str]
) -> None:
    tunnel.run("echo hidden")
    assert capsys.readouterr() == ("", "")
    result = tunnel.run("echo out; echo err >&2", hide=False)
    assert capsys.readouterr() == ("out\n", "err\n") == (result.stdout, result.stderr)
    tunnel.run("echo out; echo err >&2", hide="out")
    assert capsys.readouterr() == ("", "err\n")


def test_a_command_that_takes_too_long_may_have_run(tunnel: Tunnel) -> None:
    begin = time.monotonic()
    with pytest.raises(ConnectionLostError, match=r"within 0.5 s.*may have run"):
        tunnel.run("sleep 60", timeout=0.5)
    assert time.monotonic() - begin < patience.seconds(30)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"colour": True}, "colour"),
        ({"hide": "all"}, "hide"),
        ({"asynchronous": True}, "thread"),
        ({"disown": True}, "nohup"),
    ],
)
def test_options_that_are_not_known_are_refused(
    tunnel: Tunnel, options: dict[str, Any], word: str
) -> None:
    with pytest.raises(ConfigError, match=word):
        tunnel.run("true", **options)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_files_go_there_and_back_under_any_name(tunnel: Tunnel, tmp_path: Path, name: str) -> None:
    here, there = tmp_path / name, Path(tunnel.job_dir, name, name)
    here.write_bytes(b"\0\n" + name.encode())

    tunnel.put(str(here), str(there))
    tunnel.get(str(there), str(tmp_path / "back" / name))

    assert there.read_bytes() == here.read_bytes()
    assert (tmp_path / "back" / name).read_bytes() == here.read_bytes()


def test_a_file_keeps_its_mode_and_replaces_the_old_one(tunnel: Tunnel, tmp_path: Path) -> None:
    here, there = tmp_path / "run.sh", Path(tunnel.job_dir, "run.sh")
    there.parent.mkdir(parents=True)
    there.write_text("old and longer")
    here.write_text("new")
    here.chmod(0o750)

    tunnel.put(str(here), str(there))

    assert there.read_text() == "new"
    assert there.stat().st_mode & 0o777 == 0o750
    assert [path.name for path in there.parent.iterdir()] == ["run.sh"]


def test_a_file_put_where_a_directory_is_goes_into_it(tunnel: Tunnel, tmp_path: Path) -> None:
    here, there = tmp_path / "a file", Path(tunnel.job_dir)
    here.write_text("x")
    there.mkdir(parents=True)
    back = tmp_path / "back"
    back.mkdir()

    tunnel.put(str(here), str(there))
    tunnel.get(str(there / "a file"), str(back))

    assert (there / "a file").read_text() == (back / "a file").read_text() == "x"


def test_directories_go_there_and_back_with_all_that_is_in_them(
    tunnel: Tunnel, tmp_path: Path
) -> None:
    here = tmp_path / "tree of mine"
    (here / "deep" / "er").mkdir(parents=True)
    (here / "empty").mkdir()
    for name in ODD_NAMES:
        (here / "deep" / name).write_text(name)
    (here / "link").symlink_to("deep/a b")
    (here / "deep" / "er" / "tool").write_text("#!/bin/sh\n")
    (here / "deep" / "er" / "tool").chmod(0o755)

    tunnel.put(str(here), tunnel.job_dir)
    tunnel.get(tunnel.job_dir, str(tmp_path / "back"))

    assert listing(Path(tunnel.job_dir)) == listing(here)
    assert listing(tmp_path / "back") == listing(here)


def listing(root: Path) -> dict[str, object]:
    return {
        str(path.relative_to(root)): (
            path.readlink()
            if path.is_symlink()
            else (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        )
        for path in sorted(root.rglob("*"))
    }


def test_what_is_not_there_cannot_be_copied(tunnel: Tunnel, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone.*no such file") as caught:
        tunnel.put(str(tmp_path / "gone"), tunnel.job_dir)
    assert isinstance(caught.value, NemoRunError)
    assert caught.value.errno == errno.ENOENT
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(FileNotFoundError, match="gone"):
        tunnel.get(str(tmp_path / "gone"), str(tmp_path / "back"))
    assert not (tmp_path / "back").exists()


def test_what_cannot_be_written_is_said(tunnel: Tunnel, tmp_path: Path) -> None:
    here = tmp_path / "file"
    here.write_text("x")
    with pytest.raises(BackendError, match="/proc/nothing"):
        tunnel.put(str(here), "/proc/nothing/file")


def test_a_file_can_be_written_from_memory_for_its_owner_only(tunnel: Tunnel) -> None:
    there = Path(tunnel.job_dir, "deep", "secret's")
    tunnel.write(str(there), "first")
    tunnel.write(str(there), b"\xff\0")

    assert there.read_bytes() == b"\xff\0"
    assert there.stat().st_mode & 0o777 == 0o600


def test_parts_of_a_file_can_be_read(tunnel: Tunnel) -> None:
    there = str(Path(tunnel.job_dir, "log"))
    assert tunnel.read(there) == b""
    tunnel.write(there, b"0123456789")
    assert tunnel.read(there) == b"0123456789"
    assert tunnel.read(there, 3, 4) == b"3456"
    assert tunnel.read(there, 10) == b""


def test_a_file_that_grows_is_followed_to_its_end(tunnel: Tunnel) -> None:
    there = Path(tunnel.job_dir, "log")
    over = threading.Event()

    def write() -> None:
        time.sleep(0.2)
        there.parent.mkdir(parents=True)
        with there.open("wb", buffering=0) as file:
            for n in range(200):
                file.write(b"line %d\n" % n)
                time.sleep(0.005)
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    data = b"".join(tunnel.follow(str(there), offset=5, ended=over.is_set))
    writer.join()

    assert data == b"".join(b"line %d\n" % n for n in range(200))[5:]


def test_following_can_be_given_up(tunnel: Tunnel) -> None:
    there = str(Path(tunnel.job_dir, "log"))
    tunnel.write(there, "first\n")
    blocks = tunnel.follow(there, ended=lambda: False)
    assert next(iter(blocks)) == b"first\n"
    blocks.close()  # type: ignore[attr-defined]  # a generator


def test_setting_up_and_cleaning_up_leave_a_tunnel_that_works(tunnel: Tunnel) -> None:
    tunnel.connect()
    tunnel.setup()
    tunnel.cleanup()
    tunnel.cleanup()
    assert tunnel.run("echo again").ok


def test_a_tunnel_that_is_used_stays_a_value(tunnel: Tunnel) -> None:
    fresh = copy.deepcopy(tunnel)
    tunnel.run("true")

    assert tunnel == fresh
    assert pickle.loads(pickle.dumps(tunnel)) == tunnel
    assert copy.deepcopy(tunnel).run("echo x").stdout == "x\n"
    assert "Connection" not in repr(tunnel)


class Witness(Callback):
    def __init__(self, rounds: int, end: BaseException) -> None:
        self.seen: list[str] = []
        self._rounds = itertools.count(1)
        self._last = rounds
        self._end = end

    def setup(self, tunnel: Tunnel) -> None:
        super().setup(tunnel)
        self.seen.append("setup")

    def on_start(self) -> None:
        self.seen.append("start")

    def on_interval(self) -> None:
        self.seen.append("interval")
        if next(self._rounds) == self._last:
            raise self._end

    def on_stop(self) -> None:
        self.seen.append("stop")

    def on_error(self, error: Exception) -> None:
        self.seen.append(f"error: {error}")


def test_keeping_alive_ends_with_control_c(tunnel: Tunnel) -> None:
    witness = Witness(2, KeyboardInterrupt())
    tunnel.keep_alive(witness, interval=0)
    assert witness.seen == ["setup", "start", "interval", "interval", "stop"]
    assert witness.tunnel is tunnel


def test_errors_while_keeping_alive_are_heard_of_and_raised(tunnel: Tunnel) -> None:
    witness = Witness(1, ValueError("oh"))
    with pytest.raises(ValueError, match="oh"):
        tunnel.keep_alive(witness, interval=0)
    assert witness.seen == ["setup", "start", "interval", "error: oh", "stop"]
