"""A planted client secret and a planted token are nowhere that others can look."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import DGXCloudCluster
from tests.contract.experiments import experiment, script, states
from tests.contract.secrets import command_lines, holds, readable_files_with
from tests.emulators.runai import CLIENT_SECRET, RunaiEmulator
from torchx.specs import AppState

import nemo_run as run
from nemo_run._credentials import CredentialStore
from nemo_run._transport.http import Http
from nemo_run.exceptions import BackendUnavailableError, ConfigError

pytestmark = pytest.mark.slow

TOKEN = "hf_Zx81kQmP0vLr77"
PLANTED: dict[str, Any] = {
    "client_secret": CLIENT_SECRET,
    "env_vars": {"HF_TOKEN": TOKEN, "STEPS": "3"},
}


@pytest.fixture(params=[CLIENT_SECRET, TOKEN], ids=["client_secret", "HF_TOKEN"])
def secret(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestOneJob:
    def test_the_password_of_an_address_is_neither_said_nor_in_a_copy_for_people(
        self, cluster: DGXCloudCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        address = "http://bob:hunter2@127.0.0.1:1/api/v1"
        caplog.set_level(logging.DEBUG)
        planned = cluster.plan("true", base_url=address)
        copies = [path.read_text() for path in tmp_path.rglob("*_executor.yaml")]
        assert copies and "127.0.0.1:1/api" in copies[0]
        http = Http(address, backend="dgxcloud", patience_s=0.5)
        with pytest.raises(BackendUnavailableError) as refused:
            http.do("GET", "/workloads")
        assert "127.0.0.1:1/api" in str(refused.value)
        assert "hunter2" not in f"{planned} {copies} {refused.value} {caplog.text}"

    def test_they_are_in_no_file_that_others_may_read(
        self, cluster: DGXCloudCluster, tmp_path: Path, secret: str
    ) -> None:
        app_id = cluster.schedule("echo ${#HF_TOKEN}; sleep 0.5", **PLANTED)
        during = readable_files_with(secret, tmp_path)
        commands = command_lines()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == [f"{len(TOKEN)}\n"]
        assert during == []
        assert readable_files_with(secret, tmp_path) == []
        assert secret not in commands

    def test_they_are_in_no_object_that_others_may_read(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, secret: str
    ) -> None:
        app_id = cluster.schedule("echo hi", **PLANTED)
        cluster.wait(app_id)
        for workload in emulator.workloads.values():
            assert not holds(secret, json.dumps(workload.to_json()).encode())
        asked = [r for r in emulator.server.seen if not r.path.endswith("/token")]
        assert len(asked) > 5
        for request in asked:
            text = f"{request.path}?{request.query_string} {dict(request.headers)}"
            assert not holds(secret, request.body + text.encode())

    def test_they_are_in_no_message(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, secret: str
    ) -> None:
        said = io.StringIO()
        handler = logging.StreamHandler(said)
        root = logging.getLogger()
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        try:
            app_id = cluster.schedule("exit 1", **PLANTED)
            cluster.wait(app_id)
            cluster.lines(app_id)
            cluster.cancel(app_id)
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
        assert "workloads/trainings" in said.getvalue()
        assert secret not in said.getvalue()

    def test_a_dry_run_does_not_show_them(self, cluster: DGXCloudCluster, secret: str) -> None:
        planned = cluster.plan("echo hi", **PLANTED)
        for text in (str(planned), repr(planned.request), repr(planned.executor)):
            assert not holds(secret, text.encode())
        assert "STEPS" in str(planned)


def test_a_dry_run_masks_what_custom_settings_hold_and_leaves_them_alone(
    cluster: DGXCloudCluster,
) -> None:
    variables: list[dict[str, Any]] = [
        {"name": "HF_TOKEN", "value": TOKEN},
        {"name": "STEPS", "value": "3"},
        {"name": "WANDB_API_KEY", "secret": {"name": "wandb", "key": "key"}},
    ]
    planned = cluster.plan("true", custom_spec={"environmentVariables": variables})
    text = str(planned)
    assert TOKEN not in text
    assert '"name": "wandb"' in text
    assert variables[0]["value"] == TOKEN


class TestExperiment:
    def test_they_are_in_no_file_that_others_may_read(
        self, cluster: DGXCloudCluster, tmp_path: Path, secret: str
    ) -> None:
        with experiment(executor=cluster.executor(**PLANTED)) as exp:
            exp.add(script("echo ${#HF_TOKEN}; sleep 0.3"), name="job")
            exp.run(detach=True)
            during = readable_files_with(secret, tmp_path)
        exp.wait()
        assert states(exp) == {"job": "SUCCEEDED"}
        assert during == []
        assert readable_files_with(secret, tmp_path) == []

    def test_the_client_secret_is_kept_once_for_all_and_travels_nowhere(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, nemorun_home: Path
    ) -> None:
        with experiment(executor=cluster.executor(**PLANTED)) as exp:
            exp.add(script("true"), name="job")
            exp.run()
        holders = [
            path.name
            for path in nemorun_home.rglob("*")
            if path.is_file() and holds(CLIENT_SECRET, path.read_bytes())
        ]
        assert holders == ["credentials.json"]
        there = [path for path in emulator.volume("work").rglob("*") if path.is_file()]
        assert there
        assert not any(holds(CLIENT_SECRET, path.read_bytes()) for path in there)

    def test_a_job_can_be_asked_about_without_repeating_the_secret(
        self, cluster: DGXCloudCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app_id = cluster.schedule("echo hi", **PLANTED)
        seen = cluster.in_new_process().call("seen", app_id)
        assert (seen["state"], seen["lines"]) == ("SUCCEEDED", ["hi\n"])


def test_a_config_refers_to_the_secret_and_builds_an_executor_that_works(
    cluster: DGXCloudCluster,
) -> None:
    import fiddle as fdl

    executor = cluster.executor(**PLANTED)
    assert isinstance(executor, run.DGXCloudExecutor)
    config = executor.to_config()
    assert config.client_secret == ""
    assert CredentialStore().find(executor.base_url, executor.client_id) == CLIENT_SECRET
    assert fdl.build(config).get_auth_token()


def test_a_secret_that_is_not_known_is_asked_for(cluster: DGXCloudCluster) -> None:
    with pytest.raises(ConfigError, match="client_secret"):
        cluster.schedule("true", client_secret="")
