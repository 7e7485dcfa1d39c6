"""Jobs on an emulated Lepton workspace, through the vendor's own client."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import LeptonCluster
from tests.emulators.lepton import LeptonEmulator
from torchx.specs import AppState

import nemo_run as run
from nemo_run.exceptions import ConfigError, SubmitError

pytestmark = pytest.mark.slow

CHECK = "print(__import__('hashlib').sha256(open('/nemo_run/code/data', 'rb').read()).hexdigest())"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LeptonCluster]:
    cluster = LeptonCluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def emulator(cluster: LeptonCluster) -> LeptonEmulator:
    assert cluster.emulator is not None
    return cluster.emulator


def sent(emulator: LeptonEmulator, *, movers: bool = False) -> list[dict[str, Any]]:
    """Return the descriptions of the jobs that were asked for."""
    bodies = [request.json for request in emulator.server.requests("POST", ".*/jobs")]
    return [body for body in bodies if body["metadata"]["id"].startswith("data-mover") is movers]


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
        assert body["metadata"]["labels"] == {"nemo-run-tag": record.tag}
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
        with pytest.raises(ConfigError, match=r"mounts\.0\.from"):
            cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
        assert emulator.jobs == {}

    def test_a_secret_that_is_not_there_is_named(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        with pytest.raises(SubmitError, match="no-such-secret"):
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


class TestFiles:
    def test_movers_are_private_and_gone_afterwards(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        cluster.wait(cluster.schedule("echo a-very-special-word"))
        (body,) = sent(emulator, movers=True)
        assert body["metadata"]["visibility"] == "private"
        assert "special" not in json.dumps(body["spec"]["container"])
        assert [job.id for job in emulator.jobs.values() if not job.archived] == [
            sent(emulator)[0]["metadata"]["id"]
        ]

    def test_size_is_not_limited_by_an_argument_list(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger="nemo_run")
        executor = cluster.assigned("job")
        data = os.urandom(3_000_000)
        code = Path(executor.job_dir) / "code"
        code.mkdir(parents=True)
        (code / "data").write_bytes(data)
        app = cluster.app(["python3", "-c", CHECK], executor=executor)
        app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
        cluster.wait(app_id)
        assert cluster.lines(app_id) == [hashlib.sha256(data).hexdigest() + "\n"]
        movers = sent(emulator, movers=True)
        assert 5 < len(movers) < 20
        assert all(len(json.dumps(body)) < 600_000 for body in movers)
        assert f"moved {len(movers)} of {len(movers)} parts" in caplog.text
        left = list(emulator.volume("node-nfs:shared").rglob("*incoming*"))
        assert left == []

    def test_what_an_earlier_job_wrote_stays_and_its_code_does_not(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        cluster.wait(cluster.schedule("echo kept > /nemo_run/result; touch /nemo_run/code/old"))
        app_id = cluster.schedule("cat /nemo_run/result; ls /nemo_run/code")
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["kept\n"]

    def test_a_mover_that_fails_is_told_about_and_removed(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        (emulator.volume("node-nfs:shared") / "nemo_run").write_text("in the way")
        with pytest.raises(SubmitError, match=r"could not be moved .*mkdir"):
            cluster.schedule(["true"])
        assert all(job.archived for job in emulator.jobs.values())
        assert sent(emulator) == []

    def test_a_mover_that_gets_no_place_is_given_up_and_removed(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.LeptonExecutor)
        with emulator.held(), pytest.raises(TimeoutError, match="Queueing"):
            executor.move_data(timeout=1, poll_interval=1)
        deadline = time.monotonic() + 10
        while not all(job.archived for job in emulator.jobs.values()):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def test_from_within_the_cluster_files_are_just_copied(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, tmp_path: Path
    ) -> None:
        mount = tmp_path / "mounted"
        mount.symlink_to(emulator.volume("node-nfs:shared"))
        executor = cluster.assigned("job", launched_from_cluster=True)
        assert isinstance(executor, run.LeptonExecutor)
        executor.nemo_run_dir = str(mount / "runs")
        executor.mounts = [{"path": "/", "mount_path": str(mount), "from": "node-nfs:shared"}]
        executor.assign("contract_1", executor.experiment_dir, "job", "job")
        app = cluster.app("echo copied", executor=executor)
        app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["copied\n"]
        assert sent(emulator, movers=True) == []


class TestNodes:
    def test_every_replica_is_told_apart_and_its_log_can_be_read(
        self, cluster: LeptonCluster
    ) -> None:
        app_id = cluster.schedule(
            'echo "$NODE_RANK of $NNODES"; getent hosts "$MASTER_ADDR" > /dev/null && echo found',
            nodes=2,
        )
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id, k=0) == ["0 of 2\n", "found\n"]
        assert cluster.lines(app_id, k=1) == ["1 of 2\n", "found\n"]
        assert cluster.lines(app_id, k=1, should_tail=True) == ["1 of 2\n", "found\n"]
        (role,) = cluster.scheduler.describe(app_id).roles
        assert role.num_replicas == 2

    def test_one_node_that_fails_ends_the_job_with_its_code(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule('test "$NODE_RANK" = 0 && sleep 60; exit 7', nodes=2)
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 7)

    def test_arguments_may_name_where_nodes_meet(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule(["echo", "$NODE_RANK", "at $MASTER_ADDR:$MASTER_PORT", "$HOME"])
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["0 at localhost:29400 $HOME\n"]

    def test_commands_of_the_users_run_first(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule(
            "echo $WORD", pre_launch_commands=["export WORD=before", "echo ready"]
        )
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["ready\n", "before\n"]


class TestStates:
    def test_a_queued_job_is_pending(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, tmp_path: Path
    ) -> None:
        planned = cluster.plan("true")
        with emulator.held():
            # The files must get there first.
            planned.request.executor.launched_from_cluster = True
            planned.request.executor.lepton_job_dir = str(tmp_path / "elsewhere")
            app_id = cluster.scheduler.schedule(planned)
            status = cluster.status(app_id)
            assert status is not None
            assert status.state is AppState.PENDING
            cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_a_word_nobody_knows_ends_nothing_and_is_logged_once(
        self,
        cluster: LeptonCluster,
        emulator: LeptonEmulator,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        app_id = cluster.schedule("exit 4")
        job_id = app_id.rpartition("___")[2]
        emulator.say_state(job_id, "Hibernating")
        for _ in range(3):
            status = cluster.status(app_id)
            assert status is not None
            assert status.state is AppState.UNKNOWN
        said = [record for record in caplog.records if job_id in record.getMessage()]
        assert len(said) == 1
        del emulator.refused_words[job_id]
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 4)

    @pytest.mark.parametrize(
        ("script", "state"), [("true", AppState.SUCCEEDED), ("exit 1", AppState.FAILED)]
    )
    def test_the_archive_does_not_hide_how_a_job_ended(
        self,
        cluster: LeptonCluster,
        emulator: LeptonEmulator,
        script: str,
        state: AppState,
    ) -> None:
        app_id = cluster.schedule(script)
        job = emulator.jobs[app_id.rpartition("___")[2]]
        job.thread.join(20)
        emulator.say_state(job.id, "Archived")
        assert cluster.wait(app_id).state is state

    def test_a_job_has_an_address_for_people(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule("true")
        cluster.wait(app_id)
        url = cluster.scheduler.describe(app_id).ui_url
        assert url.endswith(f"/compute/jobs/detail/{app_id.rpartition('___')[2]}/replicas/list")


class TestLogs:
    def test_the_last_lines_are_waited_for_when_the_store_is_late(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        emulator.log_lag_s = 2
        app_id = cluster.schedule("for i in 1 2 3; do echo $i; sleep 0.2; done; exit 9")
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 9)
        assert cluster.lines(app_id, should_tail=True) == ["1\n", "2\n", "3\n"]
        assert cluster.lines(app_id) == ["1\n", "2\n", "3\n"]

    def test_more_lines_than_one_answer_holds_are_all_there(self, cluster: LeptonCluster) -> None:
        app_id = cluster.schedule("seq 12000")
        cluster.wait(app_id)
        assert cluster.lines(app_id) == [f"{n}\n" for n in range(1, 12001)]

    def test_scripts_for_0_12_can_print_them(
        self, cluster: LeptonCluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        app_id = cluster.schedule("echo one; echo two; exit 1")
        cluster.wait(app_id)
        run.LeptonExecutor.logs(app_id, fallback_path=None)
        assert capsys.readouterr().out == "one\ntwo\n"


class TestScriptsFor012:
    def test_a_job_can_be_launched_asked_about_and_cancelled(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.LeptonExecutor)
        job_id, state = executor.launch("My_Job.1", ["sleep", "60"])
        assert job_id.startswith("my-job-1-")
        assert state.name in {"Queueing", "Starting", "Running"}
        executor.cancel(job_id)
        executor.cancel(job_id)
        emulator.jobs[job_id].thread.join(10)
        assert executor.status(job_id).name == "Deleted"
        assert executor.status("never-there").name == "Unknown"

    def test_a_running_job_can_be_stopped(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.LeptonExecutor)
        job_id, _ = executor.launch("job", ["sleep", "60"])
        while executor.status(job_id).name != "Running":
            time.sleep(0.02)
        executor.stop_job(job_id)
        emulator.jobs[job_id].thread.join(10)
        assert executor.status(job_id).name == "Stopped"
