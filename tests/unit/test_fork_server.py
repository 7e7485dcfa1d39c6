"""Many replicas from one process: each as if it had been started alone."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.experiments import experiment, script, states

from nemo_run._backends.local import replica
from nemo_run._backends.local import supervisor as local_supervisor
from nemo_run._backends.local.fork_server import ForkServer, fork_server, supervise
from nemo_run._backends.local.spec import ReplicaSpec
from nemo_run._backends.local.status import inspect


def eventually(condition: Callable[[], Any], *, within_s: float = 60.0) -> Any:
    deadline = patience.deadline(within_s)
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.003)
    return value


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[list[Path]]:
    found = [tmp_path / "role" / str(number) for number in range(8)]
    yield found
    for directory in found:
        replica.stop(directory, grace_s=0)


def sh(script: str, directory: Path, **changes: Any) -> ReplicaSpec:
    env = {"PATH": os.environ["PATH"], **changes.pop("env", {})}
    return ReplicaSpec(
        argv=("sh", "-c", script), env=env, cwd=str(directory.parent.parent), **changes
    )


def start_all(script: str, directories: list[Path], **changes: Any) -> None:
    for directory in directories:
        replica.start(directory, sh(script, directory, **changes))


def logs_of(directories: list[Path]) -> list[str]:
    eventually(lambda: all(inspect(directory).is_final for directory in directories))
    return [(directory / "combined.log").read_text() for directory in directories]


def parent_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def supervisor_of(directory: Path) -> int:
    status = local_supervisor.Files(str(directory)).status()
    assert status is not None
    return status.supervisor.pid


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_all_that_is_started_together_comes_from_one_process(directories: list[Path]) -> None:
    with fork_server():
        start_all("sleep 60", directories)
        parents = {parent_of(supervisor_of(directory)) for directory in directories}
        assert len(parents) == 1
        assert parents <= set(children(os.getpid()))
    assert not parents & set(children(os.getpid()))


def test_jobs_of_an_experiment_that_start_together_take_one_process() -> None:
    with experiment() as exp:
        for number in range(5):
            exp.add(script("true"), name=f"job{number}")
        with processes_started() as started:
            exp.run()
    # Git is asked about the code, once for all jobs.
    assert len([program for program, *_ in started if program != "git"]) == 1
    assert set(states(exp).values()) == {"SUCCEEDED"}


@contextmanager
def processes_started() -> Iterator[list[Any]]:
    """Note what this process executes."""
    started: list[Any] = []
    watching = True

    def note(event: str, args: tuple[Any, ...]) -> None:
        if watching and event == "subprocess.Popen":
            started.append(args)

    sys.addaudithook(note)  # for ever, hence the flag
    yield started
    watching = False


TAKES_OVER = """\
import os, resource, sys
from nemo_run._backends.local.supervisor.takeover import take_over
payload = sys.stdin.buffer.read()
# Enough for what is written, not for what is set aside.
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
print(take_over(os.fsencode(sys.argv[1]), payload)[1])
"""


def test_room_that_cannot_be_had_for_the_next_status_does_not_take_back_this_one(
    directories: list[Path],
) -> None:
    directory = directories[0]
    (directory / local_supervisor.STATE_DIR).mkdir(parents=True)
    spec = sh("true", directory, env={"PATH": "/bin"}).pack()
    command = [sys.executable, "-c", TAKES_OVER, str(directory)]
    taken = subprocess.run(command, input=spec, capture_output=True)
    files = local_supervisor.Files(str(directory))
    status, kept = files.status(), files.read(local_supervisor.SPEC)
    files.close()
    assert taken.stdout == b"ok\n", taken.stderr
    assert status is not None
    assert kept is not None


def test_who_is_about_to_tidy_up_after_the_end_is_left_to_it(directories: list[Path]) -> None:
    directory = directories[0]
    status = local_supervisor.Status(token="t", attempts=1, limit_s=None, grace_s=1)
    (directory / local_supervisor.STATE_DIR).mkdir(parents=True)
    files = local_supervisor.Files(str(directory))
    files.accept(local_supervisor.Spec(sh("true", directory).pack()), status)
    assert status.supervisor.is_alive()  # it is this process
    status.state, status.exit_code = "succeeded", 0
    files.write_status(status)
    with ThreadPoolExecutor(1) as threads, processes_started() as started:
        adopted = threads.submit(replica.adopt, directory)
        time.sleep(0.05)  # in which another supervisor would be started
        files.tidy()
        assert adopted.result() is False
    files.close()
    assert started == []
    assert inspect(directory).unattended is False


def test_threads_with_a_copy_of_the_context_share_it(directories: list[Path]) -> None:
    with fork_server(), ThreadPoolExecutor(4) as threads:
        for directory in directories:
            threads.submit(copy_context().run, start_all, "sleep 60", [directory])
        threads.shutdown()
        assert len({parent_of(supervisor_of(directory)) for directory in directories}) == 1


@pytest.mark.parametrize("used", [False, True])
def test_who_asks_when_it_has_left_is_served_all_the_same(
    directories: list[Path], used: bool
) -> None:
    """As threads do whose launcher was interrupted meanwhile."""
    with fork_server():
        start_all("echo up", directories[: 2 * used])
        late = copy_context()
    late.run(start_all, "echo up", directories[2:4])
    assert logs_of(directories[2 - 2 * used : 4]) == ["up\n"] * (2 + 2 * used)


def test_supervisors_go_on_when_it_leaves(directories: list[Path]) -> None:
    with fork_server():
        start_all("sleep 0.3; echo done", directories)
    assert logs_of(directories) == ["done\n"] * len(directories)


def test_supervisors_that_end_while_it_is_there_leave_no_zombies(directories: list[Path]) -> None:
    with fork_server():
        start_all("exit 0", directories)
        (process,) = children(os.getpid())
        eventually(lambda: children(process) == [])


def test_killed_it_is_not_missed(directories: list[Path]) -> None:
    first, *others = directories
    with fork_server():
        start_all("echo ran", [first])
        (process,) = children(os.getpid())
        os.kill(process, signal.SIGKILL)
        start_all("echo ran", others)
    assert logs_of(directories) == ["ran\n"] * len(directories)


def test_killed_it_does_not_take_a_launcher_along_that_wants_to_hear_of_pipes(
    tmp_path: Path,
) -> None:
    code = (
        "import os, signal, time\nfrom pathlib import Path\n"
        "from nemo_run._backends.local.fork_server import fork_server\n"
        "from nemo_run._backends.local.replica import start\n"
        "from nemo_run._backends.local.spec import ReplicaSpec, SlotRequest\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "spec = ReplicaSpec(argv=('sh', '-c', 'exit 0'), env=dict(os.environ), cwd='/')\n"
        "with fork_server():\n"
        f"    start(Path({str(tmp_path / '0')!r}), spec)\n"
        "    (child,) = open(f'/proc/self/task/{os.getpid()}/children').read().split()\n"
        "    os.kill(int(child), 9)\n"
        "    os.waitid(os.P_PID, int(child), os.WEXITED | os.WNOWAIT)\n"
        f"    start(Path({str(tmp_path / '1')!r}), spec)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert logs_of([tmp_path / "0", tmp_path / "1"]) == ["", ""]


def test_it_leaves_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, time\nfrom pathlib import Path\n"
        "from nemo_run._backends.local.fork_server import fork_server\n"
        "from nemo_run._backends.local.replica import start\n"
        "from nemo_run._backends.local.spec import ReplicaSpec, SlotRequest\n"
        "spec = ReplicaSpec(argv=('sh', '-c', 'exit 0'), env=dict(os.environ), cwd='/')\n"
        "with fork_server():\n"
        f"    start(Path({str(tmp_path / '0')!r}), spec)\n"
        "    print(*open(f'/proc/self/task/{os.getpid()}/children').read().split(), flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        process = int(launcher.stdout.readline())
        birth = local_supervisor.birth_of(process)
        assert birth
        launcher.kill()
    eventually(lambda: local_supervisor.birth_of(process) != birth)


def test_a_fork_of_the_launcher_does_not_keep_it(directories: list[Path]) -> None:
    began = time.monotonic()
    with fork_server():
        start_all("exit 0", directories[:1])
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
    assert time.monotonic() - began < patience.seconds(20)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_nothing_of_one_replica_reaches_another(directories: list[Path]) -> None:
    script = "echo $ONE$TWO; umask; exec ls /proc/self/fd"  # which needs one more for itself
    before = os.umask(0o027)
    try:
        with fork_server():
            start_all(script, directories[:1], env={"ONE": "1"})
            start_all(script, directories[1:], env={"TWO": "2"})
    finally:
        os.umask(before)
    first, *others = logs_of(directories)
    assert first == "1\n0027\n0\n1\n2\n3\n"
    assert set(others) == {"2\n0027\n0\n1\n2\n3\n"}


def test_each_is_in_a_session_of_its_own_with_no_terminal_and_no_directory_in_use(
    directories: list[Path],
) -> None:
    with fork_server():
        start_all("sleep 60", directories)
        pids = [supervisor_of(directory) for directory in directories]
        assert [os.getsid(pid) for pid in pids] == pids
        assert {str(Path(f"/proc/{pid}/cwd").readlink()) for pid in pids} == {"/"}


def test_limits_of_the_launcher_apply(directories: list[Path]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    try:
        with fork_server():
            start_all("ulimit -c", directories[:2])
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert logs_of(directories[:2]) == ["0\n"] * 2


def test_ps_tells_supervisors_apart(directories: list[Path]) -> None:
    with fork_server():
        start_all("sleep 60", directories)
    expected = [bytes(directory) for directory in directories]
    eventually(lambda: [last_argument(supervisor_of(d)) for d in directories] == expected)


def last_argument(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")[-1]


def test_a_megabyte_of_environment_arrives(directories: list[Path]) -> None:
    env = {f"V{number}": "x" * 100_000 for number in range(10)}
    with fork_server():
        start_all("echo ${#V0} ${#V9}", directories[:2], env=env)
    assert logs_of(directories[:2]) == ["100000 100000\n"] * 2


def test_what_a_supervisor_says_before_it_dies_is_told(tmp_path: Path) -> None:
    boot = (
        "import sys; sys.path.append(sys.argv[1]); import supervisor.takeover\n"
        "def fail(*_): raise RuntimeError('no such luck')\n"
        "sys.modules['supervisor.takeover'].take_over = fail\n"
        "supervisor.main()"
    )
    folder = str(Path(local_supervisor.__file__).parent.parent)
    with ForkServer(("-c", boot, folder)) as process:
        assert process.ask(tmp_path, b"").endswith("RuntimeError: no such luck")


def test_the_last_words_of_a_supervisor_are_kept_and_it_does_not_go_on_as_a_fork_server(
    directories: list[Path],
) -> None:
    boot = (
        "import sys; sys.path.append(sys.argv[1]); import supervisor.supervisor\n"
        "def fail(*_): raise OSError('no such luck')\n"
        "supervisor.supervisor.Supervisor.run = fail\n"
        "supervisor.main()"
    )
    folder = str(Path(local_supervisor.__file__).parent.parent)
    for directory in directories:
        (directory / ".replica").mkdir(parents=True)
    with ForkServer(("-c", boot, folder)) as process:
        for directory in directories:
            assert process.ask(directory, sh("true", directory).pack()) == "ok"
        eventually(lambda: not any(map(lives, directories)))
        for directory in directories:
            last_words = (directory / ".replica" / "supervisor.log").read_text()
            assert last_words.splitlines()[-1] == "OSError: no such luck"


def lives(directory: Path) -> bool:
    return local_supervisor.birth_of(supervisor_of(directory)) != ""


def test_an_interpreter_that_cannot_start_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    said = supervise(tmp_path, b"")
    assert said == "its supervisor ended before it took over: out of order"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(OSError, match="cannot be run: No such file or directory"):
        supervise(tmp_path, b"")
