"""Whoever is killed in the middle of submitting: the job is there once."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.launching import launch, start, write
from tests.integration.slurm.chaos import ChaosProxy
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.jobs import Jobs, log_of, script, wait_until
from tests.integration.slurm.slow import SlowSbatch
from torchx.specs import AppState

import nemo_run as run
from nemo_run._backends.slurm import remote

pytestmark = pytest.mark.slow


@pytest.fixture(params=["slurm", "bare_slurm"], ids=["accounting", "without-accounting"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Jobs:
    return Jobs(request.getfixturevalue(request.param), tmp_path)


@pytest.fixture(params=["before", "after"])
def slow(request: pytest.FixtureRequest, tmp_path: Path) -> SlowSbatch:
    return SlowSbatch(tmp_path / "slow", request.param)


@contextmanager
def meanwhile(condition: Callable[[], bool], act: Callable[[], None]):
    """Do something in another thread as soon as a condition holds, while entered."""

    def wait_and_act() -> None:
        wait_until(condition, "moment to act")
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    yield
    thread.join()


def test_a_server_that_is_killed_while_submitting_leaves_one_job(
    jobs: Jobs, slow: SlowSbatch
) -> None:
    sshd = jobs.engine.sshd
    tunnel = run.SSHTunnel(
        host="loop", user="root", job_dir=str(jobs.remote), pre_command=slow.command
    )
    planned = jobs.plan("echo once", tunnel=tunnel)

    def kill_for_a_moment() -> None:
        with sshd.down():
            pass

    with meanwhile(slow.reached, kill_for_a_moment):
        app_id = jobs.scheduler.schedule(planned)
    assert jobs.wait(app_id, timeout_s=60).state is AppState.SUCCEEDED
    assert len(jobs.submitted()) == 1
    assert jobs.lines(app_id) == ["once\n"]


LAUNCH = """
remote, before = sys.argv[1:]
tunnel = run.SSHTunnel(host="loop", user="root", job_dir=remote, pre_command=before)
executor = run.SlurmExecutor(account="root", mem="100M", tunnel=tunnel, packager=run.Packager())
with run.Experiment("killed", executor=executor, clean_mode=True) as exp:
    exp.add(script("echo once"), name="job")
    exp.run()
"""

RESUME = """
exp = run.Experiment.from_title("killed")
exp.resume()
print(exp.status_json())
"""


def test_a_launcher_that_is_killed_while_submitting_leaves_one_job(
    jobs: Jobs, slow: SlowSbatch, tmp_path: Path
) -> None:
    launcher = start(write(tmp_path, LAUNCH), str(jobs.remote), slow.command)
    wait_until(slow.reached, "sbatch")
    launcher.kill()
    launcher.wait()
    done = launch(write(tmp_path, RESUME, "resume.py"))
    assert done.returncode == 0, done.stderr
    assert '"SUCCEEDED"' in done.stdout
    assert len(jobs.submitted()) == 1


class TestCode:
    @pytest.fixture
    def proxy(self, slurm: SlurmCluster):
        way = ChaosProxy(slurm.sshd.port)
        slurm.sshd.know(way.port)
        yield way
        way.close()

    @pytest.fixture
    def executor(
        self,
        slurm: SlurmCluster,
        proxy: ChaosProxy,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> run.SlurmExecutor:
        """An executor with four megabytes of code, by way of the proxy."""
        top = tmp_path / "project"
        top.mkdir()
        (top / "data").write_bytes(os.urandom(4_000_000))
        subprocess.run(["git", "init", "-q", str(top)], check=True)
        monkeypatch.chdir(top)
        tunnel = run.SSHTunnel(
            host="127.0.0.1",
            user=slurm.sshd.user,
            port=proxy.port,
            identity=str(slurm.sshd.identity),
            job_dir=str(tmp_path / "cluster"),
        )
        made = Jobs(slurm, tmp_path).executor(tunnel=tunnel, packager=run.SnapshotPackager())
        assert isinstance(made, run.SlurmExecutor)
        return made

    def ran(self, executor: run.SlurmExecutor) -> list[str]:
        with run.Experiment("code", executor=executor, clean_mode=True, check=True) as exp:
            exp.add(script("wc -c <data"), name="job")
            exp.run()
        return log_of(exp, "job")

    def test_it_may_take_longer_than_a_command_may(
        self, executor: run.SlurmExecutor, proxy: ChaosProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(remote, "TIMEOUT_S", 3.0)
        proxy.delay_s = 0.2  # for each block of at most 64 kilobytes: twelve seconds in all
        assert self.ran(executor) == ["4000000\n"]

    def test_it_is_sent_again_when_the_connection_is_cut(
        self, executor: run.SlurmExecutor, proxy: ChaosProxy
    ) -> None:
        proxy.cut_after_bytes = 2_000_000
        assert self.ran(executor) == ["4000000\n"]
        assert proxy.connections == 2
