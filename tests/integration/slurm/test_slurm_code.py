"""The code of a job travels to the cluster with the packager that the executor has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.jobs import Jobs, log_of, script

import nemo_run as run
from nemo_run.core.frontend.console.api import configure_logging

pytestmark = pytest.mark.slow


@pytest.fixture
def jobs(slurm: SlurmCluster, tmp_path: Path) -> Jobs:
    return Jobs(slurm, tmp_path)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a committed program, changed since."""
    top = tmp_path / "my project"
    top.mkdir()
    git = ["git", "-C", str(top), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (top / "program.sh").write_text("echo committed\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    (top / "program.sh").write_text("echo changed\n")
    monkeypatch.chdir(top)
    return top


def ran(jobs: Jobs, packager: run.Packager) -> list[str]:
    with run.Experiment("code", clean_mode=True, check=True) as exp:
        executor = jobs.slurm_executor(packager=packager)
        exp.add(script("sh program.sh; ls"), executor=executor, name="job")
        exp.run()
    return log_of(exp, "job")


def test_a_snapshot_runs_what_is_on_disk(jobs: Jobs, repository: Path) -> None:
    assert ran(jobs, run.SnapshotPackager()) == ["changed\n", "program.sh\n"]


def test_git_runs_what_is_committed_and_names_what_is_not(
    jobs: Jobs, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("WARNING")
    assert ran(jobs, run.GitArchivePackager()) == ["committed\n", "program.sh\n"]
    assert "'program.sh'" in capsys.readouterr().err


def test_committed_code_is_what_travels_by_default() -> None:
    assert run.SlurmExecutor(account="a").packager == run.GitArchivePackager()
