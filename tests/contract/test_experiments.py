"""What an experiment promises of its jobs, wherever they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import patience
from tests.contract.backends import ROOT, Cluster
from tests.contract.experiments import experiment, states, statuses

import nemo_run as run
from nemo_run.core.serialization._envelope import unseal

SCRIPT = """\
import multiprocessing, sys
from dataclasses import dataclass
from pathlib import Path
import nemo_run as run

@dataclass(kw_only=True)
class Announcing(run.Packager):
    word: str
    def setup(self):
        print("set up", self.word, flush=True)

@dataclass
class Square:
    of: int

def square(number):
    return Square(number)

def task(numbers):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print([found.of ** 2 for found in pool.map_async(square, numbers).get(60)], flush=True)
    print("functions of", square.__module__)

if __name__ == "__main__":
    from tests.contract.backends import BACKENDS
    cluster = BACKENDS[sys.argv[1]](Path(sys.argv[2]))
    executor = cluster.with_nemo_run(packager=Announcing(word="first"))
    with run.Experiment("mine", executor, clean_mode=True, log_level="WARN", check=True) as exp:
        exp.add(run.Partial(task, [1, 2]), name="job")
        exp.run()
"""


OWN = """\
import sys, tarfile
from dataclasses import dataclass
from pathlib import Path
import nemo_run as run

@dataclass(kw_only=True)
class Writing(run.Packager):
    word: str
    def package(self, path, job_dir, name):
        file, archive = Path(job_dir) / "word.txt", Path(job_dir) / f"{name}.tar.gz"
        file.write_text(f"code of {self.word}\\n")
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(file, "word.txt")
        return str(archive)

def show(first):
    for name in (first, "beside.txt"):
        print(Path(name).read_text() if Path(name).exists() else "not here", end="", flush=True)

if __name__ == "__main__":
    from tests.contract.backends import BACKENDS
    cluster = BACKENDS[sys.argv[1]](Path(sys.argv[2]))
    here = Path(__file__).parent
    (here / "beside.txt").write_text("code beside the script\\n")
    beside = run.PatternPackager(include_pattern=f"{here}/*.txt", relative_path=str(here))
    parts = {"part": Writing(word="mine"), "beside": beside}
    packager = run.HybridPackager(sub_packagers=parts, extract_at_root=True)
    executor = cluster.with_nemo_run(packager=packager)
    with run.Experiment(sys.argv[3], executor, clean_mode=True, log_level="WARN") as exp:
        task = run.Script(inline="cat word.txt beside.txt 2>/dev/null || true")
        first = exp.add(task, name="first")
        exp.add(run.Partial(show, "word.txt"), name="second", dependencies=[first])
        exp.run(detach=True)
"""

AGAIN = """\
import sys
from pathlib import Path
import nemo_run as run
from tests.contract.backends import BACKENDS
cluster = BACKENDS[sys.argv[1]](Path(sys.argv[2]))
exp = run.Experiment.from_title(sys.argv[3])
exp.wait()
exp.clean_mode = True
with exp.reset() as exp:
    exp.run()
"""

TITLE = 'own/it\'s $word of "mine" \\ naïve'
"""Every sign in it means something to a shell, a path or a log's name."""


def launch(script: Path, cluster: Cluster, root: Path, *words: str) -> None:
    """Run a script that launches on ``cluster``, in a process of its own, to its end."""
    done = subprocess.run(
        [sys.executable, str(script), cluster.name, str(root), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=patience.seconds(100 * cluster.patience),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def words(exp: run.Experiment, job: int) -> list[str]:
    scheduler, app_id = exp._runner.scheduler_of(exp.jobs[job].handle)
    (role,) = scheduler.describe(app_id).roles
    return [line.rstrip("\r\n") for line in scheduler.log_iter(app_id, role.name)]


def test_jobs_of_one_name_have_each_their_own_code_and_directory(
    cluster: Cluster, tmp_path: Path
) -> None:
    with experiment("twins") as exp:
        for who in ("one", "two"):
            code = tmp_path / f"code-{who}"
            code.mkdir()
            (code / "who.txt").write_text(f"the code of {who}\n")
            packager = run.PatternPackager(include_pattern=f"{code}/*", relative_path=str(code))
            task = run.Script(inline=f"cat who.txt 2>/dev/null; echo I am {who}, not $OTHER")
            executor = cluster.executor(packager=packager)
            executor.env_vars["OTHER"] = f"after {who}"
            exp.add(task, executor=executor, name="twin")
        exp.run()
    assert states(exp) == {"twin": "SUCCEEDED", "twin_1": "SUCCEEDED"}
    for position, who in enumerate(("one", "two")):
        travelled = [] if cluster.name == "local" else [f"the code of {who}"]
        assert words(exp, position) == [*travelled, f"I am {who}, not after {who}"]
    places = [entry["local_dir"] for entry in statuses(exp).values()]
    assert [Path(place).name for place in places] == ["twin", "twin_1"]


def test_functions_and_packagers_of_the_launching_script_run_in_the_job(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "launching").mkdir()
    script = tmp_path / "launching" / "launch.py"
    script.write_text(SCRIPT)
    launch(script, cluster, tmp_path)
    (found,) = run.Experiment.catalog("mine")
    exp = run.Experiment.from_id(found)
    assert states(exp) == {"job": "SUCCEEDED"}
    assert words(exp, 0) == ["set up first", "[1, 4]", "functions of __main__"]


def test_classes_of_the_launching_script_are_kept_when_others_run_its_jobs(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "launching").mkdir()
    # A backslash in the path of a log means something to Slurm, so it is refused there.
    title = TITLE.replace("\\", "") if cluster.name.startswith("slurm") else TITLE
    for text in (OWN, AGAIN):
        script = tmp_path / "launching" / "launch.py"
        script.write_text(text)
        launch(script, cluster, tmp_path, title)
    found = run.Experiment.catalog(title)
    assert len(found) == 2
    for id in found:
        exp = run.Experiment.from_id(id)
        kept = json.dumps([unseal(job) for job, _ in exp._directory.read_tasks()])
        assert '"name": "Writing"' in kept
        assert states(exp) == {"first": "SUCCEEDED", "second": "SUCCEEDED"}
        if cluster.name != "local":  # whose jobs use the code where it is
            code = ["code of mine", "code beside the script"]
            assert [words(exp, job) for job in (0, 1)] == [code] * 2
