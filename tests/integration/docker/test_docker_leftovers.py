"""Containers, which go when their end is seen, are collected where that could not be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli import commands
from tests.contract.backends import DockerCluster
from tests.contract.experiments import states
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.jobs import inspected
from tests.integration.launching import wait_for

import nemo_run as run

pytestmark = pytest.mark.slow

COLLECT = ("experiment", "gc", "--older-than", "0s", "--json")


def test_an_ended_job_has_nothing_left(cluster: DockerCluster, tmp_path: Path) -> None:
    with run.Experiment("tidy", executor=cluster.executor(), clean_mode=True) as exp:
        exp.add(run.Script(inline="true"), name="one")
        exp.run()
    found = commands.nemorun(*COLLECT, cwd=tmp_path).json()
    assert (found["experiments"], found["leftovers"], found["unused"]) == ([exp._id], [], {})


def test_containers_whose_end_was_seen_without_the_engine_are_collected(
    cluster: DockerCluster, engine: DockerEngine, tmp_path: Path
) -> None:
    go = cluster.scratch / "go"
    with run.Experiment("left", executor=cluster.executor(), clean_mode=True) as exp:
        task = f"echo up; until [ -e {go} ]; do sleep 0.1; done"
        exp.add(run.Script(inline=task), name="one")
        exp.run(detach=True)
    app_id = ""

    def started() -> bool:
        nonlocal app_id
        handle = exp.status(return_dict=True)["one"].get("handle") or ""  # type: ignore[index]
        app_id = handle.rpartition("/")[2]
        return bool(app_id) and cluster.lines(app_id) == ["up\n"]

    wait_for(started, "the job", timeout_s=60)
    with engine.down():
        go.touch()
        wait_for(lambda: states(exp) == {"one": "SUCCEEDED"}, "its end", timeout_s=60)
    assert len(inspected(engine, app_id)) == 1
    found = commands.nemorun(*COLLECT, cwd=tmp_path).json()
    assert found["leftovers"] == [f"containers of {app_id} in Docker"]
    assert list(found["unused"].values()) == ["docker rm " + name(engine, app_id)]
    assert len(inspected(engine, app_id)) == 1, "it was only looked at"
    done = commands.nemorun(*COLLECT, "--yes", cwd=tmp_path)
    assert done.json()["experiments"] == [exp._id], done.err
    assert inspected(engine, app_id) == []


def name(engine: DockerEngine, app_id: str) -> str:
    (container,) = inspected(engine, app_id)
    return str(container["Name"].lstrip("/"))
