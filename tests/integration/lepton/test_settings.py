"""What is asked of a Lepton workspace, and what is refused before."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
from tests.contract.backends import LeptonCluster
from tests.emulators.lepton import LeptonEmulator
from tests.integration.lepton.requests import sent
from torchx.specs import AppState

import nemo_run as run
from nemo_run._backends.lepton.types import vendor_types
from nemo_run._jobs.records import mark_nonce
from nemo_run.exceptions import ConfigError, SubmitError

pytestmark = pytest.mark.slow


def spec_of(cluster: LeptonCluster, emulator: LeptonEmulator, **settings: Any) -> dict[str, Any]:
    cluster.wait(cluster.schedule(["true"], **settings))
    (body,) = sent(emulator)
    spec: dict[str, Any] = body["spec"]
    return spec


class TestWhatIsAskedFor:
    def test_a_plain_job_asks_for_nothing_special(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        spec = spec_of(cluster, emulator)
        assert spec["shared_memory_size"] == 65536
        assert spec["completions"] == spec["parallelism"] == 1
        assert spec["intra_job_communication"] is True
        assert not {"queue_config", "reservation_config", "max_job_failure_retry"} & spec.keys()

    def test_the_node_group_is_given_and_its_nodes_are_not(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        spec = spec_of(cluster, emulator)
        assert spec["affinity"] == {"allowed_dedicated_node_groups": ["my-group-x7k2"]}

    @pytest.mark.parametrize(
        ("settings", "queue"),
        [
            ({"queue_priority": "high-7000"}, {"priority_class": "high-7000"}),
            ({"can_preempt": True}, {"priority_class": "mid-4000", "can_preempt": True}),
            (
                {"can_be_preempted": True, "queue_priority": "low-1000"},
                {"priority_class": "low-1000", "can_be_preempted": True},
            ),
        ],
    )
    def test_a_priority_counts_with_or_without_preemption(
        self,
        cluster: LeptonCluster,
        emulator: LeptonEmulator,
        settings: dict[str, Any],
        queue: dict[str, Any],
    ) -> None:
        assert spec_of(cluster, emulator, **settings)["queue_config"] == queue

    def test_reservation_shape_and_pull_secrets_are_passed_on(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        emulator.secrets["registry"] = "x"
        spec = spec_of(
            cluster,
            emulator,
            node_reservation="res-1",
            image_pull_secrets=["registry"],
            shared_memory_size=1024,
        )
        assert spec["reservation_config"] == {"reservation_id": "res-1"}
        assert spec["image_pull_secrets"] == ["registry"]
        assert spec["shared_memory_size"] == 1024

    def test_what_is_custom_goes_over_the_rest(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        custom = {"container": {"image": "other/image"}, "ttl_seconds_after_finished": 60}
        spec = spec_of(cluster, emulator, custom_spec=custom)
        assert spec["container"]["image"] == "other/image"
        assert spec["container"]["command"][0] == "/bin/bash"
        assert spec["ttl_seconds_after_finished"] == 60

    def test_jobs_are_tagged(self, cluster: LeptonCluster, emulator: LeptonEmulator) -> None:
        app_id = cluster.schedule(["true"])
        (body,) = sent(emulator)
        record = next(cluster.scheduler._store.list("lepton"))
        assert record.app_id == app_id
        labels = {"nemo-run-tag": record.tag, "nemo-run-mark": mark_nonce(record.tag)}
        assert body["metadata"]["labels"] == labels
        cluster.wait(app_id)


class TestWrongSettings:
    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"node_group": "nowhere"}, "nowhere.*Known: my-group"),
            ({"custom_spec": {"no_such_field": 1}}, "no_such_field"),
            ({"nodes": 0}, "nodes=0"),
        ],
    )
    def test_they_are_named_before_anything_is_created(
        self,
        cluster: LeptonCluster,
        emulator: LeptonEmulator,
        settings: dict[str, Any],
        said: str,
    ) -> None:
        executor = cluster.assigned("job")
        for name, value in settings.items():
            setattr(executor, name, value)
        app = cluster.app(["true"], executor=executor)
        with pytest.raises(ConfigError, match=said):
            cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
        assert emulator.jobs == {}

    @pytest.mark.parametrize(
        ("mounts", "said"),
        [
            ([{"mount_path": "/volume", "from": "x"}], "Mount 0 .* has no path"),
            ([{"path": "/", "from": "x"}], "Mount 0 .* has no mount_path"),
            ([], "'/volume/nemo_run' is on no mount"),
            ([{"path": "/", "mount_path": "/vol", "from": "x"}], "is on no mount .*/vol"),
        ],
    )
    def test_mounts_are_looked_at_while_planning(
        self, cluster: LeptonCluster, mounts: list[dict[str, Any]], said: str
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.LeptonExecutor)
        executor.mounts = mounts
        app = cluster.app(["true"], executor=executor)
        with pytest.raises(ConfigError, match=said):
            cluster.scheduler.submit_dryrun(app, executor)

    def test_a_mount_that_does_not_say_where_from_is_named(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.LeptonExecutor)
        executor.mounts = [{"path": "/", "mount_path": "/volume"}]
        app = cluster.app(["true"], executor=executor)
        planned = cluster.scheduler.submit_dryrun(app, executor)
        if not vendor_types("deployment").Mount.model_fields["from_"].is_required():
            # Up to 0.26 the client leaves that to the workspace.
            assert cluster.wait(cluster.scheduler.schedule(planned)).state is AppState.SUCCEEDED
            return
        with pytest.raises(ConfigError, match=r"mounts\.0\.from: Field required\.$"):
            cluster.scheduler.schedule(planned)
        assert emulator.jobs == {}

    def test_a_secret_that_is_not_there_is_named(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        with pytest.raises(SubmitError, match=r"answers 400\): secret 'no-such-secret' not found$"):
            cluster.schedule(["true"], secret_vars={"TOKEN": "no-such-secret"})
        ((_, state),) = cluster.listed().items()
        assert state is AppState.FAILED

    def test_without_a_workspace_it_says_how_to_log_in(
        self, cluster: LeptonCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in list(os.environ):
            if name.startswith("LEPTON_WORKSPACE"):
                monkeypatch.delenv(name)
        with pytest.raises(ConfigError, match="lep login"):
            cluster.schedule(["true"])


class TestSecrets:
    def test_a_secret_of_the_workspace_arrives_and_is_sent_by_name_only(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        emulator.secrets["my-token"] = "hf-123"
        app_id = cluster.schedule(
            'test "$HF_TOKEN" = hf-123 && echo arrived', secret_vars={"HF_TOKEN": "my-token"}
        )
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["arrived\n"]
        assert b"hf-123" not in b"".join(request.body for request in emulator.server.seen)

    def test_a_token_in_plain_sight_is_warned_about(
        self, cluster: LeptonCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster.wait(cluster.schedule(["true"], env_vars={"HF_TOKEN": "abc", "LR": "1"}))
        (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert "HF_TOKEN" in warning
        assert "secret_vars" in warning
        assert "abc" not in warning
