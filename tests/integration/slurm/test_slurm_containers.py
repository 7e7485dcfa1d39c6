"""Tasks in containers on the nodes of a real cluster, by a real Docker engine and by Podman."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.contract.experiments import states
from tests.contract.secrets import command_lines
from tests.integration.docker import images
from tests.integration.docker.engine import DockerEngine
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.jobs import Jobs, wait_until
from tests.integration.slurm.podman import PodmanStore
from torchx.specs import AppState

import nemo_run as run

pytestmark = pytest.mark.slow


class ContainerJobs(Jobs):
    """Jobs whose tasks run in containers of a runtime, which has its place in ``environment``."""

    def __init__(
        self,
        cluster: SlurmCluster,
        root: Path,
        runtime: str,
        environment: Mapping[str, str],
        running: Callable[[], int],
    ) -> None:
        super().__init__(cluster, root)
        self.runtime = runtime
        self.running = running
        self._lines = "\n".join(f"export {name}={value}" for name, value in environment.items())

    def executor(self, **settings: object) -> run.Executor:
        return super().executor(
            **{
                "container_image": images.PYTHON,
                "container_runtime": self.runtime,
                "setup_lines": self._lines,
                **settings,
            }
        )


@pytest.fixture(params=["docker", "podman"])
def jobs(request: pytest.FixtureRequest, slurm: SlurmCluster, tmp_path: Path) -> ContainerJobs:
    if request.param == "podman":
        store: PodmanStore = request.getfixturevalue("podman_store")
        return ContainerJobs(slurm, tmp_path, "podman", store.environment, store.running)
    docker: DockerEngine = request.getfixturevalue("docker_engine")

    def running() -> int:
        with docker.client() as client:
            return len(client.containers.list(ignore_removed=True))

    return ContainerJobs(slurm, tmp_path, "docker", docker.environment, running)


def test_a_task_runs_in_its_image_and_sees_its_directory(jobs: ContainerJobs) -> None:
    app_id = jobs.schedule("pwd; ls /nemo_run/scripts; [ -e /etc/os-release ] || echo elsewhere")
    assert jobs.wait(app_id, timeout_s=60).state is AppState.SUCCEEDED
    assert jobs.lines(app_id) == ["/nemo_run/code\n", "job.sh\n", "elsewhere\n"]


def test_variables_arrive_and_are_in_no_argument(jobs: ContainerJobs) -> None:
    secret = "t0ken-in-a-container"
    wait = f"until [ -e {jobs.scratch}/go ]; do sleep 0.1; done"
    app_id = jobs.schedule(
        f'echo "$WORD $SLURM_JOB_ID ${{#API_TOKEN}}"; {wait}',
        env={"WORD": run.literal("it's $HOME")},
        env_vars={"API_TOKEN": secret},
        container_mounts=[f"{jobs.scratch}:{jobs.scratch}"],
    )
    wanted = f"it's $HOME {app_id} {len(secret)}\n"
    jobs.wait_for_line(app_id, wanted)
    processes = command_lines()
    (jobs.scratch / "go").touch()
    assert jobs.wait(app_id, timeout_s=60).state is AppState.SUCCEEDED
    assert jobs.lines(app_id) == [wanted]
    assert secret not in processes
    assert "--env API_TOKEN" in processes
    assert not any(secret in path.read_text() for path in jobs.remote.rglob("*.sh"))


def test_mounts_are_where_they_were_asked_for(jobs: ContainerJobs, tmp_path: Path) -> None:
    data = tmp_path / "some data"
    data.mkdir()
    (data / "file").write_text("content\n")
    app_id = jobs.schedule(
        "cat /data/file; echo new >/data/out; cat /mine/scripts/job.sh | head -c 3 >/dev/null",
        container_mounts=[f"{data}:/data", "/$nemo_run:/mine"],
    )
    assert jobs.wait(app_id, timeout_s=60).state is AppState.SUCCEEDED
    assert jobs.lines(app_id) == ["content\n"]
    assert (data / "out").read_text() == "new\n"


def test_the_exit_code_is_that_of_the_task(jobs: ContainerJobs) -> None:
    end = jobs.wait(jobs.schedule("exit 7"), timeout_s=60)
    assert (end.state, end.exit_code) == (AppState.FAILED, 7)


def test_tasks_of_a_group_have_images_of_their_own(jobs: ContainerJobs) -> None:
    one, other = (
        jobs.slurm_executor(container_image=image, wait_time_for_group_job=0)
        for image in (images.PYTHON, images.PLAIN)
    )
    text = "command -v python3 || echo none"
    tasks = [run.Script(inline=text, entrypoint="sh") for _ in range(2)]
    exp = jobs.run_group(tasks, [one, other])
    assert states(exp) == {"group": "SUCCEEDED"}
    logs = sorted(path.read_text() for path in jobs.remote.rglob("log-*.out"))
    assert logs == ["/usr/local/bin/python3\n", "none\n"]


def test_a_cancelled_task_ends_with_its_container(jobs: ContainerJobs) -> None:
    before = jobs.running()
    app_id = jobs.schedule("trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.2; done")
    jobs.wait_for_line(app_id, "up\n")
    jobs.cancel(app_id)
    assert jobs.wait(app_id).state is AppState.CANCELLED
    wait_until(lambda: jobs.running() == before, "end of the container")
    assert "asked\n" in jobs.lines(app_id)


def test_an_image_that_is_not_there_is_said(jobs: ContainerJobs) -> None:
    app_id = jobs.schedule("true", container_image="nobody/has:this")
    assert jobs.wait(app_id, timeout_s=120).state is AppState.FAILED
    assert any("nobody/has" in line for line in jobs.lines(app_id))


def test_gpus_that_there_are_not_are_missed(jobs: ContainerJobs) -> None:
    app_id = jobs.schedule("true", gpus_per_node=1)
    assert jobs.wait(app_id, timeout_s=120).state is AppState.FAILED
    assert any("gpu" in line for line in jobs.lines(app_id))
