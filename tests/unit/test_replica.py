"""Local replicas: real processes, started, inspected, cancelled, and killed at bad moments."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import patience

from nemo_run._backends.local import replica as local_replica
from nemo_run._backends.local import supervisor as local_supervisor
from nemo_run._backends.local.fork_server import supervise
from nemo_run._backends.local.spec import ReplicaSpec, SlotRequest
from nemo_run._backends.local.status import ReplicaStatus, inspect
from nemo_run._backends.local.supervisor import processes
from nemo_run._backends.local.supervisor.logs import LogClock
from nemo_run.exceptions import BackendUnavailableError, ConfigError, RecordError, SubmitError

LONG = "exec sleep 60"


def eventually(condition: Callable[[], Any], *, within_s: float = 60.0) -> Any:
    """Wait for a true value and return it."""
    deadline = patience.deadline(within_s)
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.003)
    return value


class Replica:
    """A replica in a directory of its own, seen from outside."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(self, *argv: str, **changes: Any) -> Replica:
        local_replica.start(self.directory, self.spec(*argv, **changes))
        return self

    def spec(self, *argv: str, **changes: Any) -> ReplicaSpec:
        env = {"PATH": os.environ["PATH"], **changes.pop("env", {})}
        changes = {"cwd": str(self.directory.parent), "backoff_s": 0.01, **changes}
        return ReplicaSpec(argv=argv, env=env, **changes)

    def sh(self, script: str, **changes: Any) -> Replica:
        return self.start("sh", "-c", script, **changes)

    @property
    def status(self) -> ReplicaStatus:
        return inspect(self.directory)

    def running(self) -> ReplicaStatus:
        eventually(lambda: self.status.state == "running")
        return self.status

    def pending(self, message: str) -> None:
        eventually(lambda: self.status.state == "pending" and message in self.status.message)

    def end(self) -> ReplicaStatus:
        eventually(lambda: self.status.is_final)
        eventually(lambda: not (self.directory / ".replica" / "spec").exists())
        return self.status

    @property
    def files(self) -> local_supervisor.Files:
        return local_supervisor.Files(str(self.directory))

    def kill_supervisor(self) -> None:
        status = self.files.status()
        assert status is not None
        kill(status.supervisor)

    def kill_keeper(self) -> None:
        attempt = self.files.last_attempt()
        assert attempt is not None
        kill(attempt.keeper)

    def log(self, name: str = "combined.log") -> str:
        return (self.directory / name).read_text()

    def rewrite_place(self, change: Callable[[list[str]], list[str]]) -> None:
        """As if all of it had happened in another place: boot, process ids, machine, name."""
        here = local_supervisor.here()
        there = " ".join(change(here.split(" ")))
        for file in (self.directory / ".replica").iterdir():
            # Whole, as ours are: a supervisor that lives may read it at any time.
            if here in (text := file.read_text()):
                other = self.directory / "rewritten"
                other.write_text(text.replace(here, there))
                other.rename(file)


def kill(process: local_supervisor.Process) -> None:
    process.send(signal.SIGKILL)
    eventually(lambda: not process.is_alive())


def lives(pid: int) -> bool:
    return local_supervisor.birth_of(pid) != ""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], Replica]]:
    made: list[Replica] = []

    def one() -> Replica:
        made.append(Replica(tmp_path / "role" / str(len(made))))
        return made[-1]

    (tmp_path / "role").mkdir()
    yield one
    for replica in made:
        try:
            local_replica.stop(replica.directory, grace_s=0)
        except (BackendUnavailableError, RecordError):
            continue  # made unreadable on purpose


@pytest.fixture
def replica(make: Callable[[], Replica]) -> Replica:
    return make()


# Running


def test_a_program_that_exits_with_zero_has_succeeded(replica: Replica) -> None:
    before = time.time()
    status = replica.sh("exit 0").end()
    assert (status.state, status.attempt, status.exit_code) == ("succeeded", 1, 0)
    assert status.started_at is not None
    assert status.ended_at is not None
    assert before - 0.1 <= status.started_at <= status.ended_at + 0.1 <= time.time() + 0.2


def test_an_exit_code_is_kept(replica: Replica) -> None:
    status = replica.sh("exit 42").end()
    assert (status.state, status.exit_code, status.message) == ("failed", 42, "exit code 42")


def test_a_signal_is_told_from_an_exit_code(replica: Replica) -> None:
    status = replica.sh("kill -9 $$").end()
    assert (status.state, status.exit_code) == ("failed", -9)
    assert status.message == "signal 9 (SIGKILL)"


def test_a_directory_that_nobody_started_is_unsubmitted(replica: Replica) -> None:
    assert replica.status == ReplicaStatus(state="unsubmitted")


def test_while_it_runs_its_pid_is_told(replica: Replica) -> None:
    status = replica.sh(LONG).running()
    assert status.pid is not None
    # It begins as the shell.
    eventually(lambda: Path(f"/proc/{status.pid}/comm").read_text() == "sleep\n")


def test_both_streams_are_in_one_file_in_order_and_are_found_under_every_name(
    replica: Replica,
) -> None:
    replica.sh("for i in 1 2 3; do echo out $i; echo err $i >&2; done").end()
    assert replica.log() == "".join(f"out {i}\nerr {i}\n" for i in (1, 2, 3))
    assert replica.log("stdout.log") == replica.log("stderr.log") == replica.log()


def test_streams_can_be_kept_separate(replica: Replica) -> None:
    replica.sh("echo out; echo err >&2", separate=True).end()
    assert (replica.log("stdout.log"), replica.log("stderr.log")) == ("out\n", "err\n")
    assert not (replica.directory / "combined.log").exists()


@pytest.mark.parametrize("text", ["a b", 'say "hi"', "$HOME", "x\ny", "naïve", "\udcff", "", "a=b"])
def test_arguments_and_environment_arrive_unchanged(replica: Replica, text: str) -> None:
    script = "import os, sys; print(ascii(sys.argv[1]), ascii(os.environ['TEXT']))"
    replica.start(sys.executable, "-I", "-S", "-c", script, text, env={"TEXT": text}).end()
    assert replica.log() == f"{text!a} {text!a}\n"


def test_the_environment_is_the_one_given_and_no_more(replica: Replica) -> None:
    replica.start("env", env={"MINE": "1"}).end()
    names = {line.partition("=")[0] for line in replica.log().splitlines()}
    assert names == {"PATH", "MINE", "NEMO_RUN_ATTEMPT", "NEMO_RUN_REPLICA"}


def test_the_program_starts_with_default_signals_no_descriptors_and_its_own_session(
    replica: Replica,
) -> None:
    script = (
        "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1], os.getsid(0) == "
        "os.getpid() == os.getpgrp(), os.read(0, 1), os.getcwd()); "
        "print(*[l for l in open('/proc/self/status') if l[:6] in ('SigBlk', 'SigIgn')])"
    )
    # With the launcher ignoring what it can, nothing of that may show.
    launcher = (
        "import signal; [signal.signal(s, signal.SIG_IGN) for s in "
        "(signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1)]; "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM]); "
        "import os; os.set_inheritable(os.open('/etc/passwd', os.O_RDONLY), True); "
    )
    python = "import signal; signal.signal(2, 0); signal.signal(13, 0); signal.signal(25, 0); "
    argv = (sys.executable, "-I", "-S", "-c", python + script)
    with launch(replica, *argv, prelude=launcher):
        pass
    assert replica.end().state == "succeeded"
    first, *signals = replica.log().splitlines()
    assert first == f"[0, 1, 2] True b'' {replica.directory.parent}"
    # 32 and 33 belong to the C library, which lets nobody change them.
    reserved = 1 << 31 | 1 << 32
    assert {int(line.split()[1], 16) & ~reserved for line in signals if line} == {0}


def launch(replica: Replica, *argv: str, prelude: str = "", after: str = "") -> Any:
    """Start a replica from another process."""
    code = f"{prelude}\n{launch_code(replica, *argv)}\n{after}"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def launch_code(replica: Replica, *argv: str) -> str:
    return (
        "from pathlib import Path\n"
        "from nemo_run._backends.local.replica import start\n"
        "from nemo_run._backends.local.spec import ReplicaSpec, SlotRequest\n"
        f"start(Path({str(replica.directory)!r}), {replica.spec(*argv)!r})"
    )


def test_the_task_outlives_a_launcher_that_is_killed(replica: Replica) -> None:
    after = "import time; print(flush=True); time.sleep(60)"
    with launch(replica, "sh", "-c", "sleep 0.2; exit 7", after=after) as launcher:
        launcher.stdout.readline()
        launcher.kill()
    assert replica.end().exit_code == 7


def test_nothing_is_left_for_the_launcher_to_reap(replica: Replica) -> None:
    replica.sh("exit 0").end()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


# Attempts


def test_a_failure_is_retried_and_each_attempt_is_announced_in_the_log(replica: Replica) -> None:
    script = "echo try $NEMO_RUN_ATTEMPT; printf half; test $NEMO_RUN_ATTEMPT = 3"
    status = replica.sh(script, retries=5).end()
    assert (status.state, status.attempt, status.exit_code) == ("succeeded", 3, 0)
    assert replica.log() == (
        "try 1\nhalf\n----- nemo_run: attempt 2 of 6 -----\n"
        "try 2\nhalf\n----- nemo_run: attempt 3 of 6 -----\ntry 3\nhalf"
    )


def test_the_last_failure_counts_when_no_retry_is_left(replica: Replica) -> None:
    status = replica.sh("exit $NEMO_RUN_ATTEMPT", retries=2).end()
    assert (status.state, status.attempt, status.exit_code) == ("failed", 3, 3)
    assert status.message == "exit code 3 in attempt 3 of 3"


def test_pauses_double_up_to_the_cap() -> None:
    spec = ReplicaSpec(argv=("x",), env={}, cwd="/", backoff_s=1, backoff_cap_s=5)
    pauses = [local_supervisor.Spec(spec.pack()).pause_before(n) for n in (1, 2, 3, 4, 5, 5000)]
    assert pauses == [0, 1, 2, 4, 5, 5]


def test_between_attempts_it_is_pending_and_says_why(replica: Replica) -> None:
    replica.sh("exit 3", retries=1, backoff_s=60)
    replica.pending("attempt 1 ended with exit code 3; the next one starts in")
    assert (replica.status.attempt, replica.status.exit_code, replica.status.pid) == (1, 3, None)


def test_a_program_that_cannot_be_executed_fails_like_in_a_shell(replica: Replica) -> None:
    script = replica.directory.parent / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert replica.start("./script").end().exit_code == 127
    assert "cannot run" in replica.log()


def test_the_time_limit_ends_an_attempt_for_good(replica: Replica) -> None:
    status = replica.sh(LONG, time_limit_s=0.2, retries=3).end()
    assert (status.state, status.attempt, status.exit_code) == ("failed", 1, -15)
    assert status.message == "time limit of 0.2 s reached"


def test_a_program_that_ignores_the_time_limit_is_killed_after_the_grace(replica: Replica) -> None:
    status = replica.sh("trap '' TERM; while :; do :; done", time_limit_s=0.1, grace_s=0.2).end()
    assert (status.state, status.exit_code) == ("failed", -9)
    assert status.message == "time limit of 0.1 s reached"


def test_what_a_failed_program_leaves_running_is_ended(replica: Replica) -> None:
    replica.sh("sleep 60 & echo $!; exit 1").end()
    assert not lives(int(replica.log()))


def test_what_a_successful_program_leaves_running_is_left_alone(replica: Replica) -> None:
    replica.sh("sleep 60 & echo $!").end()
    pid = int(replica.log())
    assert lives(pid)
    os.kill(pid, signal.SIGKILL)


# Starting


def test_starting_twice_runs_once(replica: Replica) -> None:
    replica.sh("echo ran")
    replica.sh("echo ran")
    replica.end()
    replica.sh("echo ran")
    assert replica.end().state == "succeeded"
    assert replica.log() == "ran\n"


def test_eight_processes_that_start_the_same_replica_run_it_once(replica: Replica) -> None:
    launchers = [launch(replica, "sh", "-c", "echo ran; sleep 0.3") for _ in range(8)]
    assert [launcher.wait() for launcher in launchers] == [0] * 8
    for launcher in launchers:
        launcher.stdout.close()
    replica.end()
    assert replica.log() == "ran\n"


def test_a_start_that_was_cut_off_can_be_repeated(replica: Replica) -> None:
    payload = replica.spec("sh", "-c", "echo ran").pack()
    (replica.directory / ".replica").mkdir(parents=True)
    assert "incomplete" in supervise(replica.directory, payload[:-20])
    assert replica.status.state == "unsubmitted"
    replica.sh("echo ran").end()
    assert replica.log() == "ran\n"


def test_a_program_that_does_not_exist_is_refused(replica: Replica) -> None:
    with pytest.raises(SubmitError, match=r"'no-such-program' cannot be run.*on PATH"):
        replica.start("no-such-program")
    with pytest.raises(SubmitError, match=r"'\./nothing' cannot be run"):
        replica.start("./nothing")
    assert replica.status.state == "unsubmitted"


def test_a_working_directory_that_does_not_exist_is_refused(replica: Replica) -> None:
    with pytest.raises(SubmitError, match="'/no/such' does not exist"):
        replica.sh("exit 0", cwd="/no/such")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SubmitError, match="Not a directory"):
        Replica(tmp_path / "file" / "0").sh("exit 0", cwd="/")


def test_a_directory_that_cannot_be_written_is_refused() -> None:
    # Not even root can make a directory there.
    with pytest.raises(SubmitError, match="could not be started"):
        Replica(Path("/proc/self/0")).sh("exit 0", cwd="/")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"argv": ()}, "argv is empty"),
        ({"argv": ("a\0b",)}, "NUL"),
        ({"env": {"A=B": ""}}, "environment variable"),
        ({"cwd": "here"}, "absolute"),
        ({"retries": -1}, "retries"),
        ({"grace_s": float("nan")}, "grace_s"),
    ],
)
def test_a_wrong_spec_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReplicaSpec(**{"argv": ("true",), "env": {}, "cwd": "/", **changes})


WORDS = st.text(st.characters(exclude_characters="\0", codec="utf-8"))


@given(
    argv=st.lists(WORDS.filter(bool), min_size=1),
    env=st.dictionaries(WORDS.filter(lambda name: name and "=" not in name), WORDS),
    limit=st.none() | st.floats(0, 1e9, exclude_min=True),
)
def test_a_spec_survives_packing(argv: list[str], env: dict[str, str], limit: float | None) -> None:
    spec = ReplicaSpec(argv=tuple(argv), env=env, cwd="/ü", time_limit_s=limit)
    unpacked = local_supervisor.Spec(spec.pack()).with_umask(0o27)
    unpacked = local_supervisor.Spec(unpacked.data)
    assert [os.fsdecode(arg) for arg in unpacked.argv] == argv
    assert {os.fsdecode(k): os.fsdecode(v) for k, v in unpacked.env.items()} == env
    assert (unpacked.time_limit_s, unpacked.umask) == (limit, 0o27)


def test_secrets_are_in_one_private_file_that_goes_with_the_replica(replica: Replica) -> None:
    status = replica.sh(LONG, env={"TOKEN": "s3cret"}).running()
    holders = [f for f in (replica.directory / ".replica").iterdir() if b"s3cret" in f.read_bytes()]
    assert [file.name for file in holders] == ["spec"]
    assert stat.S_IMODE(holders[0].stat().st_mode) == 0o600
    for pid in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = ((pid / name).read_bytes() for name in ("cmdline", "environ"))
        except OSError:
            continue
        assert b"s3cret" not in command
        assert b"s3cret" not in environment or pid.name == str(status.pid)
    local_replica.stop(replica.directory)
    assert not any(b"s3cret" in f.read_bytes() for f in replica.directory.rglob("*") if f.is_file())


# Cancelling


def test_cancelling_ends_the_whole_group_before_it_returns(replica: Replica) -> None:
    pid = replica.sh("sleep 60 & echo $!; sleep 60", retries=3).running().pid
    child = int(eventually(replica.log))
    local_replica.stop(replica.directory)
    assert pid is not None
    assert not lives(pid)
    assert not lives(child)
    status = replica.status
    assert (status.state, status.exit_code, status.unattended) == ("cancelled", -15, False)


def test_cancelling_ends_workers_that_made_sessions_of_their_own(replica: Replica) -> None:
    replica.sh(
        "setsid sleep 60 & setsid sh -c 'trap \"\" TERM; echo up; sleep 60' & wait"
    ).running()
    eventually(lambda: "up" in replica.log())
    mark = next(line for line in open_status(replica) if line.startswith("token ")).split()[1]
    local_replica.stop(replica.directory, grace_s=0.3)
    assert not local_supervisor.processes_of(local_supervisor.Process(1, ""), mark)[0]


def open_status(replica: Replica) -> list[str]:
    return (replica.directory / ".replica" / "status").read_text().splitlines()


def test_children_of_threads_are_found_below_a_process() -> None:
    code = (
        "import subprocess, threading, time\n"
        "threading.Thread(target=lambda: subprocess.run(['sleep', '60'])).start()"
    )
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        found = eventually(lambda: processes._tree(process.pid))
        os.killpg(process.pid, signal.SIGKILL)
    assert [row.group for row in found] == [process.pid]


def test_a_program_may_clean_up_when_it_is_cancelled(replica: Replica) -> None:
    replica.sh("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done").running()
    eventually(lambda: "up" in replica.log())
    local_replica.stop(replica.directory)
    assert replica.log().endswith("saved\n")
    assert (replica.status.state, replica.status.exit_code) == ("cancelled", 0)


def test_a_stopped_program_can_be_cancelled(replica: Replica) -> None:
    pid = replica.sh(LONG).running().pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    local_replica.stop(replica.directory)
    assert replica.status.exit_code == -15


def test_a_program_that_ignores_term_is_killed_after_the_grace(replica: Replica) -> None:
    replica.sh("trap '' TERM; echo up; while :; do :; done").running()
    eventually(lambda: "up" in replica.log())
    local_replica.stop(replica.directory, grace_s=0.2)
    assert (replica.status.state, replica.status.exit_code) == ("cancelled", -9)


def test_a_second_request_may_be_less_patient(replica: Replica) -> None:
    replica.sh("trap '' TERM; echo up; while :; do :; done").running()
    eventually(lambda: "up" in replica.log())
    replica.files.request_cancel(60)
    local_replica.stop(replica.directory, grace_s=0.1)
    assert (replica.status.state, replica.status.exit_code) == ("cancelled", -9)


def test_cancelling_again_and_cancelling_what_has_ended_change_nothing(replica: Replica) -> None:
    local_replica.stop(replica.directory)
    ended = replica.sh("exit 5").end()
    local_replica.stop(replica.directory)
    local_replica.stop(replica.directory)
    assert replica.status == ended


def test_cancelling_what_was_lost_does_not_make_it_cancelled(replica: Replica) -> None:
    pid = replica.sh(LONG).running().pid
    replica.kill_supervisor()
    replica.kill_keeper()
    os.kill(pid or 0, signal.SIGKILL)
    eventually(lambda: replica.status.state == "failed")
    local_replica.stop(replica.directory)
    assert (replica.status.state, replica.status.unattended) == ("failed", False)


def test_a_replica_can_be_cancelled_the_moment_it_is_started(make: Callable[[], Replica]) -> None:
    for _ in range(5):
        replica = make().sh(LONG)
        local_replica.stop(replica.directory)
        assert (replica.status.state, replica.status.unattended) == ("cancelled", False)


def test_cancelled_during_the_pause_it_never_starts_again(replica: Replica) -> None:
    replica.sh("echo ran; exit 3", retries=1, backoff_s=60)
    replica.pending("attempt 1")
    local_replica.stop(replica.directory)
    status = replica.status
    assert (status.state, status.attempt, status.exit_code) == ("cancelled", 1, 3)
    assert not local_replica.adopt(replica.directory)
    assert replica.log() == "ran\n"


def test_a_replica_cancelled_before_it_is_started_does_not_run(replica: Replica) -> None:
    (replica.directory / ".replica").mkdir(parents=True)
    local_replica.stop(replica.directory)
    status = replica.sh("echo ran").end()
    assert (status.state, status.attempt) == ("cancelled", 0)
    assert replica.log() == ""


def test_ending_the_supervisor_with_term_cancels_the_replica(replica: Replica) -> None:
    replica.sh(LONG).running()
    status = replica.files.status()
    assert status is not None
    status.supervisor.send(signal.SIGTERM)
    assert replica.end().state == "cancelled"


def test_a_replica_that_a_task_started_is_a_replica_of_its_own(make: Callable[[], Replica]) -> None:
    outer, inner = make(), make()
    code = launch_code(inner, "sh", "-c", LONG) + "\nimport time; time.sleep(60)"
    outer.start(sys.executable, "-c", code, env=dict(os.environ))
    inner.running()
    local_replica.stop(outer.directory)
    assert inner.running().unattended is False


@pytest.mark.parametrize("dead", ["supervisor", "keeper", "both"])
def test_cancelling_works_whoever_was_killed(replica: Replica, dead: str) -> None:
    pid = replica.sh("sleep 60 & echo $!; exec sleep 60").running().pid
    child = int(eventually(replica.log))
    if dead != "keeper":
        replica.kill_supervisor()
    if dead != "supervisor":
        replica.kill_keeper()
    local_replica.stop(replica.directory)
    status = replica.status
    assert (status.state, status.exit_code) == ("cancelled", None if dead == "both" else -15)
    assert pid is not None
    assert not lives(pid)
    assert not lives(child)
    assert not (replica.directory / ".replica" / "spec").exists()


# Being killed


def gated(replica: Replica, rest: str) -> tuple[str, Path]:
    """A script that waits for a file before it goes on with ``rest``."""
    gate = replica.directory.parent / "gate"
    return f"while ! test -e {gate}; do sleep 0.01; done; {rest}", gate


def test_a_supervisor_that_is_killed_costs_no_exit_code(replica: Replica) -> None:
    script, gate = gated(replica, "echo done; exit 6")
    replica.sh(script).running()
    replica.kill_supervisor()
    assert (replica.status.state, replica.status.unattended) == ("running", True)
    gate.touch()
    eventually(lambda: replica.status.is_final)
    assert (replica.status.state, replica.status.exit_code) == ("failed", 6)
    assert replica.log() == "done\n"
    local_replica.adopt(replica.directory)
    assert replica.end().unattended is False
    assert replica.status.exit_code == 6


def test_a_keeper_that_is_killed_costs_no_exit_code(replica: Replica) -> None:
    script, gate = gated(replica, "exit 6")
    replica.sh(script).running()
    replica.kill_keeper()
    assert replica.status.state == "running"
    gate.touch()
    assert replica.end().exit_code == 6


def test_when_both_are_killed_the_end_is_known_but_not_the_exit_code(replica: Replica) -> None:
    script, gate = gated(replica, "exit 6")
    replica.sh(script, retries=2).running()
    replica.kill_supervisor()
    replica.kill_keeper()
    assert replica.status.state == "running"
    assert local_replica.adopt(replica.directory)
    assert replica.running().unattended is False
    gate.touch()
    status = replica.end()
    assert (status.state, status.exit_code, status.attempt) == ("failed", None, 1)
    assert "without an exit code" in status.message


def test_what_is_left_of_the_group_when_all_three_are_killed_is_found_and_ended(
    replica: Replica,
) -> None:
    pid = replica.sh("sleep 60 & echo $!; wait").running().pid
    child = int(eventually(replica.log))
    replica.kill_supervisor()
    replica.kill_keeper()
    os.kill(pid or 0, signal.SIGKILL)
    eventually(lambda: not lives(pid or 0))
    assert replica.status.state == "running"
    assert local_replica.adopt(replica.directory)
    assert "without an exit code" in replica.end().message
    assert not lives(child)


def test_a_state_that_cannot_be_read_is_an_error_with_its_path(replica: Replica) -> None:
    replica.sh("exit 0").end()
    (replica.directory / ".replica" / "status").write_text("?")
    with pytest.raises(RecordError, match=r"\.replica"):
        print(replica.status)


def test_a_new_supervisor_goes_on_with_the_retries(replica: Replica) -> None:
    script, gate = gated(replica, "echo ran; exit $NEMO_RUN_ATTEMPT")
    replica.sh(script, retries=1).running()
    replica.kill_supervisor()
    assert local_replica.adopt(replica.directory)
    assert not local_replica.adopt(replica.directory)
    gate.touch()
    status = replica.end()
    assert (status.state, status.attempt, status.exit_code) == ("failed", 2, 2)
    assert replica.log().count("ran") == 2


def test_a_new_supervisor_goes_on_with_the_pause(replica: Replica) -> None:
    replica.sh("test $NEMO_RUN_ATTEMPT = 2", retries=1, backoff_s=0.5)
    replica.pending("attempt 1")
    replica.kill_supervisor()
    assert (replica.status.state, replica.status.unattended) == ("pending", True)
    assert local_replica.adopt(replica.directory)
    assert (replica.end().state, replica.status.attempt) == ("succeeded", 2)


def test_a_new_supervisor_keeps_the_time_limit(replica: Replica) -> None:
    replica.sh(LONG, time_limit_s=0.4).running()
    replica.kill_supervisor()
    assert local_replica.adopt(replica.directory)
    assert "time limit" in replica.end().message


def test_a_supervisor_killed_before_the_first_attempt_leaves_it_to_the_next(
    replica: Replica,
) -> None:
    directory = replica.directory / ".replica"
    directory.mkdir(parents=True)
    files = replica.files
    lock = files.try_lock("lock")
    assert lock is not None
    status = local_supervisor.Status(token="t", attempts=1, limit_s=None, grace_s=1)
    status.supervisor = local_supervisor.Process(os.getpid(), "1")
    files.accept(local_supervisor.Spec(replica.spec("sh", "-c", "echo ran").pack()), status)
    files.reserve_attempt(1)
    files.unlock(lock)
    assert (replica.status.state, replica.status.unattended) == ("pending", True)
    assert local_replica.adopt(replica.directory)
    assert replica.end().state == "succeeded"
    assert replica.log() == "ran\n"


def test_an_attended_or_ended_replica_is_not_adopted(replica: Replica) -> None:
    assert not local_replica.adopt(replica.directory)
    replica.sh(LONG).running()
    assert not local_replica.adopt(replica.directory)
    local_replica.stop(replica.directory)
    assert not local_replica.adopt(replica.directory)


def test_after_a_reboot_what_ran_is_lost_and_what_waited_goes_on(
    make: Callable[[], Replica],
) -> None:
    ran, waited = make(), make()
    ran.sh(LONG).running()
    ran.kill_supervisor()
    waited.sh("echo again; exit 3", retries=1, backoff_s=60)
    waited.pending("attempt 1")
    waited.kill_supervisor()
    for replica in (ran, waited):
        replica.rewrite_place(lambda place: ["other-boot", *place[1:]])
    assert (ran.status.state, ran.status.unattended) == ("failed", True)
    assert "machine went down" in ran.status.message
    assert (waited.status.state, waited.status.unattended) == ("pending", True)
    ran.rewrite_place(lambda place: place)
    keeper = ran.files.last_attempt()
    assert keeper is not None
    os.killpg(keeper.task.pid, signal.SIGKILL)


def test_a_replica_of_another_machine_keeps_its_last_known_state(replica: Replica) -> None:
    replica.sh(LONG).running()
    replica.rewrite_place(lambda place: ["other-boot", place[1], "other-machine", "far"])
    try:
        status = replica.status
        assert (status.state, status.unattended) == ("running", False)
        assert status.message == "on far, which cannot be asked from here"
        with pytest.raises(BackendUnavailableError, match="'far'"):
            local_replica.stop(replica.directory)
    finally:
        os.kill(status.pid or 0, signal.SIGKILL)


def test_from_other_process_namespaces_locks_tell_who_lives(replica: Replica) -> None:
    replica.sh(LONG).running()
    replica.rewrite_place(lambda place: [place[0], "pid:[1]", *place[2:]])
    assert (replica.status.state, replica.status.unattended) == ("running", False)
    replica.kill_supervisor()
    assert (replica.status.state, replica.status.unattended) == ("running", True)
    pid = replica.status.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: replica.status.is_final)
    assert replica.status.exit_code == -9


def test_a_process_id_that_was_reused_is_not_mistaken() -> None:
    me = local_supervisor.Process(os.getpid(), local_supervisor.birth_of(os.getpid()))
    assert me.is_alive()
    assert not local_supervisor.Process(me.pid, str(int(me.birth) - 1)).is_alive()


@pytest.mark.needs("ps")
def test_without_proc_ps_tells_the_same() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        try:
            row = processes._row_of_ps(process.pid)
            again = processes._row_of_ps(process.pid)
        finally:
            process.kill()
    assert row is not None
    assert again is not None
    assert (row.pid, row.group, row.birth) == (process.pid, process.pid, again.birth)
    assert processes._row_of_ps(process.pid) is None


# The clock of the log


def clock(replica: Replica, name: str = "clock") -> list[tuple[float, int]]:
    file = replica.directory / ".replica" / name
    rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    assert [float(when) for when, _ in rows] == sorted(float(when) for when, _ in rows)
    return [(float(when), int(size)) for when, size in rows]


def test_the_clock_tells_when_the_log_was_how_long(replica: Replica) -> None:
    script, gate = gated(replica, "echo later")
    replica.sh(f"echo soon; {script}")
    eventually(lambda: clock(replica)[-1:] and clock(replica)[-1][1] == len("soon\n"))
    between = time.time()
    gate.touch()
    replica.end()
    sizes = [size for _, size in clock(replica)]
    assert (sizes[0], sizes[-1]) == (0, len("soon\nlater\n"))
    assert {size for when, size in clock(replica) if when < between - 0.1} == {0, len("soon\n")}


def test_the_clock_notes_the_start_and_the_end_of_each_attempt(replica: Replica) -> None:
    replica.sh("echo ran; exit 1", retries=1).end()
    second = replica.log().rindex("ran")
    assert [size for _, size in clock(replica)] == [0, 4, second, second + 4]


def test_the_clock_of_a_silent_program_notes_no_more_than_that(replica: Replica) -> None:
    replica.sh("sleep 2.2").end()
    assert [size for _, size in clock(replica)] == [0, 0]


def test_the_clock_of_a_program_that_writes_all_the_time_notes_once_a_second(
    replica: Replica,
) -> None:
    status = replica.sh("for i in $(seq 150); do echo $i; sleep 0.01; done").end()
    assert status.ended_at is not None
    assert status.started_at is not None
    assert 3 <= len(clock(replica)) <= 3 + (status.ended_at - status.started_at)


def test_what_was_written_without_a_supervisor_is_noted_with_its_own_time(replica: Replica) -> None:
    script, gate = gated(replica, "echo ran")
    replica.sh(script).running()
    replica.kill_supervisor()
    gate.touch()
    eventually(lambda: replica.status.is_final)
    written = (replica.directory / "combined.log").stat().st_mtime
    time.sleep(0.2)
    local_replica.adopt(replica.directory)
    replica.end()
    when, size = clock(replica)[-1]
    assert size == len("ran\n")
    assert when == pytest.approx(written, abs=0.03)


def test_streams_that_are_separate_have_a_clock_each(replica: Replica) -> None:
    replica.sh("echo out; echo error >&2", separate=True).end()
    assert clock(replica) == []
    assert [size for _, size in clock(replica, "clock.stdout")] == [0, len("out\n")]
    assert [size for _, size in clock(replica, "clock.stderr")] == [0, len("error\n")]


def test_streams_that_are_together_have_one_clock(replica: Replica) -> None:
    replica.sh("echo out; echo error >&2").end()
    names = {path.name for path in (replica.directory / ".replica").glob("clock*")}
    assert names == {"clock"}


def test_a_clock_that_cannot_be_written_costs_nothing(replica: Replica) -> None:
    (replica.directory / ".replica" / "clock").mkdir(parents=True)
    assert replica.sh("echo ran; exit 4").end().exit_code == 4
    assert replica.log() == "ran\n"


@pytest.mark.parametrize("before", ["", "\0" * 40])
def test_the_times_of_a_log_never_decrease(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Not when the clock of the machine is set back, and not after what a power cut left."""
    (replica.directory / ".replica").mkdir(parents=True)
    log = replica.directory / "combined.log"
    file = replica.directory / ".replica" / "clock"
    file.write_text(before)
    files = replica.files
    first, second = LogClock(files), LogClock(files)
    for now, noting in [(500.0, first), (400.0, first), (300.0, second), (600.0, second)]:
        monkeypatch.setattr(time, "time", lambda now=now: now)
        with log.open("a") as out:
            out.write("line\n")
        noting.look(always=True)
    files.close()
    rows = [line.split() for line in file.read_text().removeprefix(before).splitlines()]
    assert rows == [["500.000", "5"], ["500.000", "10"], ["500.000", "15"], ["600.000", "20"]]


def test_a_line_is_not_taken_for_older_than_it_is(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a file is that of the system's last tick before it was written."""
    (replica.directory / ".replica").mkdir(parents=True)
    log = replica.directory / "combined.log"
    log.write_text("line\n")
    os.utime(log, (999.9962, 999.9962))
    monkeypatch.setattr(time, "time", lambda: 1000.0002)
    LogClock(replica.files).look()
    replica.files.close()
    when, _ = (replica.directory / ".replica" / "clock").read_text().split()
    assert float(when) >= 1000.0002


@pytest.mark.parametrize("left", ["", "\0" * 300])
def test_a_status_that_a_power_cut_emptied_makes_nothing_run_twice(
    replica: Replica, left: str
) -> None:
    replica.sh(f"echo ran; {LONG}").running()
    replica.kill_supervisor()
    replica.kill_keeper()
    local_replica.stop(replica.directory, grace_s=0)
    (replica.directory / ".replica" / "cancel").unlink()
    replica.rewrite_place(lambda words: ["another-boot", *words[1:]])
    (replica.directory / ".replica" / "status").write_text(left)
    assert replica.status.state == "unsubmitted"
    replica.sh(f"echo ran; {LONG}")
    ended = replica.end()
    assert (ended.state, ended.attempt, ended.exit_code) == ("failed", 1, None)
    assert replica.log() == "ran\n"


# Full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(mount)]
    subprocess.run(command, check=True)
    yield mount
    local_replica.stop(mount / "0", grace_s=0)
    subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(disk: Path) -> None:
    with pytest.raises(OSError, match="No space"), (disk / "ballast").open("wb", buffering=0) as f:
        while True:
            f.write(b"x" * 4096)


def test_on_a_full_disk_a_start_is_refused_and_can_be_repeated(small_disk: Path) -> None:
    replica = Replica(small_disk / "0")
    fill(small_disk)
    with pytest.raises(SubmitError, match="No space left on device"):
        replica.sh("echo ran", cwd="/")
    assert replica.status.state == "unsubmitted"
    (small_disk / "ballast").unlink()
    assert replica.sh("echo ran", cwd="/").end().state == "succeeded"
    assert replica.log() == "ran\n"


@pytest.mark.parametrize("kill_the_supervisor", [False, True])
def test_a_disk_that_fills_up_costs_neither_exit_code_nor_state(
    small_disk: Path, kill_the_supervisor: bool
) -> None:
    replica = Replica(small_disk / "0")
    gate = small_disk / "gate"
    replica.sh(f"echo before; while ! test -e {gate}; do sleep 0.01; done; exit 9", cwd="/")
    eventually(lambda: replica.running() and replica.log())
    fill(small_disk)
    if kill_the_supervisor:
        replica.kill_supervisor()
    gate.touch()
    eventually(lambda: replica.status.is_final)
    assert (replica.status.state, replica.status.exit_code) == ("failed", 9)
    assert replica.log() == "before\n"
    assert all(size <= len("before\n") for _, size in clock(replica))


# Slots


@pytest.fixture
def pool(tmp_path: Path) -> str:
    (tmp_path / "slots").mkdir(mode=0o700)
    return str(tmp_path / "slots")


def test_slots_are_given_in_the_order_of_asking(make: Callable[[], Replica], pool: str) -> None:
    order = Path(pool).parent / "order"
    gate = Path(pool).parent / "gate"
    replicas = []
    for number in range(5):
        replicas.append(
            make().sh(
                f"echo {number} >> {order}; while ! test -e {gate}; do sleep 0.01; done",
                slots=(SlotRequest.jobs(1),),
                slots_dir=pool,
            )
        )
        if number == 0:
            replicas[0].running()
        else:
            replicas[-1].pending("waits for slots: 1 of jobs")
            eventually(lambda: len(list(Path(pool, "jobs/queue").iterdir())) == len(replicas) - 1)
    replicas[2].kill_supervisor()
    gate.touch()
    assert [r.end().state for i, r in enumerate(replicas) if i != 2] == ["succeeded"] * 4
    assert order.read_text().split() == ["0", "1", "3", "4"]
    assert local_replica.adopt(replicas[2].directory)
    assert replicas[2].end().state == "succeeded"
    assert not list(Path(pool, "jobs/queue").iterdir())


def test_slots_are_given_in_the_order_of_starting(
    make: Callable[[], Replica], pool: str, tmp_path: Path
) -> None:
    replicas = [
        make().sh(
            f"echo {number} >> {tmp_path}/order; sleep 0.01",
            slots=(SlotRequest.jobs(1), SlotRequest.gpus(1, ("0", "1"))),
            slots_dir=pool,
        )
        for number in range(8)
    ]
    assert [replica.end().state for replica in replicas] == ["succeeded"] * 8
    assert (tmp_path / "order").read_text().split() == [str(number) for number in range(8)]
    assert not list(Path(pool).rglob("queue/*"))


def test_the_task_sees_the_gpus_it_got(make: Callable[[], Replica], pool: str) -> None:
    def ask(count: int) -> Replica:
        slots = (SlotRequest.gpus(count, ("2", "3", "5")),)
        return make().sh(f"echo $CUDA_VISIBLE_DEVICES; {LONG}", slots=slots, slots_dir=pool)

    first, second = ask(1), ask(2)
    eventually(first.log)
    eventually(second.log)
    assert sorted((first.log() + second.log()).replace(",", "\n").split()) == ["2", "3", "5"]
    third = ask(3)
    third.pending("3 of gpu")
    local_replica.stop(first.directory)
    third.pending("3 of gpu")
    local_replica.stop(second.directory)
    eventually(third.log)
    assert third.log() == "2,3,5\n"


def test_a_slot_is_kept_while_the_task_runs_and_given_back_when_all_are_killed(
    make: Callable[[], Replica], pool: str
) -> None:
    holder, waiter = make(), make()
    holder.sh(LONG, slots=(SlotRequest.jobs(1),), slots_dir=pool).running()
    waiter.sh("exit 0", slots=(SlotRequest.jobs(1),), slots_dir=pool).pending("waits")
    holder.kill_supervisor()
    assert holder.status.state == "running"
    assert local_replica.adopt(holder.directory)
    assert waiter.status.state == "pending"
    holder.kill_keeper()
    holder.kill_supervisor()
    os.kill(holder.status.pid or 0, signal.SIGKILL)
    assert waiter.end().state == "succeeded"


def test_cancelled_while_it_waits_for_a_slot_it_never_starts(
    make: Callable[[], Replica], pool: str
) -> None:
    holder, waiter = make(), make()
    holder.sh(LONG, slots=(SlotRequest.jobs(1),), slots_dir=pool).running()
    waiter.sh("echo ran", slots=(SlotRequest.jobs(1),), slots_dir=pool).pending("waits")
    local_replica.stop(waiter.directory)
    assert (waiter.status.state, waiter.status.attempt) == ("cancelled", 0)
    local_replica.stop(holder.directory)
    assert waiter.log() == ""


def test_a_request_that_can_never_be_met_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 2 slots; 3 were asked for"):
        SlotRequest.gpus(3, ("0", "1"))
    with pytest.raises(ConfigError, match="slash"):
        SlotRequest(pool="../x", count=1, names=("0",))


def test_a_slots_directory_that_others_can_write_is_not_used(replica: Replica, pool: str) -> None:
    Path(pool).chmod(0o777)
    status = replica.sh("exit 0", slots=(SlotRequest.jobs(1),), slots_dir=pool).end()
    assert status.state == "failed"
    assert "not a directory of this user alone" in status.message


def test_only_the_standard_library_is_loaded() -> None:
    code = (
        "import sys; before = set(sys.modules); import nemo_run._backends.local.replica; "
        "print({m.partition('.')[0] for m in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "{'nemo_run'}\n"
