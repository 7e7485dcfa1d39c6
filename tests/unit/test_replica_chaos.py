"""Kill whoever takes part in running a replica, at every call and at random; look at the end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests import patience

from nemo_run._backends.local import replica as local_replica
from nemo_run._backends.local import supervisor as local_supervisor
from nemo_run._backends.local.fork_server import FOLDER, ForkServer, fork_server
from nemo_run._backends.local.spec import ReplicaSpec, SlotRequest
from nemo_run._backends.local.status import ReplicaStatus, inspect
from nemo_run.exceptions import SubmitError

pytestmark = pytest.mark.slow

# A fork server of which one process is killed just before its nth system call. Forks pass
# the count on, so ``generation`` says which: 0 the fork server, 1 the supervisor, 2 the keeper,
# 3 the unborn task. The latter may be slow to say that it starts.
MORTAL = """
import os, sys, time
folder, generation, count, token, slow_s = sys.argv[1:6]
sys.path.append(folder)
import supervisor.supervisor

class Mortal:
    age, left = 0, int(count)

    def __getattr__(self, name):
        value = getattr(os, name)
        if not callable(value) or isinstance(value, type):
            return value

        def call(*args, **kwargs):
            if self.age == int(generation):
                self.left -= 1
                if self.left < 0:
                    try:
                        os.unlink(token)  # only once, so that the next one may live
                    except FileNotFoundError:
                        pass
                    else:
                        os.kill(os.getpid(), 9)
            if self.age == 3 and name == "rename":
                time.sleep(float(slow_s))
            result = value(*args, **kwargs)
            if name == "fork" and result == 0:
                self.age += 1
            return result

        return call

mortal = Mortal()
for name, module in list(sys.modules.items()):
    if name.startswith("supervisor.") and hasattr(module, "os"):
        module.os = mortal
supervisor.main()
"""


def wait_for_end(directory: Path, spec: ReplicaSpec) -> ReplicaStatus:
    """Do what a conductor does: start what was never started, adopt what was left alone."""
    deadline = patience.deadline(60)
    while True:
        status = inspect(directory)
        if status.state == "unsubmitted":
            local_replica.start(directory, spec)
        elif status.unattended:
            local_replica.adopt(directory)
        elif status.is_final:
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.002)


def twice(directory: Path) -> ReplicaSpec:
    """Make a replica of two attempts, of which the first fails."""
    (directory / ".replica").mkdir(parents=True)
    script = "echo $NEMO_RUN_ATTEMPT >> ran; test $NEMO_RUN_ATTEMPT = 2 || exit 3"
    return ReplicaSpec(
        argv=("/bin/sh", "-c", script),
        env={},
        cwd=str(directory),
        retries=1,
        backoff_s=0,
        slots=(SlotRequest.jobs(1),),
        slots_dir=str(directory / "slots"),
    )


def mortal(token: Path, *, generation: int, count: int, slow_s: float = 0) -> ForkServer:
    """Make a fork server in which somebody is killed at a call."""
    token.touch()
    settings = (generation, count, token, slow_s)
    return ForkServer(("-c", MORTAL, FOLDER, *map(str, settings)))


@pytest.mark.parametrize("who", ["fork server", "supervisor", "keeper", "unborn task"])
@pytest.mark.parametrize("together", [1, 3], ids=["alone", "one of three"])
def test_whoever_is_killed_at_any_call_each_attempt_runs_once(
    tmp_path: Path, who: str, together: int
) -> None:
    generation = ["fork server", "supervisor", "keeper", "unborn task"].index(who)

    def trial(count: int) -> bool:
        token = tmp_path / f"token-{count}"
        directories = [tmp_path / str(count) / str(number) for number in range(together)]
        specs = [twice(directory) for directory in directories]
        with mortal(token, generation=generation, count=count) as parent:
            for directory, spec in zip(directories, specs, strict=True):
                parent.ask(directory, spec.pack())
        for directory, spec in zip(directories, specs, strict=True):
            status = wait_for_end(directory, spec)
            ran = (directory / "ran").read_text().split()
            told = f"{who} killed at call {count}: {status}, ran {ran}"
            assert (status.state, status.attempt, status.exit_code) == ("succeeded", 2, 0), told
            # A task killed after it said that it starts has had its attempt.
            assert ran == ["1", "2"] or (who == "unborn task" and ran == ["2"]), told
            assert not list(directory.rglob("spec*")), told
        return not token.exists()

    with ThreadPoolExecutor(3) as threads:
        for first in range(0, 10_000, 12):
            if not any(threads.map(trial, range(first, first + 12))):
                return


def test_a_task_about_to_start_is_waited_for_when_all_others_are_killed(tmp_path: Path) -> None:
    directory = tmp_path / "0"
    spec = twice(directory)
    with mortal(tmp_path / "token", generation=9, count=0, slow_s=0.5) as parent:
        parent.ask(directory, spec.pack())
    deadline = patience.deadline(60)
    while len(born := processes_below(tmp_path)) < 3:
        assert time.monotonic() < deadline
    supervisor, keeper, _ = sorted(born)
    for pid in (supervisor, keeper):
        os.kill(pid, signal.SIGKILL)
    assert not (directory / ".replica" / "attempt-1.started").exists()
    status = wait_for_end(directory, spec)
    # Its exit code went with the two, and that is no reason to run it again.
    assert (status.state, status.attempt, status.exit_code) == ("failed", 1, None)
    assert (directory / "ran").read_text() == "1\n"


def processes_below(directory: Path) -> list[int]:
    """Supervisors, keepers and tasks of replicas in a directory, the unborn ones included."""
    needle = os.fsencode(directory) + b"/"
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


# At random


@dataclass
class Victim:
    """One replica, what it should do, and who of it was killed."""

    directory: Path
    spec: ReplicaSpec
    codes: list[int]
    helper: int | None = None
    cancelled: bool = False
    killed: set[int] = field(default_factory=set)

    def fork(self, action: Callable[[], object]) -> None:
        """Do something in a process that may be killed."""
        self.helper = os.fork()
        if self.helper == 0:
            try:
                action()
            except SubmitError:
                os._exit(1)
            finally:
                os._exit(0)

    def is_busy(self) -> bool:
        if self.helper is not None and os.waitpid(self.helper, os.WNOHANG)[0] == 0:
            return True
        self.helper = None
        return False


def make_victim(directory: Path, rng: random.Random, slots_dir: Path) -> Victim:
    codes = [rng.choice([0, 1, 2, 3, 3, 3]) for _ in range(rng.randint(1, 6))]
    cases = " ".join(f"{number}) exit {code};;" for number, code in enumerate(codes, 1))
    script = (
        f'echo "$NEMO_RUN_ATTEMPT $$" >> ran; sleep {rng.choice([0, 0, 0.05, 0.3])}\n'
        f"case $NEMO_RUN_ATTEMPT in {cases} esac"
    )
    directory.mkdir(parents=True)
    spec = ReplicaSpec(
        argv=("/bin/sh", "-c", script, "sh", str(directory)),
        env={"PATH": os.environ["PATH"]},
        cwd=str(directory),
        retries=len(codes) - 1,
        backoff_s=0.02,
        grace_s=1,
        slots=(SlotRequest.jobs(4),) if rng.random() < 0.5 else None,
        slots_dir=str(slots_dir),
    )
    return Victim(directory, spec, codes)


def start_together(victims: list[Victim]) -> None:
    with fork_server():
        for victim in victims:
            local_replica.start(victim.directory, victim.spec)


def conduct(victim: Victim, others: list[Victim], rng: random.Random) -> bool:
    """One look at a replica; True once it has ended."""
    if victim.is_busy():
        return False
    status = inspect(victim.directory)
    if status.state == "unsubmitted":
        # Those that are under way, or have ended, do not mind.
        some = [victim, *rng.sample(others, 3)]
        victim.fork(lambda: start_together(some))
    elif status.unattended:
        victim.fork(lambda: local_replica.adopt(victim.directory))
    elif not status.is_final and (victim.cancelled or rng.random() < 0.002):
        victim.cancelled = True
        victim.fork(lambda: local_replica.stop(victim.directory))
    return status.is_final and not status.unattended


def strike(victims: list[Victim], root: Path, rng: random.Random) -> None:
    """Kill some of those who take part in something."""
    targets = processes_below(root)
    for pid in rng.sample(targets, min(len(targets), rng.randint(1, 3))):
        try:
            command = Path("/proc", str(pid), "cmdline").read_bytes()
            victim = next(v for v in victims if os.fsencode(v.directory) + b"\0" in command)
            victim.killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        except (OSError, StopIteration):
            continue  # it has ended since
    helpers = [victim.helper for victim in victims if victim.helper is not None]
    if helpers and rng.random() < 0.2:
        os.kill(rng.choice(helpers), signal.SIGKILL)
    nurseries = [pid for helper in helpers for pid in children(helper)]
    if nurseries and rng.random() < 0.2:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(nurseries), signal.SIGKILL)


def children(pid: int) -> list[int]:
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except OSError:
        return []


def check(victim: Victim) -> None:
    """Hold the end against what should have happened."""
    files = local_supervisor.Files(str(victim.directory))
    names = [file.name for file in (victim.directory / ".replica").glob("attempt-*ed*")]
    attempts = sorted(
        (local_supervisor.Attempt(name, files.read(name) or b"") for name in names),
        key=lambda attempt: attempt.number,
    )
    files.close()
    status = inspect(victim.directory)
    ran_file = victim.directory / "ran"
    ran = [line.split() for line in ran_file.read_text().splitlines()] if ran_file.exists() else []
    told = f"{victim}\n{status}\n{names}\n{ran}"
    assert [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1)), told
    for attempt in attempts:
        lines = [pid for number, pid in ran if int(number) == attempt.number]
        task_killed = attempt.task.pid in victim.killed or victim.cancelled
        assert lines == [str(attempt.task.pid)] or (task_killed and not lines), told
        is_last = attempt is attempts[-1]
        code = attempt.exit_code
        if code is None:
            others = victim.killed - {attempt.task.pid, attempt.keeper.pid}
            assert is_last, told
            assert attempt.keeper.pid in victim.killed, told
            assert others or victim.cancelled, told
        elif code != victim.codes[attempt.number - 1]:
            assert (code == -9 and task_killed) or (code in (-15, -9) and victim.cancelled), told
        assert is_last or (code is not None and code != 0), told
    if attempts:
        last = attempts[-1]
        assert (status.attempt, status.exit_code) == (last.number, last.exit_code), told
        if status.state == "succeeded":
            assert last.exit_code == 0, told
        elif status.state == "failed":
            assert last.exit_code is None or last.number == len(victim.codes), told
    assert status.state != "cancelled" or victim.cancelled, told
    assert attempts or victim.cancelled, told


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_kills_give_neither_wrong_ends_nor_second_runs(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    (tmp_path / "slots").mkdir(mode=0o700)
    victims = [make_victim(tmp_path / f"v{n}", rng, tmp_path / "slots") for n in range(60)]
    peace = time.monotonic() + 6
    deadline = peace + 60
    unfinished = list(victims)
    while unfinished:
        unfinished = [victim for victim in unfinished if not conduct(victim, victims, rng)]
        assert time.monotonic() < deadline, [
            (victim, inspect(victim.directory)) for victim in unfinished
        ]
        if time.monotonic() < peace:
            strike(unfinished, tmp_path, rng)
        time.sleep(0.002)
    for victim in victims:
        check(victim)
    while processes_below(tmp_path):  # supervisors on their way out
        assert time.monotonic() < deadline
