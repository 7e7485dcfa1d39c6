"""What goes wrong is said, with what to do about it, and leaves nothing behind."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience
from tests.contract.backends import DockerCluster
from tests.contract.experiments import experiment, script, states
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PLAIN
from tests.integration.docker.proxy import EngineProxy
from torchx.specs import AppState

from nemo_run.exceptions import ConfigError, SubmitError

pytestmark = pytest.mark.slow

NOBODY = "127.0.0.1:1/team/image"
"""An image of a registry that does not answer."""


def containers(engine: DockerEngine) -> list[str]:
    with engine.client() as client:
        return [container.name for container in client.containers.list(all=True)]


class TestEngine:
    def test_without_an_engine_nothing_is_submitted(
        self, cluster: DockerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
            planned = cluster.plan("true")
            with pytest.raises(SubmitError, match=r"no Docker engine.*none\.sock.*DOCKER_HOST"):
                cluster.scheduler.schedule(planned)
            status = cluster.status(planned.request.id)
            assert status is not None
            assert status.state is AppState.UNSUBMITTED

    def test_an_experiment_says_so_and_has_failed(
        self, cluster: DockerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
            with experiment(executor=cluster.executor()) as exp:
                exp.add(script("true"), name="job")
                with pytest.raises(SubmitError, match="no Docker engine"):
                    exp.run()
            assert states(exp) == {"job": "FAILED"}

    def test_without_the_package_the_extra_is_named(self) -> None:
        program = (
            "import sys\n"
            "sys.modules['docker'] = None\n"
            "import nemo_run as run\n"
            "try:\n"
            "    run.DockerExecutor(container_image='x').check()\n"
            "except run.exceptions.MissingDependencyError as err:\n"
            "    print(err)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=patience.seconds(60),
        )
        assert "pip install 'nemo_run[docker]'" in done.stdout, done.stderr


class TestImages:
    def test_an_image_that_cannot_be_had_is_named(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        with pytest.raises(SubmitError, match=r"127\.0\.0\.1:1/team/image"):
            cluster.schedule("true", container_image=NOBODY, pull="always")
        assert containers(engine) == []

    def test_an_image_that_is_not_to_be_pulled_must_be_here(self, cluster: DockerCluster) -> None:
        with pytest.raises(SubmitError, match=r"no image 'not/here'.*pull it"):
            cluster.schedule("true", container_image="not/here", pull="never")

    def test_an_image_that_cannot_be_updated_is_used_with_a_warning(
        self, cluster: DockerCluster, engine: DockerEngine, caplog: pytest.LogCaptureFixture
    ) -> None:
        with engine.client() as client:
            client.images.get(PLAIN).tag(NOBODY, "2")
        with caplog.at_level(logging.WARNING, "nemo_run"):
            app_id = cluster.schedule("echo ran", container_image=f"{NOBODY}:2", pull="always")
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert "could not pull" in caplog.text
        assert "is used" in caplog.text

    @pytest.mark.filterwarnings("ignore:docker-credential-not-here")  # docker's own word about it
    def test_a_helper_for_passwords_that_is_missing_keeps_no_image_from_being_used(
        self,
        cluster: DockerCluster,
        proxy: EngineProxy,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        (tmp_path / "config.json").write_text('{"credsStore": "not-here"}')
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_CONFIG", str(tmp_path))
            patch.setenv("DOCKER_HOST", f"unix://{proxy.path}")  # a connection that reads it
            app_id = cluster.schedule("echo ran", container_image=PLAIN, pull="always")
            with pytest.raises(SubmitError, match=r"could not pull.*docker-credential-not-here"):
                cluster.schedule("true", container_image=NOBODY, pull="always")
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert "is used" in caplog.text

    def test_an_image_may_be_named_by_its_hash(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        with engine.client() as client:
            image = client.images.get(PLAIN).id
        app_id = cluster.schedule("true", container_image=image, pull="always")
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_an_image_without_a_shell_is_refused(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        import io
        import tarfile

        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("file"))
        with engine.client() as client:
            client.api.import_image_from_data(buffer.getvalue(), repository="empty", tag="1")
        with pytest.raises(SubmitError, match="no shell"):
            cluster.schedule("true", container_image="empty:1")
        assert containers(engine) == []


class TestSettings:
    def test_gpus_that_the_engine_does_not_have_are_said(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        with pytest.raises(SubmitError, match="num_gpus"):
            cluster.schedule("true", num_gpus=-1)
        assert containers(engine) == []

    def test_a_runtime_that_is_not_there_is_said(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        with pytest.raises(SubmitError, match="runtime"):
            cluster.schedule("true", runtime="nvidia-not-here", env_vars={"HF_TOKEN": "hunter2"})
        assert containers(engine) == []
        assert [*cluster.root.rglob("environment")] == [], "nobody needs its secrets"

    def test_a_misspelt_setting_is_found_before_anything_is_submitted(
        self, cluster: DockerCluster
    ) -> None:
        with pytest.raises(ConfigError, match=r"'mem_limits'.*'mem_limit'"):
            cluster.plan("true", additional_kwargs={"mem_limits": "1g"})
