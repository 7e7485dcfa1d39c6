"""An upgrade while experiments run: the new version sees through what the old one started.

The old version comes from this repository's history. It is put into a directory that is first on
the path of a launching script and of all it starts, and there it is replaced by the version that is
tested, as an installer does: under processes that go on.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.compat.homes import archive
from tests.conftest import processes_with
from tests.integration.launching import command_line, wait_for

import nemo_run

pytestmark = pytest.mark.slow

OLD = "602bb119d171818be5c75cb6a5263516bcb878a7"
OLD_CONDUCTOR = "nemo_run.run._detached"
REPOSITORY = Path(__file__).parents[2]

SCRIPT = '''
import sys
from pathlib import Path

import nemo_run as run

HERE = Path(__file__).parent


def note(name: str, path: str) -> None:
    """Write down that a job runs, and which version runs it."""
    version = (Path(run.__file__).parent / "VERSION").read_text()
    with Path(path).open("a") as file:
        file.write(f"{name} {version}\\n")


def noting(name: str) -> run.Partial:
    return run.Partial(note, name, str(HERE / "ran"))


def waiting() -> run.Script:
    note = f"echo first old >> '{HERE}/ran'"
    return run.Script(inline=f"{note}; until [ -e '{HERE}/gate' ]; do sleep 0.1; done")


if __name__ == "__main__":
    with run.Experiment("dag") as exp:
        first = exp.add(waiting(), name="first")
        second = exp.add(noting("second"), name="second", dependencies=[first])
        pair = exp.add([noting("left"), noting("right")], name="pair", dependencies=[second])
        exp.add(noting("last"), name="last", dependencies=[pair])
        exp.run(detach="detach" in sys.argv)
'''
AFTERWARDS = ["first old", "last new", "left new", "right new", "second new"]


class Machine:
    """A directory with an installed version, a script, and what the script's jobs have written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = root / "site"
        self.script = root / "launch.py"
        self.script.write_text(SCRIPT)
        self.environment = {**os.environ, "PYTHONPATH": str(self.site)}

    def install_old(self) -> None:
        """Put the old version in place.

        It must be in the history: tests cannot say anything about an upgrade without it.
        """
        command = ["git", "-C", str(REPOSITORY), "archive", OLD, "src/nemo_run"]
        done = subprocess.run(command, capture_output=True)
        if done.returncode:
            pytest.fail(
                f"The version to upgrade from, {OLD}, is not in the history of {REPOSITORY}: "
                f"{done.stderr.decode()}Fetch it, in a shallow clone with git fetch --unshallow."
            )
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
            archive.extract(tar, self.root)
        (self.root / "src").rename(self.site)
        self._mark("old")

    def upgrade(self) -> None:
        """Replace what is installed by the version that is tested."""
        package = self.site / "nemo_run"
        shutil.rmtree(package)
        ours = Path(nemo_run.__file__).parent
        shutil.copytree(ours, package, ignore=shutil.ignore_patterns("__pycache__"))
        self._mark("new")

    def _mark(self, version: str) -> None:
        (self.site / "nemo_run" / "VERSION").write_text(version)

    def launch(self, *words: str) -> subprocess.Popen[bytes]:
        return self._start([str(self.script), *words])

    def experiment(self, *words: str) -> subprocess.Popen[bytes]:
        """Start ``nemorun experiment`` with these words."""
        return self._start(["-m", "nemo_run", "experiment", *words])

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.root / "printed").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, *command],
                cwd=self.root,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if "--json" in command else out,
                stderr=out,
                start_new_session=True,
            )

    def states(self) -> dict[str, str]:
        asked = self.experiment("status", "dag", "--json")
        told: dict[str, Any] = json.loads(asked.communicate(timeout=patience.seconds(60))[0])
        return {job: entry["status"] for job, entry in told["jobs"].items()}

    def ran(self) -> list[str]:
        path = self.root / "ran"
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def open_gate(self) -> None:
        (self.root / "gate").touch()

    def printed(self) -> str:
        return (self.root / "printed").read_text()

    def conductor(self) -> int:
        """Return the process that sees the old version's detached experiment through."""
        home = os.environ["NEMORUN_HOME"]
        (found,) = [
            pid
            for pid in processes_with(f"NEMORUN_HOME={home}")
            if OLD_CONDUCTOR in command_line(pid)
        ]
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.install_old()
    return made


@pytest.mark.parametrize("how", [[], ["--detach"]])
def test_resume_sees_through_what_a_killed_conductor_left(machine: Machine, how: list[str]) -> None:
    assert machine.launch("detach").wait(patience.seconds(60)) == 0, machine.printed()
    wait_for(machine.ran, "the first job", timeout_s=100)
    os.kill(machine.conductor(), signal.SIGKILL)
    machine.upgrade()
    wait_for(lambda: machine.states()["first"] == "RUNNING", "word of the first job")
    resumed = machine.experiment("resume", "dag", *how)
    machine.open_gate()
    assert resumed.wait(patience.seconds(100)) == 0, machine.printed()
    assert machine.experiment("wait", "dag").wait(patience.seconds(100)) == 0, machine.printed()
    assert set(machine.states().values()) == {"SUCCEEDED"}
    assert machine.ran() == AFTERWARDS


def test_resume_sees_through_what_a_killed_launcher_left(machine: Machine) -> None:
    launcher = machine.launch()
    wait_for(machine.ran, "the first job", timeout_s=100)
    launcher.kill()
    launcher.wait()
    machine.upgrade()
    machine.open_gate()
    assert machine.experiment("resume", "dag").wait(patience.seconds(100)) == 0, machine.printed()
    assert set(machine.states().values()) == {"SUCCEEDED"}
    assert machine.ran() == AFTERWARDS


def test_a_job_of_the_old_version_is_cancelled_by_the_new_one(machine: Machine) -> None:
    assert machine.launch("detach").wait(patience.seconds(60)) == 0, machine.printed()
    wait_for(machine.ran, "the first job", timeout_s=100)
    machine.upgrade()
    assert machine.experiment("cancel", "dag", "--all").wait(patience.seconds(60)) == 0, (
        machine.printed()
    )
    machine.experiment("wait", "dag").wait(patience.seconds(60))
    assert set(machine.states().values()) == {"CANCELLED"}
    assert machine.ran() == ["first old"]
