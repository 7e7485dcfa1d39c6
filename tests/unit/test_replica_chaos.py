"""Kill whoever takes part in running a replica, at every call and at random, and look at the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nemo_run import _replica, _supervisor
from nemo_run._replica import ReplicaSpec, ReplicaStatus, SlotRequest
from nemo_run.exceptions import SubmitError

pytestmark = pytest.mark.slow

# A supervisor that is killed just before its nth call of the operating system. Forks pass the count
# on, so ``generation`` says who is to die: 1 the supervisor, 2 the keeper, 3 the unborn task.
MORTAL = """
import os, sys
package, directory, generation, count, token = sys.argv[1:]
sys.path.append(package)
import _supervisor

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
            result = value(*args, **kwargs)
            if name == "fork" and result == 0:
                self.age += 1
            return result

        return call

_supervisor.os = Mortal()
_supervisor.main([directory])
"""


def wait_for_end(directory: Path, spec: ReplicaSpec) -> ReplicaStatus:
    """Do what a conductor does: start what was never started, adopt what was left alone."""
    deadline = time.monotonic() + 20
    while True:
        status = _replica.inspect(directory)
        if status.state == "unsubmitted":
            _replica.start(directory, spec)
        elif status.unattended:
            _replica.adopt(directory)
        elif status.is_final:
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.002)


def run_with_a_mortal(
    directory: Path, generation: int, count: int
) -> tuple[ReplicaStatus, list[str], bool]:
    """Run two attempts with somebody killed at a call; tell the end, what ran, who was killed."""
    (directory / ".replica").mkdir(parents=True)
    token = directory / "token"
    token.touch()
    script = "echo $NEMO_RUN_ATTEMPT >> ran; test $NEMO_RUN_ATTEMPT = 2 || exit 3"
    spec = ReplicaSpec(
        argv=("/bin/sh", "-c", script),
        env={},
        cwd=str(directory),
        retries=1,
        backoff_s=0,
        slots=(SlotRequest.jobs(1),),
        slots_dir=str(directory / "slots"),
    )
    package = str(Path(_supervisor.__file__).parent)
    arguments = [package, str(directory), str(generation), str(count), str(token)]
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", MORTAL, *arguments],
        input=spec.pack(),
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    status = wait_for_end(directory, spec)
    return status, (directory / "ran").read_text().split(), not token.exists()


@pytest.mark.parametrize("who", ["launched process", "supervisor", "keeper", "unborn task"])
def test_whoever_is_killed_at_any_call_each_attempt_runs_once(tmp_path: Path, who: str) -> None:
    generation = ["launched process", "supervisor", "keeper", "unborn task"].index(who)

    def trial(count: int) -> bool:
        status, ran, killed = run_with_a_mortal(tmp_path / str(count), generation, count)
        told = f"{who} killed at call {count}: {status}, ran {ran}"
        assert (status.state, status.attempt, status.exit_code) == ("succeeded", 2, 0), told
        # A task killed after it said that it starts has had its attempt.
        assert ran == ["1", "2"] or (who == "unborn task" and ran == ["2"]), told
        assert not list((tmp_path / str(count)).rglob("spec*")), told
        return killed

    with ThreadPoolExecutor(3) as threads:
        for first in range(0, 10_000, 12):
            if not any(threads.map(trial, range(first, first + 12))):
                return


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

    def processes(self) -> list[int]:
        """Supervisors, keepers and tasks of this replica, the unborn ones included."""
        needle = os.fsencode(self.directory) + b"\0"
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if needle in Path("/proc", entry, "cmdline").read_bytes():
                        found.append(int(entry))
                except OSError:
                    continue
        return found


def make_victim(directory: Path, rng: random.Random, slots_dir: Path) -> Victim:
    codes = [rng.choice([0, 1, 2, 3]) for _ in range(rng.randint(1, 4))]
    script = (
        f'echo "$NEMO_RUN_ATTEMPT $$" >> ran; sleep {rng.choice([0, 0, 0.05, 0.3])}\n'
        f"case $NEMO_RUN_ATTEMPT in {' '.join(f'{n}) exit {c};;' for n, c in enumerate(codes, 1))} esac"
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


def conduct(victim: Victim, rng: random.Random) -> bool:
    """One look at a replica; True once it has ended."""
    if victim.is_busy():
        return False
    status = _replica.inspect(victim.directory)
    if status.state == "unsubmitted":
        victim.fork(lambda: _replica.start(victim.directory, victim.spec))
    elif status.unattended:
        victim.fork(lambda: _replica.adopt(victim.directory))
    elif not status.is_final and (victim.cancelled or rng.random() < 0.002):
        victim.cancelled = True
        victim.fork(lambda: _replica.stop(victim.directory))
    return status.is_final and not status.unattended


def strike(victim: Victim, rng: random.Random) -> None:
    targets = victim.processes()
    if victim.helper is not None and rng.random() < 0.3:
        os.kill(victim.helper, signal.SIGKILL)
    for pid in rng.sample(targets, min(len(targets), rng.choice([1, 1, 1, 2, 3]))):
        victim.killed.add(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def check(victim: Victim) -> None:
    """Hold the end against what should have happened."""
    files = _supervisor.Files(str(victim.directory))
    names = [name for name in os.listdir(files.fd) if _supervisor.split_name(name)[0]]
    attempts = sorted(
        (_supervisor.Attempt(name, files.read(name) or b"") for name in names),
        key=lambda attempt: attempt.number,
    )
    files.close()
    status = _replica.inspect(victim.directory)
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
    assert not victim.processes(), told


@pytest.mark.parametrize("seed", [1, 2])
def test_random_kills_give_neither_wrong_ends_nor_second_runs(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    (tmp_path / "slots").mkdir(mode=0o700)
    victims = [make_victim(tmp_path / f"v{n}-", rng, tmp_path / "slots") for n in range(50)]
    peace = time.monotonic() + 6
    deadline = peace + 10
    open_ends = list(victims)
    while open_ends:
        open_ends = [victim for victim in open_ends if not conduct(victim, rng)]
        assert time.monotonic() < deadline, [
            (victim, _replica.inspect(victim.directory)) for victim in open_ends
        ]
        if open_ends and time.monotonic() < peace:
            strike(rng.choice(open_ends), rng)
        time.sleep(0.002)
    for victim in victims:
        check(victim)
    assert sum(len(victim.killed) for victim in victims) > 50
