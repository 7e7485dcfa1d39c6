"""One connection for all, found again when it is lost, and never to a machine we do not know."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar

import pytest
from tests import patience
from tests.integration.slurm.chaos import ChaosProxy
from tests.integration.slurm.daemons import free_ports, is_listening, wait_until
from tests.integration.slurm.sshd import ALIAS, Sshd, temporary_sshd

import nemo_run as run
from nemo_run.core.tunnel.client import SSHTunnel
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    ConnectionLostError,
    SubmitError,
)

pytestmark = pytest.mark.slow


def tunnel_to(sshd: Sshd, *, port: int | None = None, host: str = ALIAS) -> SSHTunnel:
    identity = str(sshd.identity) if host != ALIAS else None
    return SSHTunnel(host=host, user=sshd.user, job_dir="/nowhere", port=port, identity=identity)


def add_to_config(sshd: Sshd, lines: str) -> None:
    """Put settings in front of all others, where ssh heeds them."""
    sshd.ssh_config.write_text(lines + sshd.ssh_config.read_text())


def while_running(
    tunnel: SSHTunnel, tmp_path: Path, then: Callable[[], None], body: str = "sleep 60"
) -> BaseException:
    """Do something while a command runs; return what the command raised."""
    started = tmp_path / "started"
    raised: list[BaseException] = []

    def command() -> None:
        try:
            tunnel.run(f"touch {started}; {body}; touch {tmp_path}/ended")
        except BackendUnavailableError as err:
            raised.append(err)

    thread = threading.Thread(target=command)
    thread.start()
    wait_until(started.exists, "the start of the command")
    then()
    thread.join(patience.seconds(60))
    assert not thread.is_alive(), "the command is still waited for"
    assert not (tmp_path / "ended").exists()
    (error,) = raised
    return error


def echo(request: tuple[str, str, int]) -> str:
    host, user, n = request
    return SSHTunnel(host=host, user=user, job_dir="/nowhere").run(f"echo {n}").stdout


class AsksWhetherConnected(run.Packager):
    """Has nothing to send, but waits until there is a way to send it."""

    connected: ClassVar[Callable[[], bool]]

    def package(self, path: Path, job_dir: str, name: str) -> str | None:
        wait_until(type(self).connected, "connection before there is something to send")
        return super().package(path, job_dir, name)


class TestOneConnection:
    def test_fifty_commands_of_eight_threads_share_one(self, sshd: Sshd) -> None:
        requests = [(ALIAS, sshd.user, n) for n in range(50)]
        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(echo, requests))

        assert said == [f"{n}\n" for n in range(50)]
        assert (sshd.connections(), sshd.commands()) == (1, 50)

    def test_processes_share_one(self, sshd: Sshd) -> None:
        requests = [(ALIAS, sshd.user, n) for n in range(12)]
        with get_context("spawn").Pool(4) as pool:
            said = pool.map(echo, requests, chunksize=1)

        assert said == [f"{n}\n" for n in range(12)]
        assert (sshd.connections(), sshd.commands()) == (1, 12)

    def test_a_forked_process_uses_it_while_threads_of_its_parent_do(self, sshd: Sshd) -> None:
        tunnel = tunnel_to(sshd)
        tunnel.connect()
        over = threading.Event()

        def keep_busy() -> None:
            while not over.is_set():
                tunnel.run("true")

        threads = [threading.Thread(target=keep_busy) for _ in range(4)]
        for thread in threads:
            thread.start()
        codes = []
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if tunnel.run("echo child").stdout == "child\n" else 1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        over.set()
        for thread in threads:
            thread.join()

        assert codes == [0] * 5
        assert tunnel.run("echo parent").stdout == "parent\n"
        assert sshd.connections() == 1

    def test_a_tunnel_by_another_name_has_its_own(self, sshd: Sshd) -> None:
        tunnel_to(sshd).run("true")
        tunnel_to(sshd, host=sshd.host, port=sshd.port).run("true")
        assert sshd.connections() == 2

    def test_more_commands_than_the_server_allows_at_a_time_wait_for_each_other(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with temporary_sshd("MaxSessions 2\n") as strict:
            monkeypatch.setenv("PATH", strict.environment["PATH"])
            with ThreadPoolExecutor(6) as pool:
                said = list(pool.map(echo, [(ALIAS, strict.user, n) for n in range(12)]))
            assert said == [f"{n}\n" for n in range(12)]
            assert strict.connections() == 1

    def test_it_is_made_while_jobs_are_prepared(self, sshd: Sshd, tmp_path: Path) -> None:
        AsksWhetherConnected.connected = lambda: sshd.connections() == 1
        tunnel = SSHTunnel(host=ALIAS, user=sshd.user, job_dir=str(tmp_path / "there"))
        executor = run.SlurmExecutor(account="root", tunnel=tunnel, packager=AsksWhetherConnected())
        with (
            pytest.raises(SubmitError),  # there is no Slurm behind this server
            run.Experiment("two", executor=executor, clean_mode=True) as exp,
        ):
            for name in "ab":
                exp.add(run.Script(inline="true"), name=name)
            exp.run()
        assert sshd.connections() == 1

    def test_it_is_not_made_ahead_where_somebody_may_be_asked_something(
        self, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tunnel = tunnel_to(sshd)
        with monkeypatch.context() as patch:
            patch.setenv("SSH_ASKPASS", "/bin/false")
            patch.setenv("SSH_ASKPASS_REQUIRE", "force")
            tunnel.connect_unasked()
            assert sshd.connections() == 0
        tunnel.connect_unasked()
        assert sshd.connections() == 1

    def test_the_socket_is_for_its_owner_only(self, sshd: Sshd) -> None:
        tunnel_to(sshd).run("true")
        directory = Path(f"/tmp/nemo_run-{os.getuid()}/ssh")
        assert directory.stat().st_mode & 0o777 == 0o700

    def test_cleaning_up_closes_it_unless_somebody_uses_it(
        self, sshd: Sshd, tmp_path: Path
    ) -> None:
        tunnel = tunnel_to(sshd)
        ended: list[str] = []
        slow = threading.Thread(
            target=lambda: ended.append(tunnel.run(f"touch {tmp_path}/on; sleep 1; echo x").stdout)
        )
        slow.start()
        wait_until((tmp_path / "on").exists, "the start of the command")
        tunnel.cleanup()
        slow.join()
        assert ended == ["x\n"]
        assert tunnel.run("echo same").stdout == "same\n"
        assert sshd.connections() == 1

        tunnel.cleanup()
        assert tunnel.run("echo new").stdout == "new\n"
        assert sshd.connections() == 2


class TestLost:
    def test_a_command_under_way_may_have_run(self, sshd: Sshd, tmp_path: Path) -> None:
        tunnel = tunnel_to(sshd)
        error = while_running(tunnel, tmp_path, sshd.kill)
        assert isinstance(error, ConnectionLostError)
        assert "may have run" in str(error)

    def test_an_exit_code_that_came_without_the_output_is_not_taken_for_success(
        self, sshd: Sshd, proxy: ChaosProxy, tmp_path: Path
    ) -> None:
        tunnel = tunnel_to(sshd, port=proxy.port)
        tunnel.connect()
        early = "(sleep 60; echo late) & exit 0"

        def cut_once_the_code_is_here() -> None:
            time.sleep(1)
            proxy.cut()

        error = while_running(tunnel, tmp_path, cut_once_the_code_is_here, early)
        assert isinstance(error, ConnectionLostError)

    def test_a_command_that_finds_no_server_was_not_run(self, sshd: Sshd) -> None:
        tunnel = tunnel_to(sshd)
        tunnel.run("true")
        with sshd.down():
            with pytest.raises(BackendUnavailableError, match="cannot be reached") as caught:
                tunnel.run("true")
            assert not isinstance(caught.value, ConnectionLostError)
        assert tunnel.run("echo back").stdout == "back\n"

    def test_the_next_command_connects_again(self, sshd: Sshd) -> None:
        tunnel = tunnel_to(sshd)
        for n in range(3):
            assert tunnel.run(f"echo {n}").stdout == f"{n}\n"
            sshd.drop_connections()
        assert sshd.connections() == 3

    def test_a_connection_whose_process_was_killed_is_replaced(self, sshd: Sshd) -> None:
        tunnel = tunnel_to(sshd)
        tunnel.run("true")
        pid = tunnel.session.connection.master_pid()
        assert pid is not None
        os.kill(pid, 9)
        assert tunnel.run("echo x").stdout == "x\n"
        assert sshd.connections() == 2

    def test_threads_do_not_wait_for_a_lost_server_one_after_the_other(
        self, sshd: Sshd, proxy: ChaosProxy
    ) -> None:
        add_to_config(sshd, "ConnectTimeout 2\n")
        proxy.frozen = True
        tunnel = tunnel_to(sshd, port=proxy.port)

        def outcome(_: int) -> type[BaseException]:
            try:
                tunnel.run("true")
            except BackendUnavailableError as err:
                return type(err)
            raise AssertionError("it was reached")

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(outcome, range(8))) == {BackendUnavailableError}
        assert proxy.connections == 1

    def test_a_cut_is_noticed_at_once(self, sshd: Sshd, proxy: ChaosProxy, tmp_path: Path) -> None:
        tunnel = tunnel_to(sshd, port=proxy.port)
        begin = time.monotonic()
        error = while_running(tunnel, tmp_path, proxy.cut)
        assert isinstance(error, ConnectionLostError)
        assert time.monotonic() - begin < patience.seconds(20)
        assert tunnel.run("echo again").stdout == "again\n"

    def test_silence_is_noticed_by_keep_alive_messages(
        self, sshd: Sshd, proxy: ChaosProxy, tmp_path: Path
    ) -> None:
        add_to_config(sshd, "ServerAliveInterval 1\nServerAliveCountMax 1\n")
        tunnel = tunnel_to(sshd, port=proxy.port)

        def freeze() -> None:
            proxy.frozen = True

        assert isinstance(while_running(tunnel, tmp_path, freeze), ConnectionLostError)
        proxy.frozen = False
        assert tunnel.run("echo thawed").stdout == "thawed\n"

    def test_a_refusal_is_not_a_failed_command(self, sshd: Sshd, proxy: ChaosProxy) -> None:
        tunnel = tunnel_to(sshd, port=proxy.port)
        with proxy.outage(), pytest.raises(BackendUnavailableError, match="Connection refused"):
            tunnel.run("true", warn=True)
        assert tunnel.run("true", warn=True).ok


class TestKeys:
    def test_a_key_that_is_not_let_in(self, sshd: Sshd, tmp_path: Path) -> None:
        other = tmp_path / "other"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True
        )
        tunnel = tunnel_to(sshd, host=sshd.host, port=sshd.port)
        tunnel.identity = str(other)
        with pytest.raises(AuthenticationError, match=r"does not let us in.*Permission denied"):
            tunnel.run("true")

    def test_an_unknown_host_is_not_trusted_and_the_way_to_change_that_works(
        self, sshd: Sshd
    ) -> None:
        sshd.known_hosts.write_text("")
        tunnel = tunnel_to(sshd)
        with pytest.raises(AuthenticationError, match="is unknown") as caught:
            tunnel.run("true")
        assert sshd.connections() == 0

        advice = re.search(r"ssh-keyscan .*", str(caught.value))
        assert advice is not None
        subprocess.run(advice[0], shell=True, check=True, stderr=subprocess.DEVNULL)
        assert tunnel.run("echo known").stdout == "known\n"

    def test_a_host_that_changed_is_not_trusted_and_the_way_to_change_that_works(
        self, sshd: Sshd
    ) -> None:
        tunnel = tunnel_to(sshd)
        tunnel.run("true")
        sshd.change_host_key()
        with pytest.raises(AuthenticationError, match="not the machine it was") as caught:
            tunnel.run("true")

        advice = re.search(r"ssh-keygen -R [^;]*", str(caught.value))
        assert advice is not None
        subprocess.run(advice[0], shell=True, check=True, capture_output=True)
        with pytest.raises(AuthenticationError, match="is unknown"):
            tunnel.run("true")

    def test_a_question_can_be_answered_at_a_terminal(self, sshd: Sshd) -> None:
        change = ["ssh-keygen", "-q", "-p", "-N", "open sesame", "-f", str(sshd.identity)]
        subprocess.run(change, check=True, stdout=subprocess.DEVNULL)
        with pytest.raises(AuthenticationError):
            tunnel_to(sshd).run("true")

        script = (
            "import nemo_run as run; "
            f"t = run.SSHTunnel(host={ALIAS!r}, user={sshd.user!r}, job_dir='/x'); "
            "print(t.run('echo let in').stdout)"
        )
        said = at_terminal([sys.executable, "-c", script], {b"passphrase": b"open sesame\n"})
        assert b"let in" in said
        assert b"sesame" not in said

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can change how people log in")
    def test_a_second_factor_is_asked_for_once(self, sshd: Sshd) -> None:
        script = (
            "import nemo_run as run; "
            f"ways = [run.SSHTunnel(host={ALIAS!r}, user={sshd.user!r}, job_dir=d) for d in 'ab']; "
            "print([way.run('echo let in').stdout for way in ways for _ in range(3)])"
        )
        with sshd.asking_for("314159"):
            with pytest.raises(AuthenticationError, match="Permission denied"):
                tunnel_to(sshd).run("true")
            said = at_terminal([sys.executable, "-c", script], {b"assword:": b"314159\n"})
        assert said.count(b"let in") == 6
        assert sshd.connections() == 1

    def test_an_agent_answers_in_place_of_the_user(
        self, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        address = tmp_path / "agent"
        with subprocess.Popen(
            ["ssh-agent", "-D", "-a", str(address)], stdout=subprocess.DEVNULL
        ) as agent:
            try:
                wait_until(address.exists, "the agent")
                monkeypatch.setenv("SSH_AUTH_SOCK", str(address))
                for program in (
                    ["ssh-add", "-q", str(sshd.identity)],
                    ["ssh-keygen", "-q", "-p", "-N", "open sesame", "-f", str(sshd.identity)],
                ):
                    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
                assert tunnel_to(sshd).run("echo let in").stdout == "let in\n"
            finally:
                agent.kill()
        # By the agent, and not by the key itself.
        sshd.drop_connections()
        with pytest.raises(AuthenticationError):
            tunnel_to(sshd).run("true")


def at_terminal(argv: list[str], answers: dict[bytes, bytes]) -> bytes:
    """Run a program on a terminal of its own, answer what it asks, return all that it showed."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(argv[0], argv)
    said = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # how Linux says that nobody is at the other end any more
            break
        if not data:
            break
        said += data
        for question, answer in list(answers.items()):
            if question in said:
                os.write(terminal, answers.pop(question))
                assert answer
    os.close(terminal)
    os.waitpid(pid, 0)
    return said


class TestUsersConfig:
    def test_a_jump_host_is_used(self, sshd: Sshd) -> None:
        add_to_config(
            sshd,
            f"Host inner\n  HostName {sshd.host}\n  Port {sshd.port}\n  ProxyJump {ALIAS}\n"
            f"  IdentityFile {sshd.identity}\n",
        )
        assert tunnel_to(sshd, host="inner").run("echo far").stdout == "far\n"
        assert sshd.connections() == 2

    def test_a_connection_that_the_user_shares_is_used_and_left_alone(
        self, sshd: Sshd, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        add_to_config(sshd, f"ControlPath {sshd.directory}/cm-%C\n")
        mine = ["ssh", "-fNM", "-o", "ControlPersist=60", ALIAS]
        subprocess.run(mine, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        tunnel = tunnel_to(sshd)

        assert tunnel.run("echo shared").stdout == "shared\n"
        tunnel.cleanup()
        assert tunnel.run("echo still").stdout == "still\n"
        assert sshd.connections() == 1

    def test_forwardings_and_commands_of_the_user_stay_out_of_the_way(self, sshd: Sshd) -> None:
        add_to_config(sshd, f"LocalForward {sshd.port} localhost:1\nRequestTTY force\n")
        add_to_config(sshd, "RemoteCommand echo wrong\nExitOnForwardFailure yes\n")
        assert tunnel_to(sshd).run("echo right").stdout == "right\n"

    def test_a_config_that_is_none_is_said(self, sshd: Sshd) -> None:
        add_to_config(sshd, "Nonsense yes\n")
        with pytest.raises(ConfigError, match=r"(?i)nonsense"):
            tunnel_to(sshd).run("true")

    def test_a_missing_program_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ConfigError, match="no program 'ssh'"):
            SSHTunnel(host="h", user="u", job_dir="/x").connect()


class TestForwarding:
    def test_a_port_here_leads_to_one_there_while_it_is_wanted(self, sshd: Sshd) -> None:
        (port,) = free_ports(1)
        with (
            tunnel_to(sshd).forward(sshd.host, sshd.port, local_port=port),
            socket.create_connection(("127.0.0.1", port), timeout=10) as way,
        ):
            assert way.recv(4) == b"SSH-"
        wait_until(lambda: not is_listening(port), "the end of forwarding")

    def test_a_port_that_is_taken_is_said(self, sshd: Sshd) -> None:
        tunnel = tunnel_to(sshd)
        with (
            pytest.raises(BackendError, match=f"Port {sshd.port} of this machine"),
            tunnel.forward("localhost", 1, local_port=sshd.port),
        ):
            raise AssertionError("it was not refused")


def test_what_is_put_before_commands_is_run_in_the_same_shell(sshd: Sshd) -> None:
    tunnel = tunnel_to(sshd)
    tunnel.pre_command = "export WORD=set"
    assert tunnel.run("echo $WORD").stdout == "set\n"
    tunnel.pre_command = "false"
    assert tunnel.run("echo no", warn=True).stdout == ""


@pytest.mark.parametrize("kind", ["SSHTunnel", "LocalTunnel"])
def test_a_command_can_talk_to_the_user_at_a_terminal(sshd: Sshd, kind: str) -> None:
    where = f"host={ALIAS!r}, user={sshd.user!r}, " if kind == "SSHTunnel" else ""
    script = (
        "import nemo_run as run; "
        f"t = run.{kind}({where}job_dir='/x'); "
        "r = t.run('echo who; read name; echo hello $name; tty; exit 4', "
        "pty=True, hide=False, warn=True); "
        "print('ended', r.exited, 'hello me' in r.stdout)"
    )
    said = at_terminal([sys.executable, "-c", script], {b"who": b"me\n"})
    assert b"hello me" in said
    assert b"/dev/" in said
    assert b"ended 4 True" in said


def test_keys_are_for_the_command_at_the_terminal_and_ours_again_afterwards(sshd: Sshd) -> None:
    script = (
        "import nemo_run as run; "
        f"t = run.SSHTunnel(host={ALIAS!r}, user={sshd.user!r}, job_dir='/x'); "
        "asks = 'trap \"echo caught; exit 7\" INT; echo go; while :; do sleep 0.1; done'; "
        "r = t.run(asks, pty=True, hide=False, warn=True); "
        "print('ended', r.exited); print('then', input('next? '))"
    )
    answers = {b"go\r\n": b"\x03", b"next? ": b"typed\n"}
    said = at_terminal([sys.executable, "-c", script], answers)
    assert b"caught" in said
    assert b"ended 7" in said
    assert b"then typed" in said


def test_what_login_shells_print_by_themselves_is_not_taken_for_a_file(
    sshd: Sshd, tmp_path: Path
) -> None:
    (sshd.home / ".bashrc").write_text("echo Welcome to the machine\n")
    tunnel = tunnel_to(sshd)
    there = tmp_path / "file"
    tunnel.write(str(there), "content")
    assert tunnel.run("true").stdout == "Welcome to the machine\n"

    assert tunnel.read(str(there)) == b"content"
    tunnel.get(str(there), str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "content"
    assert b"".join(tunnel.follow(str(there), ended=lambda: True)) == b"content"


LOOK_FOR_STDIN_IN_ARGUMENTS = """
import pathlib, sys
secret = sys.stdin.read().encode()
for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        if secret in process.read_bytes():
            print(process)
    except OSError:
        pass  # it has ended
"""


def test_what_goes_to_stdin_is_in_no_argument_on_this_machine(sshd: Sshd) -> None:
    look = [sys.executable, "-c", LOOK_FOR_STDIN_IN_ARGUMENTS]
    assert tunnel_to(sshd).run(look, input="s3cr3t-w0rd").stdout == ""
    assert tunnel_to(sshd).run([*look, "s3cr3t-w0rd"], input="s3cr3t-w0rd").stdout != ""
