"""The code of a job travels to the cluster with the packager that the executor has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.packagers import CASES, Case
from tests.contract.repositories import File, commit_all, make_repository, write_tree
from tests.integration.slurm.chaos import ChaosProxy
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.jobs import Jobs, log_of, script

import nemo_run as run
from nemo_run.core.frontend.console.api import configure_logging

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20


@pytest.fixture
def jobs(slurm: SlurmCluster, tmp_path: Path) -> Jobs:
    return Jobs(slurm, tmp_path)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a committed program, changed since."""
    top = make_repository(tmp_path / "my project")
    write_tree(top, {"src/program.sh": File(b"echo committed\n")})
    commit_all(top)
    (top / "src" / "program.sh").write_text("echo changed\n")
    monkeypatch.chdir(top)
    return top


def ran(jobs: Jobs, packager: run.Packager, text: str, **settings: Any) -> list[str]:
    with run.Experiment("code", clean_mode=True, check=True) as exp:
        executor = jobs.slurm_executor(packager=packager, **settings)
        exp.add(script(text), executor=executor, name="job")
        exp.run()
    return log_of(exp, "job")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_edit_runs_or_is_named(
    jobs: Jobs, repository: Path, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("WARNING")
    said = ran(jobs, case.make(repository), f"cd ./{case.below}; sh program.sh; ls")
    assert said == ["changed\n" if case.from_disk else "committed\n", "program.sh\n"]
    assert case.from_disk or "'src/program.sh'" in capsys.readouterr().err


def test_committed_code_is_what_travels_by_default() -> None:
    assert run.SlurmExecutor(account="a").packager == run.GitArchivePackager()


@pytest.fixture
def proxy(slurm: SlurmCluster) -> Iterator[ChaosProxy]:
    way = ChaosProxy(slurm.sshd.port)
    slurm.sshd.know(way.port)
    yield way
    way.close()


@pytest.fixture
def tunnel(slurm: SlurmCluster, proxy: ChaosProxy, jobs: Jobs) -> run.SSHTunnel:
    """A way to the cluster through the proxy."""
    return run.SSHTunnel(
        host="127.0.0.1",
        user=slurm.sshd.user,
        port=proxy.port,
        identity=str(slurm.sshd.identity),
        job_dir=str(jobs.remote),
    )


def test_code_is_sent_from_where_the_connection_broke_and_then_never_again(
    jobs: Jobs, tunnel: run.SSHTunnel, proxy: ChaosProxy, repository: Path
) -> None:
    (repository / "large").write_bytes(os.urandom(40 * MEGABYTE))
    text = "wc -c < large"
    proxy.cut_after_bytes = 30 * MEGABYTE
    said = ran(jobs, run.SnapshotPackager(), text, tunnel=tunnel)
    assert said == [f"{40 * MEGABYTE}\n"]
    assert proxy.connections > 1
    # What was on its way when it broke came twice; all of it would be 70.
    assert 40 * MEGABYTE < proxy.passed_bytes < 60 * MEGABYTE
    before = proxy.passed_bytes
    assert ran(jobs, run.SnapshotPackager(), text, tunnel=tunnel) == said
    assert proxy.passed_bytes - before < MEGABYTE
    (kept,) = jobs.remote.joinpath(".archives").iterdir()
    assert kept.name.endswith(".tar.gz")
