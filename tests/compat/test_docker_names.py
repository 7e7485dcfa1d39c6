"""Names, fields and signatures of the Docker executor, as in NeMo Run 0.12."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

import nemo_run as run
from nemo_run.core.execution import docker
from nemo_run.core.execution.base import NEW
from nemo_run.run.torchx_backend.schedulers import docker as scheduler

REQUIRED = object()
FIELDS = {
    "container_image": REQUIRED,
    "ntasks_per_node": 1,
    "runtime": None,
    "num_gpus": None,
    "shm_size": None,
    "ulimits": [],
    "ipc_mode": None,
    "healthcheck": {},
    "privileged": False,
    "network": "nemo_run",
    "additional_kwargs": {},
    "volumes": [],
    "packager": run.GitArchivePackager(),
    "launcher": None,
    "env_vars": {},
    "retries": 0,
    "experiment_id": None,
    "job_dir": "",
}
AFTERWARDS = {"job_name": "nemo-job", "run_as_group": False, "resource_group": []}


def test_the_constants_are_there(nemorun_home: Path) -> None:
    assert str(nemorun_home / ".docker_jobs.json") == docker.DOCKER_JOB_DIRS
    assert docker.NETWORK == "nemo_run"
    assert docker.LABEL_EXPERIMENT_ID == "nemo-run/experiment-id"
    assert docker.LABEL_NAME == "nemo-run/name"
    assert docker.LABEL_ID == "nemo-run/id"
    assert isinstance(docker.FCNTL_AVAILABLE, bool)


def test_the_executor_has_the_fields_of_0_12_and_marks_its_own() -> None:
    executor = run.DockerExecutor(container_image="image")
    fields = {field.name: field for field in dataclasses.fields(executor)}
    taken = {name for name, field in fields.items() if field.init and field.metadata != NEW}
    assert taken == set(FIELDS)
    for name, default in FIELDS.items():
        if default is not REQUIRED:
            assert getattr(executor, name) == default, name
    for name, default in AFTERWARDS.items():
        assert not fields[name].init
        assert getattr(executor, name) == default
    assert (executor.nnodes(), executor.nproc_per_node()) == (1, 1)


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (docker.get_client, []),
        (docker.ensure_network, ["client", "network"]),
        (docker.DockerExecutor.merge, ["executors", "num_tasks"]),
        (docker.DockerExecutor.cleanup, ["self", "handle"]),
        (docker.DockerContainer, ["name", "command", "executor", "extra_env"]),
        (docker.DockerContainer.run, ["self", "client", "id"]),
        (docker.DockerContainer.get_container, ["self", "client", "id"]),
        (docker.DockerContainer.delete, ["self", "client", "id"]),
        (docker.DockerJobRequest, ["id", "executor", "containers"]),
        (docker.DockerJobRequest.run, ["self", "client"]),
        (docker.DockerJobRequest.get_containers, ["self", "client"]),
        (docker.DockerJobRequest.save, ["self"]),
        (docker.DockerJobRequest.load, ["app_id"]),
        (scheduler.PersistentDockerScheduler, ["session_name"]),
        (scheduler.create_scheduler, ["session_name", "kwargs"]),
    ],
)
def test_functions_take_what_they_took(function: object, parameters: list[str]) -> None:
    taken = list(inspect.signature(function).parameters)  # type: ignore[arg-type]
    assert taken[: len(parameters)] == parameters


def test_every_word_of_docker_for_a_state_is_known() -> None:
    words = {"created", "restarting", "running", "removing", "paused", "exited", "dead"}
    assert set(scheduler.DOCKER_STATES) == words


def test_configs_are_seen_where_0_12_has_them(tmp_path: Path) -> None:
    executor = run.DockerExecutor(container_image="image")
    executor.assign("title_1", str(tmp_path), "job", "job")
    assert executor.package_configs(("name", "text")) == ["/nemo_run/configs/name"]
    assert (tmp_path / "job" / "configs" / "name").read_text() == "text"
