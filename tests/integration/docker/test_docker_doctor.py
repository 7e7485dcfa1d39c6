"""What ``nemorun doctor`` says of an executor for Docker."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli import commands
from tests.contract.backends import DockerCluster
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PLAIN
from tests.integration.docker.jobs import inspected

pytestmark = pytest.mark.slow

WORKSPACE = """
import nemo_run as run

@run.cli.factory
def docker(
    image: str = {image!r}, pull: str = "always", runtime: str = "", limit: str = "nofile=10",
    volume: str = "/tmp:/tmp",
) -> run.Config[run.DockerExecutor]:
    return run.Config(
        run.DockerExecutor, container_image=image, pull=pull, runtime=runtime or None,
        ulimits=[limit], volumes=[volume],
    )
"""


def doctor(tmp_path: Path, words: str = "") -> dict[str, str]:
    """Return what the command found, by subject: its verdict and what it saw."""
    (tmp_path / "workspace.py").write_text(WORKSPACE.format(image=PLAIN))
    done = commands.nemorun("doctor", f"docker({words})", "--json", cwd=tmp_path)
    installation, findings = done.json().values()
    verdicts = {finding["verdict"] for finding in (*installation, *findings)}
    assert done.code == (1 if "failed" in verdicts else 0)
    return {f["subject"]: f"{f['verdict']}: {f['detail']}" for f in findings}


def test_all_is_well(cluster: DockerCluster, engine: DockerEngine, tmp_path: Path) -> None:
    found = doctor(tmp_path)
    assert found["settings"] == "ok: "
    assert found["engine"].startswith("ok: Docker ")
    assert found["image"] == f"ok: {PLAIN}"
    assert found["volume"] == "ok: /tmp:/tmp"
    assert found["network"].startswith("ok: nemo_run")
    assert "restarts" not in found
    assert inspected(engine, "") == []


@pytest.mark.parametrize(
    ("words", "subject", "said"),
    [
        ("image='not/here',pull='never'", "image", "failed: The engine has no image 'not/here'."),
        ("image='not/here'", "image", "unknown: not/here is not here; it will be pulled."),
        ("runtime='nvidia'", "runtime", "failed: The engine has no runtime 'nvidia'."),
        ("limit='many'", "settings", "failed: 'many' is not a limit."),
        ("volume='/no/such:/data'", "volume", "warning: /no/such is not there"),
    ],
)
def test_what_is_wrong_is_found(
    cluster: DockerCluster, tmp_path: Path, words: str, subject: str, said: str
) -> None:
    assert doctor(tmp_path, words)[subject].startswith(said)


def test_an_engine_that_is_not_there_is_named(
    cluster: DockerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        found = doctor(tmp_path)
    assert found["engine"].startswith("failed: There is no Docker engine to talk to at unix://")


def test_an_engine_that_ends_its_containers_is_told_apart(
    mortal_engine: DockerEngine, tmp_path: Path
) -> None:
    assert doctor(tmp_path)["restarts"] == "unknown: Jobs end when the engine is restarted."
