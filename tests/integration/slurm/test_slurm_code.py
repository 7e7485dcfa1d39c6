"""The code of a job travels to the cluster with the packager that the executor has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.packagers import CASES, Case
from tests.contract.repositories import File, commit_all, make_repository, write_tree
from tests.integration.launching import launch
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


LAUNCH = """\
import sys
from pathlib import Path
import nemo_run as run

def executor():
    return run.SlurmExecutor(
        account="root",
        mem="100M",
        tunnel=run.SSHTunnel(host="loop", user="root", job_dir=sys.argv[1]),
        packager=run.PatternPackager(include_pattern="common/*", relative_path=str(Path.cwd())),
    )

if __name__ == "__main__":
    with run.Experiment("steps") as exp:
        first = exp.add(run.Script("common/a.sh", args=["one"]), executor=executor(), name="one")
        exp.add(
            run.Script("common/a.sh", args=["two"]),
            executor=executor(),
            name="two",
            dependencies=[first],
        )
        exp.run(detach=True)
"""


def test_steps_that_were_left_alone_find_their_code(jobs: Jobs, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "common").mkdir(parents=True)
    (work / "common" / "a.sh").write_text(". common/lib.sh; note $1 $PWD\n")
    (work / "common" / "lib.sh").write_text("note() { echo the step $1; ls $2; }\n")
    (work / "launch.py").write_text(LAUNCH)
    done = launch(work / "launch.py", str(jobs.remote))
    assert done.returncode == 0, done.stderr
    exp = run.Experiment.from_title("steps")
    exp.wait()
    exp.raise_if_failed()
    for job in exp.jobs:
        scheduler, app_id = exp._runner.scheduler_of(job.handle)
        lines = list(scheduler.log_iter(app_id, job.id))
        assert lines == [f"the step {job.id}\n", "common\n"]


REUSE = """\
import sys
import nemo_run as run
from nemo_run.core.execution.slurm import get_packaging_job_key

def executor(reused=None):
    packager = run.GitArchivePackager(check_uncommitted_changes=True)
    packager.symlink_from_remote_dir = reused
    return run.SlurmExecutor(
        account="root",
        mem="100M",
        tunnel=run.SSHTunnel(host="loop", user="root", job_dir=sys.argv[2]),
        packager=packager,
    )

def code_of(exp):
    key = get_packaging_job_key(exp._id, "tool")
    return exp.tunnels[executor().tunnel.key].packaging_jobs[key].dst_path

def launch(title, reused=None):
    with run.Experiment(title, executor=executor(reused), check=True) as exp:
        exp.add(run.Script("src/program.sh"), name="tool")
        exp.run()
    return exp

if __name__ == "__main__":
    if sys.argv[1] == "first":
        first = launch("first")
        launch("second", code_of(first))
    else:
        launch("third", code_of(run.Experiment.from_title("first")))
        # What reuses code can be reused itself.
        launch("fourth", code_of(run.Experiment.from_title("third")))
"""


def test_code_on_the_cluster_is_found_and_used_again(jobs: Jobs, repository: Path) -> None:
    (repository / "launch.py").write_text(REUSE)
    commit_all(repository)
    for which in ("first", "later"):
        done = launch(repository / "launch.py", which, str(jobs.remote))
        assert done.returncode == 0, done.stderr
        # Packaged anew, this would be refused: it is not committed.
        (repository / "src" / "program.sh").write_text("echo edited\n")
    first = run.Experiment.from_title("first")
    code = first.tunnels["root@loop"].packaging_jobs[f"{first._id}:tool"].dst_path
    assert code == str(jobs.remote / "first" / first._id / "tool" / "code")
    for title in ("first", "second", "third", "fourth"):
        exp = run.Experiment.from_title(title)
        assert log_of(exp, "tool") == ["changed\n"]
        found = exp.tunnels["root@loop"].packaging_jobs[f"{exp._id}:tool"]
        assert found.dst_path is not None
        assert Path(found.dst_path).resolve() == Path(code)
        assert found.symlink is (title != "first")
