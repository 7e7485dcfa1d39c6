"""Whoever goes away, the launcher, the engine or the container: what is known stays right."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from tests import patience
from tests.contract.backends import DockerCluster
from tests.contract.experiments import states
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PLAIN
from tests.integration.docker.jobs import inspected, plan_group
from tests.integration.docker.proxy import CREATE, START, STOP, Death, EngineProxy, die_launching
from tests.integration.launching import lines, only_experiment, start, wait_for, write
from torchx.specs import AppState

from nemo_run._backends.docker.connection import connect
from nemo_run._backends.docker.files import JobFiles
from nemo_run.exceptions import BackendUnavailableError, JobNotFoundError, SubmitError

pytestmark = pytest.mark.slow


def remove(engine: DockerEngine, app_id: str) -> None:
    with engine.client() as client:
        for container in inspected(engine, app_id):
            client.api.remove_container(container["Id"], force=True)


class TestContainers:
    def test_one_that_is_removed_after_its_end_is_answered_for_by_its_files(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        app_id = cluster.schedule("echo said; exit 9")
        wait_for(
            lambda: inspected(engine, app_id)[0]["State"]["Status"] == "exited",
            "the end of the container",
            timeout_s=60,
        )
        remove(engine, app_id)
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 9)
        assert cluster.lines(app_id) == ["said\n"]

    def test_one_that_is_removed_while_it_runs_has_failed(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        remove(engine, app_id)
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, None)
        assert "removed" in end.message
        assert cluster.lines(app_id) == ["up\n"]

    def test_one_that_somebody_stops_has_failed_and_was_not_cancelled(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        with engine.client() as client:
            client.api.stop(inspected(engine, app_id)[0]["Id"])
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 143)

    def test_a_job_that_ended_before_it_was_cancelled_stays_as_it_ended(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        app_id = cluster.schedule("exit 0")
        wait_for(
            lambda: inspected(engine, app_id)[0]["State"]["Status"] == "exited",
            "the end of the container",
            timeout_s=60,
        )
        cluster.cancel(app_id)  # nobody has looked since
        assert cluster.wait(app_id).state is AppState.SUCCEEDED


class TestEngine:
    def test_a_job_goes_on_while_the_engine_is_stopped_and_started(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        go = cluster.scratch / "go"
        app_id = cluster.schedule(f"echo up; until [ -e {go} ]; do sleep 0.1; done; echo end")
        cluster.wait_for_line(app_id, "up\n")
        with engine.down():
            during = cluster.status(app_id)
            assert during is not None
            assert "cannot be reached" in during.message
        during = cluster.status(app_id)
        assert during is not None
        assert during.state is AppState.RUNNING
        go.touch()
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.SUCCEEDED, 0)
        assert cluster.lines(app_id) == ["up\n", "end\n"]

    def test_an_end_is_seen_while_there_is_no_engine(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        go = cluster.scratch / "go"
        app_id = cluster.schedule(f"echo up; until [ -e {go} ]; do sleep 0.1; done; exit 5")
        cluster.wait_for_line(app_id, "up\n")
        with engine.down():
            go.touch()
            end = cluster.wait(app_id)
            assert (end.state, end.exit_code) == (AppState.FAILED, 5)
            assert cluster.lines(app_id, should_tail=True) == ["up\n"]
        assert list(cluster.scheduler.unused().values()) == ["docker rm contract-1-job"]

    def test_a_job_that_may_be_started_again_has_not_ended_yet(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        go = cluster.scratch / "go"
        task = f"echo up; until [ -e {go} ]; do sleep 0.1; done; exit 5"
        app_id = cluster.schedule(task, retries=3)
        cluster.wait_for_line(app_id, "up\n")
        job_dir = cluster.root / "experiments" / "contract" / "job"
        with engine.down():
            go.touch()
            wait_for((job_dir / "status_contract-1-job.out").exists, "the end of the first try")
            during = cluster.status(app_id)
            assert during is not None
            assert "cannot be reached" in during.message
        assert cluster.wait(app_id).state is AppState.FAILED

    def test_a_last_try_that_goes_on_has_not_ended_yet(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        first, go = cluster.scratch / "first", cluster.scratch / "go"
        task = f"[ -e {first} ] || {{ touch {first}; exit 1; }}; echo up\n"
        task += f"until [ -e {go} ]; do sleep 0.1; done"
        app_id = cluster.schedule(task, retries=1)
        cluster.wait_for_line(app_id, "up\n")
        with engine.down():
            during = cluster.status(app_id)
            assert during is not None
            assert "cannot be reached" in during.message
        go.touch()
        end = cluster.wait(app_id)
        assert (end.state, end.restarts) == (AppState.SUCCEEDED, 1)

    def test_jobs_of_an_engine_that_ends_its_containers_have_failed(
        self, mortal_engine: DockerEngine, tmp_path: Path
    ) -> None:
        cluster = DockerCluster(tmp_path)
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        with mortal_engine.down():
            assert cluster.wait(app_id).state is AppState.FAILED
        assert cluster.status(app_id).state is AppState.FAILED  # type: ignore[union-attr]
        assert cluster.lines(app_id) == ["up\n"]

    def test_another_engine_is_not_taken_for_the_one_it_runs_on(
        self, cluster: DockerCluster, engine: DockerEngine, tmp_path: Path
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        os.environ["DOCKER_HOST"] = f"unix://{tmp_path}/none.sock"
        try:
            status = cluster.status(app_id)
            assert status is not None
            assert status.state is AppState.RUNNING, "it is asked where it was submitted"
        finally:
            os.environ.update(engine.environment)


LAUNCH = """
executor = run.DockerExecutor(
    container_image={image!r}, pull="missing", packager=run.Packager(), volumes=["{scratch}:/s"]
)
with run.Experiment("survivor", executor=executor, log_level="WARN") as exp:
    exp.add(script("echo up >> /s/log; until [ -e /s/go ]; do sleep 0.1; done; echo ran"), name="a")
    exp.add(script("echo after >> /s/log"), name="b", dependencies=["a"])
    exp.run({how})
"""


class TestLauncher:
    def test_a_launcher_that_is_killed_leaves_its_job_running_and_another_goes_on(
        self, cluster: DockerCluster, tmp_path: Path
    ) -> None:
        text = LAUNCH.format(image=PLAIN, scratch=cluster.scratch, how="")
        launcher = start(write(tmp_path, text))
        wait_for(lambda: lines(cluster.scratch / "log") == ["up"], "the first job", timeout_s=60)
        again = only_experiment("survivor")
        wait_for(lambda: states(again)["a"] == "RUNNING", "its being known")
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
        assert states(again)["a"] == "RUNNING"
        (cluster.scratch / "go").touch()
        again.resume()
        assert states(again) == {"a": "SUCCEEDED", "b": "SUCCEEDED"}
        assert lines(cluster.scratch / "log") == ["up", "after"], "each ran once"

    def test_an_experiment_goes_on_detached(self, cluster: DockerCluster, tmp_path: Path) -> None:
        text = LAUNCH.format(image=PLAIN, scratch=cluster.scratch, how="detach=True")
        launcher = start(write(tmp_path, text))
        assert launcher.wait(patience.seconds(60)) == 0
        (cluster.scratch / "go").touch()
        wait_for(
            lambda: set(states(only_experiment("survivor")).values()) == {"SUCCEEDED"},
            "the end of both jobs",
            timeout_s=90,
        )
        assert lines(cluster.scratch / "log") == ["up", "after"]

    def test_what_was_made_and_not_started_is_started_once(
        self, cluster: DockerCluster, proxy: EngineProxy
    ) -> None:
        mark = cluster.scratch / "ran"
        planned = plan_group(cluster, [f"echo 0 >> {mark}", f"echo 1 >> {mark}"])
        die_launching(cluster, planned, proxy, Death(START, times=2))
        wait_for(lambda: lines(mark) == ["0"], "the first task")
        assert cluster.scheduler.submitted(planned) is None, "one of them was not started"
        app_id = cluster.scheduler.schedule(planned)
        assert app_id == planned.request.id
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert sorted(lines(mark)) == ["0", "1"]

    def test_what_was_started_before_the_launcher_died_is_found(
        self, cluster: DockerCluster, proxy: EngineProxy
    ) -> None:
        planned = cluster.plan("echo hello")
        die_launching(cluster, planned, proxy, Death(START, done=True))
        app_id = cluster.scheduler.submitted(planned)
        assert app_id is not None
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["hello\n"]
        assert cluster.scheduler.submitted(planned) == app_id, "it stays known"

    def test_what_was_started_is_not_given_up_by_who_resumes_without_an_engine(
        self,
        cluster: DockerCluster,
        engine: DockerEngine,
        proxy: EngineProxy,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        text = LAUNCH.format(image=PLAIN, scratch=cluster.scratch, how="")
        proxy.wait_for(Death(START, done=True), lambda: os.killpg(launcher.pid, signal.SIGKILL))
        with monkeypatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
            launcher = start(write(tmp_path, text))
            assert launcher.wait(patience.seconds(60)) == -signal.SIGKILL
        again = write(tmp_path, "run.Experiment.from_title('survivor').resume()", "resume.py")
        with engine.down():
            resumed = start(again)
            said = again.with_suffix(".out")
            wait_for(lambda: "no Docker engine" in said.read_text(), "a word", timeout_s=60)
        (cluster.scratch / "go").touch()
        assert resumed.wait(patience.seconds(60)) == 0
        assert states(only_experiment("survivor")) == {"a": "SUCCEEDED", "b": "SUCCEEDED"}
        assert lines(cluster.scratch / "log") == ["up", "after"], "each ran once"

    def test_what_another_engine_may_have_is_not_started_again(
        self, cluster: DockerCluster, engine: DockerEngine, proxy: EngineProxy
    ) -> None:
        planned = cluster.plan("echo hello")
        app_id = planned.request.id
        die_launching(cluster, planned, proxy, Death(START))
        remove(engine, app_id)  # as if it had never been here
        files = JobFiles.of(planned.request.executor.job_dir, app_id)
        where = files.read_where()
        assert where is not None
        files.write_where({**where, "engine": "of another machine"})
        assert cluster.scheduler.submitted(planned) == app_id
        with pytest.raises(JobNotFoundError, match="not known to be the one"):
            cluster.cancel(app_id)

    @pytest.mark.parametrize("done", [False, True])
    def test_what_was_made_or_not_and_not_started_runs_once(
        self, cluster: DockerCluster, proxy: EngineProxy, done: bool
    ) -> None:
        planned = cluster.plan("echo hello")
        die_launching(cluster, planned, proxy, Death(CREATE, done=done))
        assert cluster.scheduler.submitted(planned) is None
        app_id = cluster.scheduler.schedule(planned)
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["hello\n"]

    def test_what_was_made_and_never_started_can_be_cancelled(
        self, cluster: DockerCluster, engine: DockerEngine, proxy: EngineProxy
    ) -> None:
        planned = cluster.plan("echo never")
        die_launching(cluster, planned, proxy, Death(START))
        assert len(inspected(engine, planned.request.id)) == 1
        cluster.cancel(planned.request.id)
        end = cluster.wait(planned.request.id)
        assert end.state is AppState.CANCELLED
        assert inspected(engine, planned.request.id) == []

    def test_what_is_cancelled_while_it_is_submitted_is_not_started(
        self, cluster: DockerCluster, engine: DockerEngine, proxy: EngineProxy
    ) -> None:
        mark = cluster.scratch / "ran"
        planned = plan_group(cluster, [f"touch {mark}", f"touch {mark}"])
        app_id = planned.request.id
        proxy.wait_for(Death(START), lambda: cluster.cancel(app_id))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
            with pytest.raises(SubmitError):
                cluster.scheduler.schedule(planned)
        assert cluster.wait(app_id).state is AppState.CANCELLED
        assert inspected(engine, app_id) == []
        assert not mark.exists()

    def test_what_has_ended_before_it_was_known_to_be_started_has_not_been_cancelled(
        self, cluster: DockerCluster, proxy: EngineProxy
    ) -> None:
        mark = cluster.scratch / "ran"
        planned = cluster.plan(f"echo once >> {mark}")

        def seen() -> None:
            cluster.wait(planned.request.id)

        proxy.wait_for(Death(START, done=True), seen)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
            app_id = cluster.scheduler.schedule(planned)
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert lines(mark) == ["once"]

    def test_submitting_waits_for_an_engine_that_is_restarted(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        planned = cluster.plan("echo hello")
        scheduler = cluster.scheduler
        assert connect().id  # before it goes away
        engine.halt()
        back = threading.Timer(1.0, engine.start)
        back.start()
        app_id = scheduler.schedule(planned)
        back.join()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED


class TestCancelling:
    def test_an_outage_while_cancelling_is_said(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        with engine.down(), pytest.raises(BackendUnavailableError, match="does not answer"):
            cluster.cancel(app_id)
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_a_job_that_could_not_be_cancelled_has_ended_as_it_did(
        self, cluster: DockerCluster, proxy: EngineProxy
    ) -> None:
        go = cluster.scratch / "go"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
            app_id = cluster.schedule(f"echo up; until [ -e {go} ]; do sleep 0.1; done")
        cluster.wait_for_line(app_id, "up\n")
        proxy.wait_for(Death(STOP), lambda: None)
        with pytest.raises(BackendUnavailableError, match="does not answer"):
            cluster.cancel(app_id)
        go.touch()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_a_job_that_ends_well_because_it_is_cancelled_was_cancelled(
        self, cluster: DockerCluster
    ) -> None:
        app_id = cluster.schedule("trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done")
        cluster.wait_for_line(app_id, "up\n")
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_an_experiment_is_cancelled_by_another_process(
        self, cluster: DockerCluster, engine: DockerEngine, tmp_path: Path
    ) -> None:
        text = LAUNCH.format(image=PLAIN, scratch=cluster.scratch, how="")
        launcher = start(write(tmp_path, text))
        wait_for(lambda: lines(cluster.scratch / "log") == ["up"], "the first job", timeout_s=60)
        only_experiment("survivor").cancel("a")
        assert launcher.wait(patience.seconds(60)) == 1, "not all of it succeeded"
        assert states(only_experiment("survivor")) == {"a": "CANCELLED", "b": "CANCELLED"}
        with engine.client() as client:
            assert client.containers.list(all=True) == []
