"""What a container is given, and what it leaves."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.contract.backends import DockerCluster
from tests.contract.test_schedulers import alive, wait_until_dead
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PLAIN
from tests.integration.docker.jobs import inside, inspected
from tests.integration.launching import launch, wait_for
from torchx.specs import AppState

import nemo_run as run
from nemo_run.core.execution.docker import LABEL_EXPERIMENT_ID, LABEL_ID, LABEL_NAME

pytestmark = pytest.mark.slow

UP = "echo up; sleep 600"


def running(cluster: DockerCluster, engine: DockerEngine, **settings: object) -> tuple[str, dict]:
    """Start a job that goes on; return its id and what the engine says of its container."""
    app_id = cluster.schedule(UP, **settings)
    cluster.wait_for_line(app_id, "up\n")
    (container,) = inspected(engine, app_id)
    return app_id, container


class TestIdentity:
    def test_a_container_is_named_labelled_and_placed_as_users_expect(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        app_id, container = running(cluster, engine, name="my_job")
        assert app_id.startswith("my_job-")
        assert container["Name"] == "/contract-1-my-job"
        labels = container["Config"]["Labels"]
        assert labels[LABEL_ID] == app_id
        assert labels[LABEL_NAME] == "contract-1-my-job"
        assert labels[LABEL_EXPERIMENT_ID] == "contract_1"
        assert container["Config"]["WorkingDir"] == "/nemo_run/code"
        assert container["Config"]["Hostname"] == "contract-1-my-job"
        assert list(container["NetworkSettings"]["Networks"]) == ["nemo_run"]
        assert not container["HostConfig"]["AutoRemove"]

    def test_a_name_that_is_taken_gets_something_appended(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        _, first = running(cluster, engine, name="same")
        _, second = running(cluster, engine, name="same")
        assert first["Name"] == "/contract-1-same"
        assert second["Name"].startswith("/contract-1-same-")

    def test_nothing_is_left_in_the_engine_once_the_end_was_seen(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        for task in ("true", "exit 3"):
            app_id = cluster.schedule(task)
            cluster.wait(app_id)
            assert inspected(engine, app_id) == []

    def test_logs_and_exit_code_are_where_0_12_has_them(self, cluster: DockerCluster) -> None:
        app_id = cluster.schedule("echo said; exit 4")
        cluster.wait(app_id)
        job_dir = cluster.root / "experiments" / "contract" / "job"
        assert (job_dir / "log_contract-1-job.out").read_text() == "said\n"
        status = json.loads((job_dir / "status_contract-1-job.out").read_text())
        assert status == {"id": app_id, "exit_code": "4"}

    def test_the_engine_shows_the_log_too(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        app_id, container = running(cluster, engine)

        def shown() -> bool:
            with engine.client() as client:
                return bool(client.api.logs(container["Id"]) == b"up\n")

        wait_for(shown, f"the log of {app_id}")

    def test_an_engine_that_keeps_no_logs_is_fine(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        kept = {"log_config": {"Type": "none", "Config": {}}}
        app_id = cluster.schedule("echo said", additional_kwargs=kept)
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["said\n"]
        assert inspected(engine, app_id) == []


class TestFiles:
    def test_volumes_are_mounted_and_the_job_directory_may_be_one(
        self, cluster: DockerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "file").write_text("content\n")
        app_id = cluster.schedule(
            "cat /data/file; touch /data/new || echo read-only; echo result > /results/out",
            volumes=["~/data:/data:ro", "/$nemo_run/kept:/results"],
        )
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        first, *_, last = cluster.lines(app_id)
        assert (first, last) == ("content\n", "read-only\n")
        job_dir = cluster.root / "experiments" / "contract" / "job"
        assert (job_dir / "kept" / "out").read_text() == "result\n"

    def test_blanks_and_colons_in_paths_do_no_harm(
        self, cluster: DockerCluster, tmp_path: Path
    ) -> None:
        executor = cluster.executor()
        directory = tmp_path / "with blank" / "and: colon"
        executor.assign("my title_1", str(directory), "a job", "a job: first")
        executor.create_job_dir()
        app = cluster.app("pwd; ls /nemo_run/scripts", name="a job", executor=executor)
        app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["/nemo_run/code\n", "a job.sh\n"]

    def test_functions_of_the_launching_script_run_in_a_container(
        self, cluster: DockerCluster, tmp_path: Path
    ) -> None:
        venv = Path(pytest.__file__).parents[1]
        source = Path(run.__file__).parents[1]
        program = tmp_path / "launch.py"
        program.write_text(
            "import sys\nfrom pathlib import Path\nimport nemo_run as run\n"
            "def greet(name):\n    print('hello', name, Path('/nemo_run').is_dir())\n"
            "if __name__ == '__main__':\n"
            "    executor = run.DockerExecutor(\n"
            f"        container_image={cluster.executor().container_image!r}, pull='missing',\n"  # type: ignore[attr-defined]
            f"        packager=run.Packager(), env_vars={{'PYTHONPATH': '/source:/site'}},\n"
            f"        volumes=['{source}:/source:ro', '{venv}:/site:ro'])\n"
            "    with run.Experiment('greeting', executor=executor, check=True) as exp:\n"
            "        exp.add(run.Partial(greet, name='you'), name='greet')\n"
            "        exp.run(tail_logs=True)\n"
        )
        done = launch(program)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "\nhello you True\n" in done.stdout


class TestLimits:
    @pytest.mark.parametrize("limit", ["nofile=512:1024", "nofile:512:1024"])
    def test_both_spellings_of_a_limit_are_taken(self, cluster: DockerCluster, limit: str) -> None:
        app_id = cluster.schedule("ulimit -Sn; ulimit -Hn", ulimits=[limit])
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["512\n", "1024\n"]

    def test_a_limit_without_a_second_number_is_hard(self, cluster: DockerCluster) -> None:
        app_id = cluster.schedule("ulimit -Sn; ulimit -Hn", ulimits=["nofile=700"])
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["700\n", "700\n"]

    def test_a_job_that_takes_too_much_memory_is_told_so(self, cluster: DockerCluster) -> None:
        app_id = cluster.schedule(
            ["python3", "-c", "print(len(bytearray(500_000_000)))"],
            additional_kwargs={"mem_limit": "60m", "memswap_limit": "60m"},
        )
        end = cluster.wait(app_id)
        assert end.state is AppState.FAILED
        assert "memory" in end.message

    def test_shared_memory_is_as_large_as_asked_for(self, cluster: DockerCluster) -> None:
        app_id = cluster.schedule("df -m /dev/shm | tail -1", shm_size="123m")
        cluster.wait(app_id)
        assert cluster.lines(app_id)[0].split()[1] == "123"

    def test_a_health_check_is_made(self, cluster: DockerCluster, engine: DockerEngine) -> None:
        check = {"test": ["CMD-SHELL", "test -e /nemo_run/code"], "interval": 200_000_000}
        app_id, _ = running(cluster, engine, healthcheck=check)

        def healthy() -> bool:
            (container,) = inspected(engine, app_id)
            return bool(container["State"]["Health"]["Status"] == "healthy")

        wait_for(healthy, "a healthy container", timeout_s=60)


class TestPrograms:
    def test_without_bash_a_script_is_run_by_sh(self, cluster: DockerCluster) -> None:
        app_id = cluster.schedule("echo $((40 + 2))", container_image=PLAIN)
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        note, answer = cluster.lines(app_id)
        assert "no bash" in note
        assert answer == "42\n"

    def test_what_a_job_leaves_in_the_background_ends_with_it(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        # With processes of its own, as is usual.
        app_id = cluster.schedule("sleep 600 & echo started; exit 0", additional_kwargs={})
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["started\n"]

    def test_cancelling_ends_all_processes_of_a_container(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        task = "sleep 601 & setsid sleep 602 & echo up; wait"
        app_id = cluster.schedule(task, additional_kwargs={})
        cluster.wait_for_line(app_id, "up\n")
        (container,) = inspected(engine, app_id)

        def pids() -> list[int]:
            with engine.client() as client:
                rows = client.api.top(container["Id"])["Processes"]
            return [int(row[1]) for row in rows if "sleep" in row[-1]]

        wait_for(lambda: len(pids()) >= 2, "both processes")
        found = pids()
        assert all(map(alive, found))
        cluster.cancel(app_id)
        assert wait_until_dead(found) == []

    def test_a_user_who_may_not_write_has_logs_all_the_same(self, cluster: DockerCluster) -> None:
        app_id = cluster.schedule("id -u; exit 6", additional_kwargs={"user": "1000:1000"})
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 6)
        assert cluster.lines(app_id) == ["1000\n"]

    def test_a_user_who_may_not_read_secrets_is_told_so(self, cluster: DockerCluster) -> None:
        app_id = cluster.schedule(
            "echo never", env_vars={"HF_TOKEN": "x"}, additional_kwargs={"user": "1000:1000"}
        )
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 125)
        assert "may not read" in end.message


class TestSecrets:
    SECRET = "tok-7d1f0c2b9e"

    def test_secrets_are_in_the_job_and_not_in_what_the_engine_tells(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        env = {"HF_TOKEN": self.SECRET, "PLAIN": "seen", "NVIDIA_VISIBLE_DEVICES": "none"}
        app_id, container = running(cluster, engine, env_vars=env)
        assert self.SECRET not in json.dumps(container)
        assert "PLAIN=seen" in container["Config"]["Env"]
        assert "NVIDIA_VISIBLE_DEVICES=none" in container["Config"]["Env"]
        files = [p for p in cluster.root.rglob("*") if p.is_file()]
        holding = [p for p in files if self.SECRET in p.read_text(errors="replace")]
        assert [p.stat().st_mode & 0o077 for p in holding] == [0]
        cluster.cancel(app_id)
        assert not holding[0].exists(), "nobody needs it any more"

    def test_secrets_with_any_characters_arrive(self, cluster: DockerCluster) -> None:
        value = 'it\'s "so" $HOME `x` \\ \n two'
        app_id = cluster.schedule(
            ["python3", "-c", "import os; print(ascii(os.environ['A_TOKEN']))"],
            env={"A_TOKEN": value},
        )
        cluster.wait(app_id)
        assert cluster.lines(app_id) == [ascii(value) + "\n"]

    def test_a_shell_in_the_container_does_not_have_them(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        app_id, _ = running(cluster, engine, env_vars={"HF_TOKEN": self.SECRET, "PLAIN": "seen"})
        seen = inside(engine, app_id, "sh", "-c", shlex.join(["env"]))
        assert "PLAIN=seen" in seen
        assert self.SECRET not in seen


class TestNetworks:
    def test_the_network_of_this_machine_may_be_used(self, cluster: DockerCluster) -> None:
        app_id = cluster.schedule("cat /proc/net/dev | wc -l", network="host")
        cluster.wait(app_id)
        here = len(Path("/proc/net/dev").read_text().splitlines())
        assert int(cluster.lines(app_id)[0]) >= min(3, here)

    def test_a_network_of_ones_own_is_made_once(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        for _ in range(2):
            app_id = cluster.schedule("true", network="mine")
            assert cluster.wait(app_id).state is AppState.SUCCEEDED
        with engine.client() as client:
            assert len(client.api.networks(names=["mine"])) == 1

    def test_a_job_may_have_no_network(self, cluster: DockerCluster) -> None:
        app_id = cluster.schedule("ls /sys/class/net", network="none")
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["lo\n"]


def test_a_job_that_waits_for_its_next_try_can_be_cancelled(cluster: DockerCluster) -> None:
    app_id = cluster.schedule("echo started; exit 1", retries=99)
    # The engine waits longer before each try; before the next it will be seconds.
    wait_for(lambda: cluster.lines(app_id).count("started\n") >= 6, "the sixth try")
    cluster.cancel(app_id)
    assert cluster.wait(app_id).state is AppState.CANCELLED
