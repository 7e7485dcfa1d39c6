"""How TrainJobs become pods, are started again, and end."""

from __future__ import annotations

import functools
import shlex
from collections import deque

import pytest
from tests.contract.backends import KubeflowCluster
from tests.emulators.kubernetes import KubernetesEmulator, Pace
from tests.emulators.kubernetes.operator import Runtime
from tests.integration.kubeflow.waiting import until
from torchx.specs import AppState, is_terminal

from nemo_run.run.torchx_backend.schedulers.api import LogQuery

pytestmark = pytest.mark.slow


def lines_of(cluster: KubeflowCluster, app_id: str, node: int) -> list[str]:
    return list(cluster.scheduler.log_iter(app_id, "job", node))


class TestWhatIsSubmitted:
    def test_settings_reach_the_pods(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        emulator.claims.add("data")
        (emulator.volume("data") / "sample").write_text("seven\n")
        toleration = {"key": "gpu", "operator": "Exists"}
        app_id = cluster.schedule(
            'cat /data/sample; echo "$PLAIN|$FROM_SECRET"',
            env_vars={"PLAIN": "a $(HOME) b"},
            env_list=[{"name": "FROM_SECRET", "value": "x"}],
            volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
            volume_mounts=[{"name": "d", "mountPath": "/data"}],
            tolerations=[toleration],
            image_pull_secrets=["registry"],
            pod_labels={"team": "red"},
            pod_annotations={"note": "b"},
            labels={"project": "p"},
            gpus_per_node=2,
            nprocs_per_node=1,
            cpu_requests="500m",
        )
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["seven\n", "a $(HOME) b|x\n"]
        (job,) = emulator.created
        (pod,) = job.pods
        assert job.labels["project"] == "p"
        assert pod.labels["team"] == "red"
        assert pod.body["metadata"]["annotations"] == {"note": "b"}
        assert pod.spec["tolerations"] == [toleration]
        assert pod.spec["imagePullSecrets"] == [{"name": "registry"}]
        assert pod.spec["containers"][0]["resources"] == {
            "requests": {"cpu": "500m", "nvidia.com/gpu": "2"},
            "limits": {"nvidia.com/gpu": "2"},
        }

    def test_the_name_is_that_of_the_setting_or_the_task_and_of_no_other_job(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        for settings in ({}, {}, {"train_job_basename": "Mine Own"}):
            cluster.wait(cluster.schedule("true", name="a_task", **settings))
        names = [job.name for job in emulator.created]
        assert len(set(names)) == 3
        assert [name.rpartition("-")[0] for name in names] == ["a-task", "a-task", "mine-own"]
        assert all(len(name) <= 33 for name in names)

    def test_a_cancelled_job_leaves_neither_pods_nor_secrets(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 60")
        cluster.wait_for_line(app_id, "up\n")
        assert len(emulator.secrets) == 1
        cluster.cancel(app_id)
        assert cluster.lines(app_id) == ["up\n"]
        until(lambda: not emulator.pods)
        assert emulator.trainjobs == {}
        assert emulator.secrets == {}

    def test_a_job_that_was_killed_runs_no_more_when_that_is_said(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        emulator.pace = Pace(grace=30)
        app_id = cluster.schedule("trap '' TERM; echo up; while :; do sleep 1; done")
        cluster.wait_for_line(app_id, "up\n")
        cluster.scheduler.kill(app_id)
        (container,) = emulator.created[0].pods[0].containers
        assert not container.running
        assert cluster.wait(app_id).state is AppState.CANCELLED


class TestStartedAgain:
    def test_a_task_is_not_run_more_often_than_asked_however_often_its_container_is(
        self, bare: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = bare.schedule("echo started; exit 4", retries=1)
        end = bare.wait(app_id)
        assert (end.state, end.exit_code, end.restarts) == (AppState.FAILED, 4, 1)
        (job,) = emulator.created
        until(lambda: job.pods[0].restarts >= 2)
        assert bare.lines(app_id) == ["started\n"] * 2
        until(lambda: job.ended == "Failed")
        until(lambda: not emulator.pods)
        assert bare.lines(app_id) == ["started\n"] * 2
        (pod,) = job.pods
        assert len(pod.containers) == 7, "the runtime allows six restarts"
        assert pod.messages[0].endswith(": exit_code=4 attempts=2 lines=2\n")

    def test_a_log_is_not_repeated_for_one_who_follows_it(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        mark = shlex.quote(str(cluster.scratch / "go"))
        app_id = cluster.schedule(
            f"echo one; echo two; until [ -e {mark} ]; do sleep 0.05; done; echo three; exit 1"
        )
        lines = iter(cluster.scheduler.log_iter(app_id, "job", should_tail=True))
        assert [next(lines), next(lines)] == ["one\n", "two\n"]
        (cluster.scratch / "go").touch()
        assert list(lines) == ["three\n"]

    def test_a_container_that_was_killed_counts_as_a_try(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        mark = shlex.quote(str(cluster.scratch / "second"))
        app_id = cluster.schedule(
            f"echo try; [ ! -e {mark} ] || exit 0; touch {mark}; sleep 60", retries=1
        )
        cluster.wait_for_line(app_id, "try\n")
        until(lambda: (cluster.scratch / "second").exists())
        (job,) = emulator.created
        job.pods[0].kill_container()
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code, end.restarts) == (AppState.SUCCEEDED, 0, 1)
        assert cluster.lines(app_id) == ["try\n", "try\n"]

    def test_a_container_that_is_killed_in_its_last_try_has_failed(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = cluster.schedule("echo try; sleep 60")
        cluster.wait_for_line(app_id, "try\n")
        emulator.created[0].pods[0].kill_container()
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 137)
        assert cluster.lines(app_id) == ["try\n"]

    def test_a_pod_that_had_to_leave_its_node_goes_on_elsewhere(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        mark = shlex.quote(str(cluster.scratch / "go"))
        app_id = cluster.schedule(f"echo up; [ -e {mark} ] || sleep 60")
        cluster.wait_for_line(app_id, "up\n")
        (job,) = emulator.created
        (cluster.scratch / "go").touch()
        job.pods[0].evict()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["up\n", "up\n"]
        assert len(job.pods) == 2

    def test_a_runtime_that_makes_new_pods_does_not_run_the_task_again(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        emulator.runtimes["never"] = Runtime(name="never", restart_policy="Never", backoff_limit=2)
        app_id = cluster.schedule("echo ran; exit 2", runtime_ref="never")
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 2)
        until(lambda: emulator.created[0].ended == "Failed")
        assert cluster.lines(app_id) == ["ran\n"]

    def test_without_a_volume_such_a_runtime_does_and_the_last_time_counts(
        self, bare: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        emulator.runtimes["never"] = Runtime(name="never", restart_policy="Never", backoff_limit=2)
        mark = shlex.quote(str(bare.scratch / "second"))
        app_id = bare.schedule(f"[ -e {mark} ] || {{ touch {mark}; exit 2; }}", runtime_ref="never")
        assert bare.wait(app_id).state is AppState.SUCCEEDED
        assert len(emulator.created[0].pods) == 2

    def test_a_job_has_not_failed_while_kubeflow_starts_it_again(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        emulator.runtimes["again"] = Runtime(name="again", backoff_limit=0, max_restarts=1)
        mark = shlex.quote(str(cluster.scratch / "second"))
        app_id = cluster.schedule(
            f"[ $PET_NODE_RANK = 0 ] || [ -e {mark} ] || {{ touch {mark}; kill -9 $PPID; }}",
            num_nodes=2,
            runtime_ref="again",
            workdir_pvc=None,
        )
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert len(emulator.created[0].pods) == 4


class TestGone:
    def test_how_a_job_ended_is_known_when_nobody_looked_before_it_expired(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        ids = {
            code: cluster.schedule(f"echo {code}; exit {code}", name=f"job-{code}")
            for code in (0, 3)
        }
        until(lambda: all(job.ended for job in emulator.created))
        for job in list(emulator.created):
            emulator.expire(job.name)
        for code, app_id in ids.items():
            end = cluster.wait(app_id)
            assert (end.exit_code, cluster.lines(app_id)) == (code, [f"{code}\n"])
        assert cluster.wait(ids[0]).state is AppState.SUCCEEDED
        assert cluster.wait(ids[3]).state is AppState.FAILED

    def test_the_end_of_a_log_on_the_volume_comes_without_all_that_is_before_it(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = cluster.schedule("seq 5000")
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        emulator.expire(emulator.created[0].name)
        query = LogQuery(role="job", last_only=True)
        assert cluster.scheduler.tail(app_id, query, 2) == deque(["4999\n", "5000\n"])
        assert "".join(cluster.scheduler.log_text(app_id, query)).startswith("4001\n")

    def test_a_job_that_expired_is_not_said_to_be_cancelled_while_its_volume_cannot_be_read(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = cluster.schedule("true")
        until(lambda: emulator.created[0].ended)
        emulator.expire(emulator.created[0].name)
        emulator.denied.add("create pods")
        status = cluster.status(app_id)
        assert status is not None
        assert not is_terminal(status.state)
        assert "how it ended cannot be read now" in status.message
        emulator.denied.clear()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_a_job_that_is_gone_with_its_volume_was_deleted(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = cluster.schedule("true")
        until(lambda: emulator.created[0].ended)
        emulator.expire(emulator.created[0].name)
        emulator.denied.add("create pods")
        emulator.claims.clear()
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_what_was_seen_of_a_job_without_a_volume_stays_known(
        self, bare: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = bare.schedule("echo said")
        bare.wait(app_id)
        emulator.expire(emulator.created[0].name)
        assert bare.wait(app_id).state is AppState.SUCCEEDED
        assert bare.lines(app_id, should_tail=True) == ["said\n"]

    def test_a_job_that_somebody_deletes_ends_and_so_does_following_it(
        self, bare: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = bare.schedule("echo up; sleep 60")
        bare.wait_for_line(app_id, "up\n")
        lines = iter(bare.scheduler.log_iter(app_id, "job", should_tail=True))
        assert next(lines) == "up\n"
        emulator.created[0].delete()
        assert list(lines) == []
        end = bare.wait(app_id)
        assert (end.state, end.message) == (AppState.CANCELLED, "deleted in the cluster")

    def test_a_pending_job_says_why(
        self, bare: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        with emulator.held():
            app_id = bare.schedule("true")
            until(lambda: emulator.created[0].pods)
            status = bare.status(app_id)
        assert status is not None
        assert status.state is AppState.PENDING
        assert bare.wait(app_id).state is AppState.SUCCEEDED

    def test_a_suspended_job_is_pending(self, bare: KubeflowCluster) -> None:
        app_id = bare.schedule("true", spec_kwargs={"suspend": True})
        status = bare.status(app_id)
        assert status is not None
        assert (status.state, status.message) == (
            AppState.PENDING,
            "Suspended: TrainJob is suspended",
        )
        bare.cancel(app_id)


class TestSeveralNodes:
    def test_each_node_has_a_log_of_its_own(self, cluster: KubeflowCluster) -> None:
        app_id = cluster.schedule("echo node $PET_NODE_RANK of $PET_NNODES", num_nodes=2)
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        for node in range(2):
            assert lines_of(cluster, app_id, node) == [f"node {node} of 2\n"]

    def test_a_node_that_fails_ends_the_others(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = cluster.schedule(
            "echo up; [ $PET_NODE_RANK = 0 ] || exit 7; sleep 60", num_nodes=2
        )
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 7)
        until(lambda: not emulator.pods)
        assert lines_of(cluster, app_id, 0) == ["up\n"]

    def test_all_nodes_of_a_cancelled_job_are_told(self, bare: KubeflowCluster) -> None:
        task = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 60 & wait; done"
        app_id = bare.schedule(task, num_nodes=2)
        for node in range(2):
            until(functools.partial(lines_of, bare, app_id, node))
        bare.cancel(app_id)
        for node in range(2):
            assert lines_of(bare, app_id, node) == ["up\n", "told\n"]
