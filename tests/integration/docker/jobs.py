"""Short ways to say what tests of Docker jobs need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.contract.backends import DockerCluster
from tests.integration.docker.engine import DockerEngine

import nemo_run as run
from nemo_run.core.execution.docker import LABEL_ID
from nemo_run.run.torchx_backend.packaging import merge_executables, package


def plan_group(
    cluster: DockerCluster,
    scripts: Sequence[str],
    executors: Sequence[Mapping[str, Any]] = ({},),
    name: str = "pair",
) -> Any:
    """Return the plan of a group with a task for each script; its roles are ``pair-0``, ..."""
    assigned = [cluster.assigned(name, **settings) for settings in executors]
    each = assigned if len(assigned) > 1 else assigned * len(scripts)
    apps = [
        package(f"{name}-{number}", run.Script(inline=text), executor, serialize_to_file=True)
        for number, (text, executor) in enumerate(zip(scripts, each, strict=True))
    ]
    merged = run.DockerExecutor.merge(assigned, len(scripts))  # type: ignore[arg-type]
    return cluster.scheduler.submit_dryrun(merge_executables(iter(apps), name), merged)


def group(
    cluster: DockerCluster, scripts: Sequence[str], executors: Sequence[Mapping[str, Any]] = ({},)
) -> str:
    app_id: str = cluster.scheduler.schedule(plan_group(cluster, scripts, executors))
    return app_id


def log_of(cluster: DockerCluster, app_id: str, role: str, **query: Any) -> list[str]:
    return list(cluster.scheduler.log_iter(app_id, role, **query))


def inspected(engine: DockerEngine, app_id: str) -> list[dict[str, Any]]:
    """Return what the engine says of the containers of a job."""
    with engine.client() as client:
        rows = client.api.containers(all=True, filters={"label": f"{LABEL_ID}={app_id}"})
        return [client.api.inspect_container(row["Id"]) for row in rows]


def inside(engine: DockerEngine, app_id: str, *argv: str) -> str:
    """Run a program in the only container of a job, and return what it says."""
    (container,) = inspected(engine, app_id)
    with engine.client() as client:
        made = client.api.exec_create(container["Id"], list(argv))
        text: bytes = client.api.exec_start(made["Id"])
    return text.decode()
