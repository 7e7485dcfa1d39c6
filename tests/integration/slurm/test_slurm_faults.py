"""Trouble on the way to a cluster and on it: jobs go on, their ends are right, none runs twice."""

from __future__ import annotations

import contextlib
import random
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.secrets import command_lines, holds
from tests.integration.slurm.chaos import ChaosProxy
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.jobs import Jobs, script, wait_until
from torchx.specs import AppState, is_terminal

import nemo_run as run
from nemo_run._backends.slurm.batch import STATE_DIR
from nemo_run.exceptions import SubmitError

pytestmark = pytest.mark.slow


@pytest.fixture
def jobs(slurm: SlurmCluster, tmp_path: Path) -> Jobs:
    return Jobs(slurm, tmp_path)


@pytest.fixture
def bare_jobs(bare_slurm: SlurmCluster, tmp_path: Path) -> Jobs:
    return Jobs(bare_slurm, tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory with room for a few files."""
    directory = tmp_path / "small"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(directory)]
    subprocess.run(mount, check=True)
    yield directory
    # Slurm may hold a log open for another moment.
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


class TestConnection:
    def test_no_job_is_submitted_twice_whenever_the_connection_breaks(self, jobs: Jobs) -> None:
        rng = random.Random(7)
        app_ids = []
        for number in range(6):
            cut = threading.Timer(rng.uniform(0, 0.6), jobs.engine.sshd.drop_connections)
            cut.start()
            app_ids.append(jobs.schedule("echo once", name=f"job-{number}"))
            cut.join()
        assert {jobs.wait(app_id, timeout_s=60).state for app_id in app_ids} == {AppState.SUCCEEDED}
        assert len(jobs.submitted()) == len(set(jobs.submitted())) == len(app_ids)
        assert [jobs.lines(app_id) for app_id in app_ids] == [["once\n"]] * len(app_ids)

    def test_a_server_that_is_away_for_a_while_is_waited_for(self, jobs: Jobs) -> None:
        planned = jobs.plan("echo once")
        jobs.engine.sshd.kill()
        back = threading.Timer(2, jobs.engine.sshd.restart)
        back.start()
        app_id = jobs.scheduler.schedule(planned)
        back.join()
        assert jobs.wait(app_id).state is AppState.SUCCEEDED
        assert len(jobs.submitted()) == 1

    def test_a_followed_log_comes_whole_and_once(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("for i in $(seq 60); do echo line $i; sleep 0.1; done")
        lines = jobs.scheduler.log_iter(app_id, "job", should_tail=True)
        seen = []
        for line in lines:
            seen.append(line)
            if line == "line 10\n":
                jobs.engine.sshd.drop_connections()
            if line == "line 25\n":
                jobs.engine.sshd.kill()
                back = threading.Timer(1, jobs.engine.sshd.restart)
                back.start()
        back.join()
        assert seen == [f"line {n}\n" for n in range(1, 61)]

    def test_an_experiment_is_seen_through_over_a_bad_line(
        self, jobs: Jobs, nemorun_home: Path
    ) -> None:
        sshd = jobs.engine.sshd
        proxy = ChaosProxy(sshd.port)
        sshd.know(proxy.port)
        tunnel = run.SSHTunnel(
            host="127.0.0.1",
            user=sshd.user,
            port=proxy.port,
            identity=str(sshd.identity),
            job_dir=str(jobs.remote),
        )
        stop = threading.Event()

        def cut_now_and_then() -> None:
            while not stop.wait(1.5):
                proxy.cut()

        cutting = threading.Thread(target=cut_now_and_then)
        cutting.start()
        try:
            executor = jobs.executor(tunnel=tunnel)
            with run.Experiment("line", executor=executor, clean_mode=True, check=True) as exp:
                a = exp.add(script("sleep 2"), name="a")
                exp.add(script("sleep 1"), name="b", dependencies=[a])
                exp.add(script("sleep 4"), name="c")
                exp.run()
        finally:
            stop.set()
            cutting.join()
            proxy.close()
        assert len(jobs.submitted()) == 3

    def test_a_job_is_found_again_though_nobody_wrote_down_its_number(self, jobs: Jobs) -> None:
        planned = jobs.plan("sleep 1")
        app_id = jobs.scheduler.schedule(planned)
        (state_dir,) = jobs.remote.glob(f"*/*/*/{STATE_DIR}/*")
        for name in ("code", "out", "err"):
            (state_dir / name).unlink()
        shutil.rmtree(jobs.root / "nemorun_home" / "jobs")
        assert jobs.scheduler.submitted(planned) == app_id
        assert jobs.wait(app_id).state is AppState.SUCCEEDED

    @pytest.mark.parametrize("settings", [{}, {"array": "0-1"}], ids=["job", "array"])
    def test_a_job_is_not_submitted_again_when_only_its_files_know_it(
        self, bare_jobs: Jobs, settings: dict[str, Any]
    ) -> None:
        planned = bare_jobs.plan("true", **settings)
        with bare_jobs.engine.forgetful():
            app_id = bare_jobs.scheduler.schedule(planned)
            bare_jobs.wait(app_id)
            (state_dir,) = bare_jobs.remote.glob(f"*/*/*/{STATE_DIR}/*")
            for name in ("code", "out", "err"):
                (state_dir / name).unlink()
            wait_until(lambda: not bare_jobs.submitted(), "end of Slurm's memory", 180)
            shutil.rmtree(bare_jobs.root / "nemorun_home" / "jobs")
            assert bare_jobs.scheduler.submitted(planned) == app_id

    def test_what_was_never_submitted_is_not_found(self, jobs: Jobs) -> None:
        planned = jobs.plan("true")
        jobs.schedule("true", name="another")
        assert jobs.scheduler.submitted(planned) is None


class TestDaemons:
    def test_a_job_goes_on_while_the_controller_is_away(self, jobs: Jobs) -> None:
        mark = jobs.scratch / "go"
        wait = f"while [ ! -e {shlex.quote(str(mark))} ]; do sleep 0.1; done"
        app_id = jobs.schedule(f"echo up; {wait}; echo down; exit 5")
        jobs.wait_for_line(app_id, "up\n")
        jobs.wait_for(app_id, AppState.RUNNING)
        with jobs.engine.without_controller():
            during = jobs.status(app_id)
            mark.touch()
        assert during is not None
        assert during.state is AppState.RUNNING
        assert "cannot be reached" in during.message
        end = jobs.wait(app_id, timeout_s=90)
        assert (end.state, end.exit_code) == (AppState.FAILED, 5)
        assert jobs.lines(app_id) == ["up\n", "down\n"]

    def test_a_job_is_submitted_once_the_controller_is_back(self, jobs: Jobs) -> None:
        planned = jobs.plan("echo once")
        jobs.engine.stop_controller()
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(jobs.scheduler.schedule(planned)))
        thread.start()
        time.sleep(2)
        jobs.engine.start_controller()
        thread.join(timeout=patience.seconds(100))
        assert jobs.wait(found[0], timeout_s=60).state is AppState.SUCCEEDED
        assert len(jobs.submitted()) == 1

    def test_jobs_run_and_end_without_the_database(self, jobs: Jobs) -> None:
        with jobs.engine.without_accounting():
            app_id = jobs.schedule("echo hi; exit 3")
            end = jobs.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 3)

    def test_the_end_of_a_job_is_known_without_the_database_when_the_queue_forgot_it(
        self, jobs: Jobs
    ) -> None:
        with jobs.engine.forgetful(), jobs.engine.without_accounting():
            left = jobs.schedule("echo hi; exit 3", name="left")
            held = jobs.schedule("true", name="held", additional_parameters={"hold": True})
            jobs.engine.run("scancel", held)
            wait_until(lambda: not jobs.submitted(), "end of Slurm's memory", 180)
            end = jobs.wait(left)
            during = jobs.status(held)
        assert (end.state, end.exit_code) == (AppState.FAILED, 3)
        # Only accounting knows of it, and may say so later.
        assert during is not None
        assert not is_terminal(during.state)
        assert "accounting does not answer" in during.message
        assert jobs.wait(held, timeout_s=120).state is AppState.CANCELLED

    def test_what_jobs_left_behind_tells_their_ends_when_nobody_else_can(
        self, bare_jobs: Jobs
    ) -> None:
        good = bare_jobs.schedule("echo hi", name="good")
        bad = bare_jobs.schedule("echo hi; exit 3", name="bad")
        for app_id, word in ((good, "COMPLETED"), (bad, "FAILED")):
            wait_until(lambda i=app_id, w=word: bare_jobs.squeue(i, "%T") == w, word)  # type: ignore[misc]
        with bare_jobs.engine.without_controller():
            ends = [bare_jobs.status(good), bare_jobs.status(bad)]
        found = [(end.state, end.exit_code) for end in ends if end is not None]
        assert found == [(AppState.SUCCEEDED, 0), (AppState.FAILED, 3)]

    def test_a_job_is_over_only_when_slurm_says_so(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("trap 'sleep 1; exit 0' TERM; echo up; sleep 60 & wait")
        jobs.wait_for_line(app_id, "up\n")
        jobs.cancel(app_id)
        assert jobs.squeue(app_id, "%T") == "CANCELLED"

    def test_a_job_that_was_cancelled_before_it_started_is_so_also_when_slurm_forgot_it(
        self, bare_jobs: Jobs
    ) -> None:
        with bare_jobs.engine.forgetful():
            app_id = bare_jobs.schedule("true", additional_parameters={"hold": True})
            (state_dir,) = bare_jobs.remote.glob(f"*/*/*/{STATE_DIR}/*")
            # As by a launcher that was killed before it saw the end.
            (state_dir / "cancelled").touch()
            bare_jobs.engine.run("scancel", app_id)
            wait_until(lambda: not bare_jobs.submitted(), "end of Slurm's memory", 180)
            assert bare_jobs.wait(app_id).state is AppState.CANCELLED
            bare_jobs.cancel(app_id)

    def test_restarts_that_were_seen_are_not_forgotten_with_the_job(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("sleep 300")
        jobs.wait_for(app_id, AppState.RUNNING)
        jobs.engine.run("scontrol", "requeue", app_id)
        wait_until(lambda: jobs.scheduler.describe(app_id).num_restarts == 1, "restart", 90)
        with jobs.engine.forgetful():
            jobs.engine.run("scancel", app_id)
            wait_until(lambda: not jobs.submitted(), "end of Slurm's memory", 180)
            # That it was cancelled only accounting knows, perhaps later than that it has ended.
            assert jobs.wait(app_id).state in (AppState.CANCELLED, AppState.FAILED)
        assert jobs.scheduler.describe(app_id).num_restarts == 1

    def test_the_last_words_of_cancelled_jobs_are_not_lost(self, jobs: Jobs) -> None:
        # Slurm asks all processes, the sleeping one perhaps first, and the shell is to outlive it.
        wait = "while :; do sleep 60 & wait; done"
        text = f"trap 'echo cleaned; exit 0' TERM; echo up; {wait}"
        app_ids = [jobs.schedule(text, name=f"job-{number}") for number in range(8)]
        for app_id in app_ids:
            jobs.wait_for_line(app_id, "up\n")
            jobs.cancel(app_id)
        assert {jobs.wait(app_id).state for app_id in app_ids} == {AppState.CANCELLED}
        assert [jobs.lines(app_id)[-1] for app_id in app_ids] == ["cleaned\n"] * 8


class TestDisk:
    def test_a_job_that_does_not_fit_is_refused(self, jobs: Jobs, small_disk: Path) -> None:
        tunnel = run.SSHTunnel(host="loop", user="root", job_dir=str(small_disk))
        (small_disk / "full").write_bytes(b"x" * 250_000)
        with pytest.raises(SubmitError, match="No space left"):
            jobs.schedule("echo hi", tunnel=tunnel)

    def test_a_job_that_fills_its_disk_ends_as_it_ended(self, jobs: Jobs, small_disk: Path) -> None:
        tunnel = run.SSHTunnel(host="loop", user="root", job_dir=str(small_disk))
        app_id = jobs.schedule("head -c 2000000 /dev/zero | tr '\\0' x; exit 9", tunnel=tunnel)
        end = jobs.wait(app_id, timeout_s=90)
        assert (end.state, end.exit_code) == (AppState.FAILED, 9)


SECRET = "tok-71c0a5e1-planted"


class TestSecrets:
    def test_a_secret_is_in_the_environment_of_the_job_and_nowhere_else(
        self, jobs: Jobs, tmp_path: Path
    ) -> None:
        seen: list[str] = []
        over = threading.Event()
        go = tmp_path / "go"

        def sample() -> None:
            while not over.wait(0.05):
                seen.append(command_lines())

        sampling = threading.Thread(target=sample)
        sampling.start()
        try:
            planned = jobs.plan(
                f"echo ${{#API_TOKEN}}; while [ ! -e '{go}' ]; do sleep 0.1; done; exit 1",
                env_vars={"API_TOKEN": SECRET},
                additional_parameters={"no_requeue": True},
            )
            app_id = jobs.scheduler.schedule(planned)
            jobs.wait_for_line(app_id, f"{len(SECRET)}\n")
            while_running = files_with(SECRET, jobs.remote, jobs.engine.directory)
            already = len(seen)
            wait_until(lambda: len(seen) > already + 5, "a few samples", 120)
            go.touch()
            jobs.wait(app_id)
        finally:
            over.set()
            sampling.join()
        assert while_running == []
        assert files_with(SECRET, tmp_path, jobs.engine.directory) == []
        assert not holds(SECRET, str(planned).encode())
        assert not any(SECRET in processes for processes in seen)

    def test_a_job_that_comes_back_has_its_secret_again_and_no_file_shows_it(
        self, jobs: Jobs
    ) -> None:
        app_id = jobs.schedule(
            "echo ${#API_TOKEN}; sleep 60",
            env_vars={"API_TOKEN": SECRET},
            env={"OWN": "mine"},
        )
        said = f"{len(SECRET)}\n"
        jobs.wait_for_line(app_id, said)
        places = (jobs.remote, jobs.engine.directory)
        assert files_with(SECRET, *places) == []
        jobs.engine.run("scontrol", "requeue", app_id)
        wait_until(lambda: jobs.lines(app_id).count(said) == 2, "second start", 90)
        assert files_with(SECRET, *places) == []
        (kept,) = jobs.remote.rglob("env*")
        assert kept.stat().st_mode & 0o077 == 0
        jobs.cancel(app_id)
        assert list(jobs.remote.rglob("env*")) == []

    def test_elements_of_an_array_share_a_secret_that_no_file_shows(self, jobs: Jobs) -> None:
        text = "echo ${#API_TOKEN}; sleep 2"
        app_id = jobs.schedule(text, array="0-3", env_vars={"API_TOKEN": SECRET})
        wait_until(lambda: len(jobs.lines(app_id)) == 4, "all elements")
        assert files_with(SECRET, jobs.remote, jobs.engine.directory) == []
        assert jobs.wait(app_id).state is AppState.SUCCEEDED
        assert jobs.lines(app_id) == [f"{len(SECRET)}\n"] * 4

    def test_a_command_that_is_run_by_hand_shows_no_process_its_secret(
        self, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # On a machine that has ssh, but not Slurm.
        for name in ("sh", "bash"):
            (tmp_path / name).symlink_to(f"/bin/{name}")
        monkeypatch.setenv("PATH", f"{jobs.engine.sshd.bin}:{tmp_path}")
        wanted = shlex.quote(f"{tmp_path}/wanted")
        look = f"printenv API_TOKEN >{wanted}; grep -alF -f {wanted} /proc/[0-9]*/cmdline"
        executor = jobs.slurm_executor()
        said = executor.srun(
            shlex.join(["sh", "-c", f"{look}; echo over"]),
            env_vars={"API_TOKEN": SECRET},
            pty=False,
            hide=True,
        )
        assert said.stdout.splitlines() == ["over"]
        assert (tmp_path / "wanted").read_text() == f"{SECRET}\n"
        for path in Path("/tmp").glob("nemo_run-*"):
            # Other tests have files there, too, which may go at any moment.
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                assert SECRET.encode() not in path.read_bytes()

    def test_variables_that_cannot_be_sealed_are_for_their_owner_only(self, jobs: Jobs) -> None:
        app_id = jobs.schedule(
            "echo ${#API_TOKEN}; sleep 60",
            env_vars={"API_TOKEN": SECRET},
            additional_parameters={"export": "NONE"},
        )
        jobs.wait_for_line(app_id, f"{len(SECRET)}\n")
        (kept,) = files_with(SECRET, jobs.remote)
        assert kept.stat().st_mode & 0o077 == 0
        assert kept.parent.stat().st_mode & 0o077 == 0
        jobs.cancel(app_id)
        assert files_with(SECRET, jobs.remote) == []


class TestEconomy:
    def test_many_jobs_take_one_connection_and_few_commands(self, jobs: Jobs) -> None:
        jobs.engine.sshd.drop_connections()
        connections, commands = jobs.engine.sshd.connections(), jobs.engine.sshd.commands()
        with run.Experiment(
            "many", executor=jobs.executor(), clean_mode=True, check=True, threadpool_workers=32
        ) as exp:
            for number in range(20):
                exp.add(script(f"echo {number}"), name=f"job-{number}")
            exp.run()
        assert all(is_terminal(job.state) for job in exp.jobs)
        assert jobs.engine.sshd.connections() - connections == 1
        assert jobs.engine.sshd.commands() - commands < 40

    def test_logs_are_kept_here_when_a_job_has_ended(self, jobs: Jobs) -> None:
        app_id = jobs.schedule("for i in $(seq 1000); do echo line $i; done")
        jobs.wait(app_id)
        shutil.rmtree(jobs.remote)
        with jobs.engine.sshd.down():
            assert len(jobs.lines(app_id)) == 1000

    def test_trouble_with_keeping_logs_leaves_no_secret_and_the_next_reader_keeps_them(
        self, jobs: Jobs
    ) -> None:
        planned = jobs.plan("echo up; sleep 300", env_vars={"API_TOKEN": SECRET})
        app_id = jobs.scheduler.schedule(planned)
        jobs.wait_for_line(app_id, "up\n")
        in_the_way = Path(planned.executor.job_dir) / f"logs-{app_id}"
        in_the_way.touch()
        jobs.cancel(app_id)
        assert list(jobs.remote.rglob("env*")) == []
        in_the_way.unlink()
        assert jobs.lines(app_id) == ["up\n"]
        shutil.rmtree(jobs.remote)
        with jobs.engine.sshd.down():
            assert jobs.lines(app_id) == ["up\n"]


def files_with(secret: str, *directories: Path) -> list[Path]:
    """Return the files with ``secret`` below some directories, whoever may read them."""
    found = []
    for directory in directories:
        for path in directory.rglob("*"):
            try:
                if path.is_file() and holds(secret, path.read_bytes()):
                    found.append(path)
            except OSError:  # gone in the meantime, or none to be read
                continue
    return found
