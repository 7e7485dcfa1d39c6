"""A user who runs the program of a row, perhaps kills it, and looks at what came of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import patience
from tests.contract.backends import PACKAGES
from tests.integration.launching import conductors, kill
from tests.pairs.programs import VARIABLES, packager, program
from tests.pairs.rows import Row
from tests.pairs.sites import IMAGE, Site

import nemo_run as run

BIN = Path(sys.executable).parent
WITHIN_S = 60.0
WHO = ["-c", "user.name=u", "-c", "user.email=u@example.com"]


class User:
    """Has a repository to work in; jobs leave marks in a directory that they see, too."""

    def __init__(self, row: Row, site: Site, root: Path, marks: Path) -> None:
        self.row, self.site = row, site
        self.work, self.marks = root / "work", marks
        self.cluster = root / "cluster"
        self.edition = f"of {row}"
        shutil.copytree(IMAGE, self.work, ignore=shutil.ignore_patterns("bin", "__pycache__"))
        (self.work / "lab" / "edition").write_text(self.edition)
        name = "workspace.py" if row["origin"] == "nemorun" else "launch.py"
        self.program = self.work / name
        self.program.write_text(self._text())
        if name == "workspace.py":
            shutil.copy(self.program, marks)
        self._git("init", "-q")
        self._git("add", ".")
        self._git("commit", "-qm", "one")
        if row["retries"] == "1":
            (marks / "fails").touch()

    def _git(self, *args: str) -> None:
        subprocess.run(["git", *WHO, *args], cwd=self.work, check=True)

    def _text(self) -> str:
        row = self.row
        settings = {**self.site.settings, "packager": packager(row)}
        settings["env_vars"] = repr(self._variables())
        settings["retries"] = row["retries"]
        if row["launcher"] == "torchrun":
            settings |= {"launcher": "'torchrun'", self.site.processes: "2"}
        if (row.site, row["shape"]) == ("slurm", "het"):
            settings["heterogeneous"] = "True"
        if row["tunnel"] == "ssh":
            settings["tunnel"] = (
                f"run.SSHTunnel(host='loop', user='root', job_dir='{self.cluster}')"
            )
        elif row["tunnel"] == "local":
            settings["tunnel"] = f"run.LocalTunnel(job_dir='{self.cluster}')"
        in_the_image = row["packager"] == "plain" and row.site != "local"
        return program(
            row, self.site.kind, settings, str(IMAGE / "told.py") if in_the_image else "told.py"
        )

    def _variables(self) -> dict[str, str]:
        name, value = VARIABLES[self.row["variable"]]
        variables = {name: value, "MARKS": str(self.marks)}
        if self.row.site != "local":
            # Where nothing travels, the image has what the user wrote.
            image = [str(IMAGE), str(self.marks)] if self.row["packager"] == "plain" else []
            variables["PYTHONPATH"] = os.pathsep.join([*PACKAGES, *image])
            variables["PATH"] = self.site.path
        return variables

    # What users do.

    def launches(self) -> subprocess.CompletedProcess[str]:
        """Launch, wait for all jobs, and return how the launching program ended."""
        if self.row["origin"] != "killed":
            done = self._runs(self._command())
            if self.row["how"] == "detached" and done.returncode == 0:
                self.experiment().wait()
            return done
        (self.marks / "gate").touch()
        with self._starts(self._command()) as launcher:
            self._wait_for_a_job(launcher)
            if self.row["how"] == "detached":
                launcher.wait(patience.seconds(WITHIN_S))
                for pid in conductors():
                    kill(pid)
            launcher.kill()
        (self.marks / "gate").unlink()
        return self._runs([str(BIN / "nemorun"), "experiment", "resume", "row"])

    def _command(self) -> list[str]:
        if self.row["origin"] == "nemorun":
            detach = ["--detach"] if self.row["how"] == "detached" else []
            return [
                str(BIN / "nemorun"),
                "row",
                "launch",
                "run.executor=executor",
                "--yes",
                *detach,
            ]
        return [sys.executable, str(self.program)]

    def _starts(self, command: list[str]) -> subprocess.Popen[str]:
        variables = {**os.environ, **self.site.variables}
        path = self.site.path if self.row.site == "local" else variables["PATH"]
        # A command does not look for packages where it is called.
        beside = {"PYTHONPATH": str(self.work)} if self.row["origin"] == "nemorun" else {}
        return subprocess.Popen(
            command,
            cwd=self.work,
            env={**variables, **beside, "COLUMNS": "300", "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _runs(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        with self._starts(command) as process:
            try:
                out, err = process.communicate(timeout=patience.seconds(WITHIN_S))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def _wait_for_a_job(self, launcher: subprocess.Popen[str]) -> None:
        def began() -> bool:
            detached = self.row["how"] == "detached"
            if launcher.poll() not in (None, 0 if detached else None):
                raise AssertionError(launcher.communicate())
            return any(self.marks.glob("began-*"))

        patience.wait_for(began, "the first job", within_s=WITHIN_S)

    # What users see.

    def experiment(self) -> run.Experiment:
        return run.Experiment.from_title("row")

    def log(self, job: str) -> str:
        """Return what `Experiment.logs` prints."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.experiment().logs(job)
        return said.getvalue()

    def told(self, job: str) -> list[dict[str, Any]]:
        """Return what the tasks of a job have told in their log."""
        lines = [line for line in self.log(job).splitlines() if "TOLD {" in line]
        return [json.loads(line[line.index("{") :]) for line in lines]
