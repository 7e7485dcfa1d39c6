"""Kill -9 at random while an experiment runs: every attempt runs once, every outcome is right."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from tests.contract.experiments import statuses
from tests.integration.launching import (
    command_line,
    conductors,
    kill,
    lines,
    only_experiment,
    start,
    supervisors,
    wait_for,
    write,
)

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("NEMO_RUN_CHAOS_KILLS", "20"))
SEED = int(os.environ.get("NEMO_RUN_CHAOS_SEED", "1"))
JOBS = 20
RETRIES = 50

LAUNCH = """
title, notes, detach = sys.argv[1], sys.argv[2], sys.argv[3] == "detach"
if len(sys.argv) > 4:
    run.Experiment.from_title(title).resume()
    sys.exit()
local = run.LocalExecutor(retries=%(retries)d)
with run.Experiment(title, executor=local, clean_mode=True) as exp:
    ids = []
    for number in range(%(jobs)d):
        text = (
            f"echo start $NEMO_RUN_ATTEMPT $$ >> '{notes}/{number}'; "
            f"sleep %(seconds)s; "
            f"echo end $NEMO_RUN_ATTEMPT $$ >> '{notes}/{number}'"
        )
        # Four chains, tied together now and then.
        needed = ids[-4:-3] + (ids[-3:-2] if number %% 5 == 0 else [])
        ids.append(exp.add(script(text), name=f"job{number}", dependencies=needed))
    exp.run(detach=detach)
"""


@pytest.mark.timeout(60 + 8 * KILLS)
@pytest.mark.parametrize("detach", [False, True], ids=["attached", "detached"])
def test_every_attempt_runs_once_and_every_job_ends_well(tmp_path: Path, detach: bool) -> None:
    rng = random.Random(SEED)
    # Long enough that the kills fall between the first start and the last end.
    seconds = max(0.4, KILLS * 0.5 / 5)
    path = write(tmp_path, LAUNCH % {"jobs": JOBS, "retries": RETRIES, "seconds": seconds})
    killed: Counter[str] = Counter()
    while killed.total() < KILLS:
        # Another experiment, where the one before came to its end first.
        title = f"chaos{len(list(tmp_path.glob('notes*')))}"
        notes = tmp_path / f"notes of {title}"
        notes.mkdir()
        arguments = [title, str(notes), "detach" if detach else "attach"]
        storm = Storm(path, arguments, rng)
        killed += storm.rage(KILLS - killed.total())
        storm.calm_down()
        check(title, notes, storm.unwatched)
    print("killed:", dict(sorted(killed.items())))


class Storm:
    """Kills at random while one experiment runs."""

    def __init__(self, path: Path, arguments: list[str], rng: random.Random) -> None:
        self.path, self.arguments, self.rng = path, arguments, rng
        self.title, self.notes = arguments[0], Path(arguments[1])
        self.unwatched: Counter[str] = Counter()
        self.launcher = start(path, *arguments)
        wait_for(lambda: any(self.notes.iterdir()), "the first start")

    def rage(self, kills: int) -> Counter[str]:
        """Kill that often, or until the experiment has ended; return whom."""
        killed: Counter[str] = Counter()
        while killed.total() < kills:
            time.sleep(self.rng.uniform(0.0, 0.6))
            if self.launcher.poll() is not None and not conductors():
                if ended(self.title):
                    break
                self.launcher = start(self.path, *self.arguments, "resume")
                time.sleep(self.rng.uniform(0.3, 1.2))
            kind = self.rng.choice(["launcher", "supervisor", "supervisor", "task", "task"])
            pids = self._candidates(kind)
            if pids and self._kill(kind, self.rng.choice(pids)):
                killed[kind] += 1
        return killed

    def _candidates(self, kind: str) -> list[int]:
        if kind == "launcher":
            return [*conductors(), *([self.launcher.pid] if self.launcher.poll() is None else [])]
        if kind == "supervisor":
            return supervisors()
        return [pid for pid, _ in running(self.notes)]

    def _kill(self, kind: str, pid: int) -> bool:
        if kind == "task" and pid not in dict(running(self.notes)):
            return False
        watched = job_of(pid)
        if not kill(pid):
            return False
        if kind == "supervisor":
            self.unwatched[watched] += 1
        if pid == self.launcher.pid:
            self.launcher.wait()
        return True

    def calm_down(self) -> None:
        """Let the experiment come to its end."""
        for _ in range(5):
            if self.launcher.poll() is None:
                # Killed often, a job is tried again after up to a minute.
                self.launcher.wait(120 + 5 * KILLS)
            if ended(self.title):
                return
            self.launcher = start(self.path, *self.arguments, "resume")


def running(notes: Path) -> list[tuple[int, str]]:
    """Return the processes of attempts that have started and not ended, with their jobs."""
    found = []
    for path in notes.iterdir():
        open_attempts: dict[str, int] = {}
        for line in lines(path):
            word, attempt, pid = line.split()
            if word == "start":
                open_attempts[attempt] = int(pid)
            else:
                open_attempts.pop(attempt, None)
        found += [
            (pid, path.name)
            for pid in open_attempts.values()
            if str(path.parent) in _environment_or_command(pid)
        ]
    return found


def _environment_or_command(pid: int) -> str:
    # The script's own text names the notes; a process id may have been given to somebody else.
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return Path(os.fsdecode(arguments[1])).read_text()
    except (OSError, IndexError):
        return ""


def ended(title: str) -> bool:
    final = {"SUCCEEDED", "FAILED", "CANCELLED"}
    return all(entry["status"].name in final for entry in statuses(only_experiment(title)).values())


def job_of(pid: int) -> str:
    """Return the job that a supervisor looks after."""
    match = re.search(r"/(job\d+)/nemo_run/", command_line(pid))
    return match[1] if match else ""


def check(title: str, notes: Path, unwatched: Counter[str], jobs: int = JOBS) -> None:
    exp = only_experiment(title)
    status = json.loads(exp.status_json())
    needed = {job.id: job.dependencies for job in exp.jobs}

    def may_be(job: str) -> set[str]:
        """Return the right outcomes of a job, in its last attempt."""
        # An attempt whose two watchers are killed leaves nobody to see its exit code.
        seen = {"SUCCEEDED"} | ({"FAILED"} if unwatched[job] >= 2 else set())
        skipped = any(status[other]["status"] != "SUCCEEDED" for other in needed[job])
        return {"CANCELLED"} if skipped else seen

    bad = {
        job: (entry["status"], entry["message"], lines(notes / job.removeprefix("job")))
        for job, entry in status.items()
        if entry["status"] not in may_be(job)
        or (entry["status"] == "FAILED" and "without an exit code" not in entry["message"])
    }
    assert bad == {}
    assert len(status) == jobs
    for number in range(jobs):
        starts: dict[int, list[str]] = defaultdict(list)
        ends: list[int] = []
        for line in lines(notes / str(number)):
            word, attempt, pid = line.split()
            if word == "start":
                starts[int(attempt)].append(pid)
            else:
                ends.append(int(attempt))
        # Each attempt once, numbered without a gap, and only the last one came to its end.
        # A task is a fork of its supervisor at first; one that was killed as such wrote nothing.
        assert all(len(pids) == 1 for pids in starts.values()), (number, dict(starts))
        gaps = set(range(1, max(starts, default=0))) - starts.keys()
        assert len(gaps) <= unwatched[f"job{number}"], (number, dict(starts))
        assert ends in ([], [max(starts, default=0)]), (number, dict(starts), ends)
        if status[f"job{number}"]["status"] == "SUCCEEDED":
            assert ends, (number, dict(starts))
