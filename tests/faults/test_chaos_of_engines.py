"""Launchers, tasks, servers and engines are killed under DAGs on a real Slurm and Docker."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import processes_with
from tests.faults.injection import Injection
from tests.faults.storms import CALMING, Storm
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PLAIN
from tests.integration.launching import alive, lines, only_experiment, ours, wait_for, write
from tests.integration.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slow, pytest.mark.needs("cc")]

STRIKES = int(os.environ.get("NEMO_RUN_CHAOS_STRIKES", "0"))
"""How much is killed or down at least, and how many calls fail; 0 for one experiment."""
SEED = int(os.environ.get("NEMO_RUN_CHAOS_SEED", "1"))
JOBS = int(os.environ.get("NEMO_RUN_CHAOS_JOBS", "4"))
MARK = "NEMO_RUN_CHAOS_NOTES"

LAUNCH = """
import random
title, notes, detach, *resume = sys.argv[1:]
if resume:
    run.Experiment.from_title(title).resume()
    sys.exit()
rng = random.Random(title)
executor = {executor}
with run.Experiment(title, executor=executor, clean_mode=True, log_level="WARN") as exp:
    ids = []
    for number in range({jobs}):
        text = (
            f"echo start $$ >> '{{notes}}/{{number}}'; "
            f"sleep {{rng.uniform(0.1, 2.0):.2f}}; "
            f"echo end $$ >> '{{notes}}/{{number}}'"
        )
        needed = rng.sample(ids[-6:], rng.randint(0, min(2, len(ids))))
        task = script(text, env={{"{mark}": notes}})
        ids.append(exp.add(task, name=f"job{{number}}", dependencies=needed))
    exp.run(detach=detach == "detach")
"""

SLURM = """run.SlurmExecutor(
    account="root", mem="100M", time="00:10:00", packager=run.Packager(),
    tunnel=run.SSHTunnel(host="loop", user="root", job_dir="{directory}"),
)"""

# With the process ids of this machine, by which tasks can be killed.
DOCKER = """run.DockerExecutor(
    container_image="{image}", pull="missing", packager=run.Packager(),
    volumes=["{directory}:{directory}"], additional_kwargs={{"pid_mode": "host"}},
)"""


class EngineStorm(Storm):
    """Also has the way to an engine, or the engine itself, be down for a while."""

    failing = ("launcher", "conductor")
    actions = (*CALMING, "kill", "kill", "kill", "outage")
    killing = ("launcher", "launcher", "launcher", "launcher", "task")
    longest_s = 60.0
    outages: tuple[Callable[[], AbstractContextManager[None]], ...] = ()

    def __init__(self, *arguments: object) -> None:
        self.struck: set[str] = set()
        super().__init__(*arguments)  # type: ignore[arg-type]

    def _act(self, action: str, kills: int) -> str:
        if action != "outage":
            return super()._act(action, kills)
        with self.rng.choice(self.outages)():
            time.sleep(self.rng.uniform(0.0, 2.0))
        return "outages"

    def _candidates(self, kind: str) -> list[int]:
        if kind != "task":
            return super()._candidates(kind)
        return [pid for path in self.notes.iterdir() if (pid := running(path)) is not None]

    def _kill(self, kind: str, pid: int) -> bool:
        jobs = [path.name for path in self.notes.iterdir() if running(path) == pid]
        if kind == "task" and not jobs:
            return False
        self.struck.update(jobs)
        return super()._kill("launcher", pid)


def running(notes: Path) -> int | None:
    """Return the process of a task that has started and not ended."""
    said = lines(notes)
    pid = int(said[0].split()[1]) if len(said) == 1 else None
    return pid if pid in processes_with(f"{MARK}={notes.parent}") else None


@pytest.mark.timeout(300 + 20 * STRIKES)
def test_on_slurm_every_job_runs_once_and_ends_as_its_task_did(
    tmp_path: Path, slurm_with_accounting: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = slurm_with_accounting
    monkeypatch.setenv("PATH", cluster.sshd.environment["PATH"])
    outages = (cluster.sshd.down, cluster.without_controller, cluster.without_accounting)
    rage(tmp_path, SLURM.format(directory=tmp_path / "cluster"), outages, monkeypatch)
    assert str(tmp_path) not in cluster.run("squeue", "-h", "-o", "%i %T %o")


@pytest.mark.timeout(300 + 20 * STRIKES)
def test_on_docker_every_job_runs_once_and_ends_as_its_task_did(
    tmp_path: Path, docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in docker_engine.environment.items():
        monkeypatch.setenv(name, value)
    executor = DOCKER.format(image=PLAIN, directory=tmp_path)
    rage(tmp_path, executor, (docker_engine.out_of_reach, docker_engine.hanging), monkeypatch)


def rage(
    tmp_path: Path,
    executor: str,
    outages: tuple[Callable[[], AbstractContextManager[None]], ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let storms rage until enough was killed, was down or failed; all must be right after each."""
    injection = Injection(tmp_path / "shim", Path(os.environ["NEMORUN_HOME"]))
    for name, value in injection.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(EngineStorm, "outages", outages)
    rng = random.Random(SEED)
    path = write(tmp_path, LAUNCH.format(executor=executor, jobs=JOBS, mark=MARK))
    done: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    number = 0
    while not number or min(done["killed"] + done["outages"], injection.met().total()) < STRIKES:
        title = f"chaos{SEED}x{number}"
        notes = tmp_path / f"notes-{title}"
        notes.mkdir()
        detach = "detach" if number % 2 else "attach"
        storm = EngineStorm(path, [title, str(notes), detach], rng, injection)
        done += storm.rage_on(STRIKES or 3)
        storm.clear_up()
        storm.calm_down()
        outcomes += check(title, notes, storm.struck)
        wait_for(partial(nothing_left, notes), f"the end of all processes, {left(notes)}", 30)
        number += 1
        print(title, dict(done), "met:", dict(injection.met()), "outcomes:", dict(outcomes))


def left(notes: Path) -> dict[int, str]:
    """Return what runs of an experiment, but for connections, which the next one shares."""
    running = ours() | dict.fromkeys(filter(alive, processes_with(f"{MARK}={notes}")), "a task")
    return {pid: text for pid, text in running.items() if "ControlMaster" not in text}


def nothing_left(notes: Path) -> bool:
    return not left(notes)


def check(title: str, notes: Path, struck: set[str]) -> Counter[str]:
    """Compare what is said of jobs with what their tasks wrote, and with which were killed."""
    exp = only_experiment(title)
    status = json.loads(exp.status_json())
    wrong = {}
    for job in exp.jobs:
        state, number = status[job.id]["status"], job.id.removeprefix("job")
        said = [line.split()[0] for line in lines(notes / number)]
        skipped = any(status[other]["status"] != "SUCCEEDED" for other in job.dependencies)
        right = {
            (): {"CANCELLED"} if skipped else set(),
            ("start",): {"FAILED"} if number in struck else set(),
            # One that is killed after its last word may have ended before that.
            ("start", "end"): {"SUCCEEDED", *(["FAILED"] if number in struck else [])},
        }.get(tuple(said), set())
        if state not in right or (skipped and said):
            wrong[job.id] = (state, status[job.id]["message"], said, job.dependencies)
    assert wrong == {}
    assert len(status) == JOBS
    return Counter(entry["status"] for entry in status.values())
