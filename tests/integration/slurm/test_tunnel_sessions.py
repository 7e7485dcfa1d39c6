"""Sessions of tunnels, and the words of Invoke that commands are run with."""

from __future__ import annotations

import copy
import gc
import hashlib
import io
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import invoke
import pytest
from tests.integration.slurm.daemons import wait_until
from tests.integration.slurm.sshd import ALIAS, Sshd, temporary_sshd

import nemo_run as run
from nemo_run.core.tunnel.client import Tunnel
from nemo_run.core.tunnel.rsync import rsync
from nemo_run.exceptions import (
    BackendError,
    CommandFailedError,
    ConnectionLostError,
)

pytestmark = pytest.mark.slow

ASKS = 'printf "Password: "; read -r word; echo; echo "got <$word>"'


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


@pytest.fixture
def over_ssh(shared_sshd: Sshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> run.SSHTunnel:
    monkeypatch.setenv("PATH", shared_sshd.environment["PATH"])
    return run.SSHTunnel(host=ALIAS, user=shared_sshd.user, job_dir=str(tmp_path / "there"))


class Password(invoke.StreamWatcher):
    def __init__(self) -> None:
        super().__init__()
        self.answered = False

    def submit(self, stream: str) -> Iterator[str]:
        if "Password:" in stream and not self.answered:
            self.answered = True
            yield "open sesame\n"


class TestSession:
    def test_there_is_none_until_connected(self, tunnel: Tunnel) -> None:
        before = tunnel.session
        tunnel.connect()
        connected = tunnel.session.is_connected
        tunnel.cleanup()
        assert (before, connected, tunnel.session) == (None, True, None)

    def test_the_first_command_connects(self, tunnel: Tunnel) -> None:
        tunnel.run("true")
        assert tunnel.session.is_connected

    def test_it_runs_and_copies(self, tunnel: Tunnel, tmp_path: Path) -> None:
        tunnel.connect()
        session = tunnel.session
        (tmp_path / "here").write_text("words")
        session.put(str(tmp_path / "here"), str(tmp_path / "far" / "there"))
        session.get(str(tmp_path / "far" / "there"), local=str(tmp_path / "back"))

        assert session.run("echo hi; exit 3", hide=True, warn=True).exited == 3
        assert (tmp_path / "back").read_text() == "words"
        with pytest.raises(CommandFailedError):
            session.run("exit 3", hide=True)
        session.close()
        assert session.run("echo again", hide=True).stdout == "again\n"

    def test_copies_of_a_tunnel_connect_anew(self, tunnel: Tunnel) -> None:
        tunnel.connect()
        for other in (copy.deepcopy(tunnel), pickle.loads(pickle.dumps(tunnel))):
            assert other == tunnel
            assert other.session is None
            assert other.run("echo x").stdout == "x\n"

    def test_a_closed_one_says_so(self, over_ssh: run.SSHTunnel, sshd: Sshd) -> None:
        mine = run.SSHTunnel(host=ALIAS, user=sshd.user, job_dir="/x")
        mine.connect()
        session = mine.session
        sshd.drop_connections()
        wait_until(lambda: not session.is_connected, "the end of the connection")

    def test_rsync_takes_it(self, over_ssh: run.SSHTunnel, tmp_path: Path) -> None:
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / "file").write_text("x")
        over_ssh.connect()
        rsync(over_ssh.session, str(tmp_path / "tree"), str(tmp_path / "far"))
        assert (tmp_path / "far" / "tree" / "file").read_text() == "x"


class TestFiles:
    @pytest.mark.parametrize("size", [0, 1, 32768, 1_024_001])
    def test_a_file_is_copied_with_progress(
        self, tunnel: Tunnel, tmp_path: Path, size: int
    ) -> None:
        tunnel.connect()
        here, there, back = tmp_path / "here", tmp_path / "it's there", tmp_path / "back"
        here.write_bytes((bytes(range(256)) * (size // 256 + 1))[:size])
        seen: dict[str, list[tuple[int, int]]] = {"put": [], "get": []}
        with tunnel.session.client.open_sftp() as files:
            sent = files.put(str(here), str(there), callback=lambda *step: seen["put"].append(step))
            files.get(str(there), str(back), callback=lambda *step: seen["get"].append(step))

        assert sent.st_size == size
        assert there.read_bytes() == here.read_bytes() == back.read_bytes()
        for steps in seen.values():
            assert steps == sorted(steps)
            assert not size or steps[-1] == (size, size)

    def test_files_can_be_looked_at_and_changed(self, tunnel: Tunnel, tmp_path: Path) -> None:
        tunnel.connect()
        at = str(tmp_path / "dir")
        files = tunnel.session.client.open_sftp()
        files.mkdir(at)
        with files.open(f"{at}/a", "w") as file:
            file.write("one\n")
            file.write(b"two\n")
        with files.open(f"{at}/a", "a") as file:
            file.write("three\n")
        with files.open(f"{at}/a") as file:
            assert file.read() == b"one\ntwo\nthree\n"
            file.seek(4)
            assert file.readline() == b"two\n"
        files.rename(f"{at}/a", f"{at}/b")
        files.chmod(f"{at}/b", 0o640)
        files.symlink("b", f"{at}/link")

        assert sorted(files.listdir(at)) == ["b", "link"]
        assert files.stat(f"{at}/link").st_size == 14
        assert files.stat(f"{at}/b").st_mode & 0o777 == 0o640
        assert files.readlink(f"{at}/link") == "b"
        assert files.normalize(f"{at}/./b") == f"{at}/b"
        files.remove(f"{at}/link")
        files.unlink(f"{at}/b")
        files.rmdir(at)
        assert not Path(at).exists()
        files.close()

    @pytest.mark.parametrize("count", [1, 250])
    def test_all_names_of_a_directory_come(
        self, tunnel: Tunnel, tmp_path: Path, count: int
    ) -> None:
        names = {f"naïve {n}" for n in range(count)}
        for name in names:
            (tmp_path / name).touch()
        tunnel.connect()
        with tunnel.session.client.open_sftp() as files:
            assert set(files.listdir(str(tmp_path))) == names

    def test_what_is_missing_is_a_file_not_found(self, tunnel: Tunnel, tmp_path: Path) -> None:
        tunnel.connect()
        gone = str(tmp_path / "gone")
        with tunnel.session.client.open_sftp() as files:
            for call in (
                lambda: files.put(gone, str(tmp_path / "x")),
                lambda: files.get(gone, str(tmp_path / "x")),
                lambda: files.stat(gone),
                lambda: files.listdir(gone),
                lambda: files.remove(gone),
                lambda: files.open(gone),
                lambda: files.put(__file__, f"{gone}/x"),
            ):
                with pytest.raises(FileNotFoundError):
                    call()
            assert files.normalize("/") == "/"  # it goes on
        assert not (tmp_path / "x").exists()

    def test_an_error_of_the_callback_leaves_a_session_that_works(
        self, tunnel: Tunnel, tmp_path: Path
    ) -> None:
        big = tmp_path / "big"
        big.write_bytes(b"x" * 5_000_000)

        def stop(done: int, total: int) -> None:
            raise RuntimeError("enough")

        tunnel.connect()
        with tunnel.session.client.open_sftp() as files:
            with pytest.raises(RuntimeError, match="enough"):
                files.put(str(big), str(tmp_path / "there"), callback=stop)
            with pytest.raises(RuntimeError, match="enough"):
                files.get(str(big), str(tmp_path / "back"), callback=stop)
            assert files.stat(str(big)).st_size == 5_000_000

    def test_one_that_is_left_to_the_collector_gives_its_session_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with temporary_sshd("MaxSessions 2\n") as strict:
            monkeypatch.setenv("PATH", strict.environment["PATH"])
            tunnel = run.SSHTunnel(host=ALIAS, user=strict.user, job_dir="/x")
            tunnel.connect()
            for _ in range(5):
                tunnel.session.client.open_sftp().stat("/")
                gc.collect()
            assert tunnel.run("echo still", timeout=60).stdout == "still\n"

    def test_a_server_without_the_service_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with temporary_sshd() as bare:
            config = bare.etc / "sshd_config"
            config.write_text(config.read_text().replace("Subsystem sftp internal-sftp\n", ""))
            bare.kill()
            bare.restart()
            monkeypatch.setenv("PATH", bare.environment["PATH"])
            tunnel = run.SSHTunnel(host=ALIAS, user=bare.user, job_dir="/x")
            tunnel.connect()
            with pytest.raises(BackendError, match=r"no sftp.*put\(\) and get\(\)"):
                tunnel.session.client.open_sftp()
            assert tunnel.run("echo fine").ok

    def test_a_connection_that_breaks_is_said(self, sshd: Sshd, tmp_path: Path) -> None:
        tunnel = run.SSHTunnel(host=ALIAS, user=sshd.user, job_dir="/x")
        tunnel.connect()
        files = tunnel.session.client.open_sftp()
        sshd.drop_connections()
        with pytest.raises(ConnectionLostError, match="sftp"):
            files.stat("/")
        files.close()
        with tunnel.session.client.open_sftp() as again:
            assert again.stat("/").st_mode


class TestWatchers:
    @pytest.mark.parametrize("pty", [False, True])
    def test_a_question_is_answered(self, tunnel: Tunnel, pty: bool) -> None:
        done = tunnel.run(ASKS, watchers=[Password()], pty=pty, timeout=60)
        assert done.ok
        assert "Password: " in done.stdout
        assert "got <open sesame>" in done.stdout

    @pytest.mark.parametrize("pty", [False, True])
    def test_a_responder_of_invoke_answers_every_time(self, tunnel: Tunnel, pty: bool) -> None:
        asks = "for n in 1 2 3; do printf '%s? ' $n; read -r word; echo \"<$word>\"; done"
        yes = invoke.Responder(pattern=r"\d\? ", response="yes\n")
        done = tunnel.run(asks, watchers=[yes], pty=pty, timeout=60)
        assert done.stdout.count("<yes>") == 3

    def test_questions_on_stderr_are_heard(self, tunnel: Tunnel) -> None:
        done = tunnel.run(f"({ASKS}) >&2", watchers=[Password()], timeout=60)
        assert "got <open sesame>" in done.stderr

    def test_one_that_only_looks_sees_all_so_far(self, tunnel: Tunnel) -> None:
        seen: list[str] = []

        class Looks(invoke.StreamWatcher):
            def submit(self, stream: str) -> list[str]:
                seen.append(stream)
                return []

        tunnel.run("echo one; sleep 0.5; echo two", watchers=[Looks()], pty=True, hide=True)
        assert [text.replace("\r", "") for text in seen] == ["one\n", "one\ntwo\n"]

    def test_one_that_gives_up_ends_the_command(self, tunnel: Tunnel) -> None:
        sorry = invoke.FailingResponder("word: ", "wrong\n", "Sorry")
        asks = "printf 'word: '; read -r word; echo Sorry; sleep 60"
        with pytest.raises(invoke.Failure) as caught:
            tunnel.run(asks, watchers=[sorry], timeout=50)
        assert isinstance(caught.value, CommandFailedError)
        assert isinstance(caught.value.reason, invoke.ResponseNotAccepted)

    @pytest.mark.parametrize("pty", [False, True])
    def test_an_error_of_a_watcher_is_raised(self, tunnel: Tunnel, pty: bool) -> None:
        class Breaks(invoke.StreamWatcher):
            def submit(self, stream: str) -> list[str]:
                raise KeyError("oh")

        with pytest.raises(KeyError, match="oh"):
            tunnel.run("echo x; sleep 60", watchers=[Breaks()], pty=pty, timeout=50)


class TestTerminal:
    def test_a_command_has_one_if_wanted(self, tunnel: Tunnel) -> None:
        asks = "if [ -t 0 ] && [ -t 1 ]; then echo terminal; else echo pipe; fi; echo err >&2"
        assert tunnel.run(asks, pty=True).stdout.split() == ["terminal", "err"]
        assert tunnel.run(asks, pty=True).stderr == ""
        assert tunnel.run(asks).stdout == "pipe\n"

    def test_its_exit_code_and_output_are_kept_and_shown(
        self, tunnel: Tunnel, capsys: pytest.CaptureFixture[str]
    ) -> None:
        done = tunnel.run("echo seen; exit 6", pty=True, hide=False, warn=True)
        assert (done.exited, done.pty, done.stdout) == (6, True, "seen\r\n")
        assert capsys.readouterr().out == "seen\r\n"
        tunnel.run("echo hidden", pty=True, hide=True)
        assert capsys.readouterr() == ("", "")

    def test_input_reaches_it(self, tunnel: Tunnel) -> None:
        done = tunnel.run("stty -echo; cat; echo end", pty=True, input="a\nb\n", timeout=60)
        assert done.stdout.replace("\r", "").endswith("a\nb\nend\n")

    def test_it_may_take_too_long(self, tunnel: Tunnel) -> None:
        with pytest.raises(invoke.CommandTimedOut) as caught:
            tunnel.run("sleep 60", pty=True, timeout=0.5)
        assert isinstance(caught.value, ConnectionLostError)

    def test_a_process_left_in_the_background_is_not_waited_for(self, tunnel: Tunnel) -> None:
        done = tunnel.run("trap '' HUP; sleep 120 & echo here", pty=True, timeout=60)
        assert done.stdout.split()[-1] == "here"


class TestWords:
    def test_variables(self, tunnel: Tunnel) -> None:
        env = {"WORD": "it's $HOME", "N": "2"}
        assert tunnel.run('echo "$WORD|$N"', env=env).stdout == "it's $HOME|2\n"
        assert tunnel.run('test -n "$PATH"', env=env).ok

    def test_a_file_to_read_from(self, tunnel: Tunnel) -> None:
        assert tunnel.run("cat", in_stream=io.StringIO("text\n")).stdout == "text\n"
        assert tunnel.run("cat", in_stream=io.BytesIO(b"bytes\n")).stdout == "bytes\n"
        assert tunnel.run("cat", in_stream=False).stdout == ""

    def test_the_command_is_shown(self, tunnel: Tunnel, capsys: pytest.CaptureFixture[str]) -> None:
        tunnel.run("echo out", echo=True, hide=True)
        shown = capsys.readouterr().out
        assert "echo out" in shown
        assert shown.count("out") == 1

    def test_it_may_be_shown_only(self, tunnel: Tunnel, tmp_path: Path) -> None:
        assert tunnel.run(f"touch {tmp_path}/made", dry=True).ok
        assert not (tmp_path / "made").exists()

    def test_output_of_another_encoding(self, tunnel: Tunnel) -> None:
        assert tunnel.run(r"printf 'na\357ve'", encoding="latin-1").stdout == "naïve"

    def test_output_goes_where_it_is_wanted(
        self, tunnel: Tunnel, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out, err = io.StringIO(), io.StringIO()
        tunnel.run("echo o; echo e >&2", hide=True, out_stream=out, err_stream=err)
        assert (out.getvalue(), err.getvalue()) == ("o\n", "e\n")
        assert capsys.readouterr() == ("", "")

    def test_a_failure_is_invokes_as_well(self, tunnel: Tunnel) -> None:
        with pytest.raises(invoke.UnexpectedExit) as caught:
            tunnel.run("echo out; echo err >&2; exit 3")
        assert isinstance(caught.value, CommandFailedError)
        assert caught.value.result.exited == 3
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.result) == (str(caught.value), caught.value.result)

    def test_a_result_has_what_invokes_has(self, tunnel: Tunnel) -> None:
        done = tunnel.run("seq 20", env={"A": "b"}, hide="out")
        assert done.tail("stdout", 2).split() == ["19", "20"]
        assert (done.encoding, done.pty, done.hide) == ("utf-8", False, ("stdout",))
        assert dict(done.env) == {"A": "b"}


@dataclass(frozen=True)
class Answer:
    """How a command ended, of a class that a program has made."""

    command: str
    stdout: str
    stderr: str
    exited: int


class OwnSession:
    """A program's own connection, which can do nothing but run commands, and notes them."""

    def __init__(self) -> None:
        self.is_connected = True
        self.seen: list[str] = []

    def run(self, command: str, hide: bool = True, warn: bool = False, **more: Any) -> Answer:
        self.seen.append(command)
        done = subprocess.run(
            ["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return Answer(command, done.stdout, done.stderr, done.returncode)

    def close(self) -> None:
        self.is_connected = False


class OwnSessionWithFiles(OwnSession):
    """One that moves files, too, as Fabric's does."""

    def put(self, local: str, remote: str) -> None:
        self.seen.append("put")
        Path(remote).write_bytes(Path(local).read_bytes())

    def get(self, remote: str, local: str) -> None:
        self.seen.append("get")
        Path(local).write_bytes(Path(remote).read_bytes())


class OwnTunnel(run.SSHTunnel):
    """Leads to a place that OpenSSH cannot reach, in the way of the team."""

    kind: type[OwnSession] = OwnSession

    def connect(self) -> None:
        self.session = self.kind()


class OwnTunnelWithFiles(OwnTunnel):
    kind = OwnSessionWithFiles


@pytest.mark.parametrize("kind", [OwnTunnel, OwnTunnelWithFiles])
class TestOwnSession:
    @pytest.fixture
    def own(self, kind: type[OwnTunnel], tmp_path: Path) -> OwnTunnel:
        return kind(host="nowhere.invalid", user="me", job_dir=str(tmp_path / "there"))

    def test_commands_go_by_it(self, own: OwnTunnel) -> None:
        own.pre_command = "word=set"
        done = own.run("echo $word; exit 2", warn=True)
        assert (done.stdout, done.exited) == ("set\n", 2)
        assert own.session.seen == ["word=set && echo $word; exit 2"]
        with pytest.raises(CommandFailedError, match="exit code 2"):
            own.run("exit 2")

    def test_one_that_was_closed_is_made_anew(self, own: OwnTunnel) -> None:
        own.run("true")
        own.session.close()
        assert own.run("echo again").stdout == "again\n"
        own.cleanup()
        assert own.session is None
        assert own.run("echo once more").stdout == "once more\n"

    def test_input_reaches_commands(self, own: OwnTunnel) -> None:
        data = bytes(range(256)) * 1000
        said = own.run("sha256sum", input=data).stdout
        assert hashlib.sha256(data).hexdigest() in said
        names = set(re.findall("/tmp/nemo_run-[0-9a-f]{32}", "\n".join(own.session.seen)))
        assert names
        assert not any(Path(name).exists() for name in names)

    @pytest.mark.parametrize("size", [0, 1, 200_000])
    def test_files_go_there_and_back(self, own: OwnTunnel, tmp_path: Path, size: int) -> None:
        here, there, back = tmp_path / "it's here", tmp_path / "a b" / "there", tmp_path / "back"
        here.write_bytes(b"\0x" * (size // 2) + b"x" * (size % 2))
        here.chmod(0o640)
        own.put(str(here), str(there))
        own.get(str(there), str(back))

        assert there.read_bytes() == back.read_bytes() == here.read_bytes()
        assert there.stat().st_mode & 0o777 == 0o640
        assert [path.name for path in there.parent.iterdir()] == ["there"]
        if size:
            assert ("put" in own.session.seen) is isinstance(own.session, OwnSessionWithFiles)

    def test_directories_go_there_and_back(self, own: OwnTunnel, tmp_path: Path) -> None:
        (tmp_path / "tree" / "deep").mkdir(parents=True)
        (tmp_path / "tree" / "deep" / "file").write_text("x")
        own.put(str(tmp_path / "tree"), str(tmp_path / "far"))
        own.get(str(tmp_path / "far"), str(tmp_path / "back"))
        assert (tmp_path / "far" / "deep" / "file").read_text() == "x"
        assert (tmp_path / "back" / "deep" / "file").read_text() == "x"

    def test_what_is_missing_is_a_file_not_found(self, own: OwnTunnel, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="gone"):
            own.put(str(tmp_path / "gone"), "/x")
        with pytest.raises(FileNotFoundError, match="gone"):
            own.get(str(tmp_path / "gone"), str(tmp_path / "back"))

    def test_files_are_written_read_and_followed(self, own: OwnTunnel, tmp_path: Path) -> None:
        there = str(tmp_path / "deep" / "file")
        assert own.read(there) == b""
        own.write(there, b"0123456789")
        assert Path(there).stat().st_mode & 0o777 == 0o600
        assert own.read(there, 3, 4) == b"3456"
        over = threading.Event()
        blocks = own.follow(there, offset=5, ended=over.is_set)
        assert next(blocks) == b"56789"
        with Path(there).open("ab") as file:
            file.write(b"more")
        over.set()
        assert b"".join(blocks) == b"more"

    def test_a_stream_is_sent_to_a_command(self, own: OwnTunnel, tmp_path: Path) -> None:
        own.send(["sh", "-c", 'cat > "$0"', str(tmp_path / "there")], io.BytesIO(b"x" * 100_000))
        assert (tmp_path / "there").read_bytes() == b"x" * 100_000

    def test_trouble_of_it_is_no_failure_of_a_command(self, own: OwnTunnel) -> None:
        own.run("true")

        def broken(*_: Any, **__: Any) -> None:
            raise EOFError("gone")

        own.session.run = broken
        with pytest.raises(ConnectionLostError, match="EOFError: gone"):
            own.run("true")


def test_jobs_are_launched_by_a_session_of_the_programs_own(
    bare_slurm: Any, tmp_path: Path
) -> None:
    """In a process of its own, in which plain tunnels have been used before."""
    script = tmp_path / "launch.py"
    script.write_text(
        f"""
import subprocess, sys
import nemo_run as run

class Session:
    is_connected = True
    seen = []
    def run(self, command, hide=True, warn=False, **more):
        self.seen.append(command)
        done = subprocess.run(["ssh", {ALIAS!r}, command], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        return run.core.tunnel.client.RunResult(command, done.stdout, done.stderr, done.returncode)

class Team(run.SSHTunnel):
    def connect(self):
        self.session = Session()

def tunnel(kind):
    return kind(host={ALIAS!r}, user={bare_slurm.sshd.user!r}, job_dir={str(tmp_path / "jobs")!r})

def go(kind, name):
    executor = run.SlurmExecutor(account="root", time="00:05:00", mem="100M",
                                 tunnel=tunnel(kind), packager=run.Packager())
    with run.Experiment(name, executor=executor) as exp:
        exp.add(run.Script(inline="echo done by $SLURM_JOB_ID"), name="job")
        exp.run()
    return [job.state.name for job in exp.jobs]

if __name__ == "__main__":
    assert go(run.SSHTunnel, "plain") == ["SUCCEEDED"]
    assert not Session.seen
    assert go(Team, "own") == ["SUCCEEDED"]
    assert any("submit /" in command for command in Session.seen)
    assert any("squeue" in command for command in Session.seen)
    print("all done")
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=250, check=False
    )
    assert "all done" in done.stdout, done.stdout + done.stderr
