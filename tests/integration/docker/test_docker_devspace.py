"""Devspaces in containers of a real Docker engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import patience
from tests.contract.backends import DockerCluster
from tests.integration import devspaces
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PYTHON
from tests.integration.docker.jobs import inspected

import nemo_run as run
from nemo_run.devspace import _records, commands

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(
    cluster: DockerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    devspaces.home_of_its_own(tmp_path, monkeypatch)
    (tmp_path / "passwd").write_text(devspaces.USERS)
    workspace = tmp_path / "work"
    workspace.mkdir()
    yield workspace
    for record in _records.known():
        commands.stop(record.name)


def beside(engine: DockerEngine, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the network of the engine's containers."""
    return subprocess.run(
        ["nsenter", f"--net={engine.network}", *argv],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=patience.seconds(120),
        check=False,
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("user", "outside"), [("root", 12345), ("somebody", 1000)])
def test_a_container_is_logged_in_to_by_its_alias(
    engine: DockerEngine, workspace: Path, tmp_path: Path, user: str, outside: int
) -> None:
    """Also one that runs as another user than root, and one whose files are another user's."""
    directory = workspace / ".nemo_run" / ".tunnels" / "box"
    directory.mkdir(parents=True)
    for owned in (workspace, directory):
        os.chown(owned, outside, outside)
    executor = run.DockerExecutor(
        container_image=PYTHON,
        pull="missing",
        packager=run.Packager(),
        volumes=[*devspaces.OPENSSH, f"{tmp_path}/passwd:/etc/passwd:ro"],
        job_dir=str(workspace),
        additional_kwargs={"user": user},
    )
    launcher = tmp_path / "launch.py"
    launcher.write_text(
        "import nemo_run as run\n"
        "from nemo_run._config.fiddle import fdl\n"
        "from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer\n"
        f"executor = fdl.build(ZlibJSONSerializer().deserialize({_text(executor)!r}))\n"
        "space = run.DevSpace('box', executor, editor='none', detach=True, env_vars={'A': 'b c'})\n"
        "space.launch()\n"
    )
    done = beside(engine, sys.executable, str(launcher))
    assert done.returncode == 0, done.stdout + done.stderr
    said = beside(
        engine, *devspaces.ssh_argv("box", 'pwd; echo "$A $(id -un)"; touch made; hostname -i')
    )
    assert said.returncode == 0, said.stderr
    place, variable, address = said.stdout.split("\n")[:3]
    assert (place, variable) == ("/workspaces/box", f"b c {user}")
    assert (workspace / "made").exists()
    owners = {file.stat().st_uid for file in directory.iterdir()}
    assert owners == {outside}
    record = _records.get("box")
    handle = run.Experiment.from_id(record.experiment).jobs[0].handle
    (container,) = inspected(engine, handle.rpartition("/")[2])
    networks = container["NetworkSettings"]["Networks"].values()
    assert address in [network["IPAddress"] for network in networks]
    assert commands.stop("box") == "CANCELLED"
    assert not [c for c in inspected(engine, handle.rpartition("/")[2]) if c["State"]["Running"]]


def _text(executor: run.DockerExecutor) -> str:
    from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

    return ZlibJSONSerializer().serialize(executor.to_config())
