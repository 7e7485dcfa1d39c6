"""Ray on Kubernetes, as far as it needs no cluster: settings, descriptions and their changes."""

from __future__ import annotations

import copy
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import nemo_run as run
from nemo_run._backends.ray.kuberay import manifests
from nemo_run.core.execution import kuberay
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.exceptions import ConfigError
from nemo_run.run.ray.cluster import RayCluster
from nemo_run.run.ray.job import RayJob

VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "work"}}
MOUNT = {"name": "data", "mountPath": "/data"}


def job(executor: KubeRayExecutor, command: str, **settings: Any) -> dict[str, Any]:
    return manifests.job_body(
        executor, "a-rayjob", command, submission_id="a-1", workdir="/w", **settings
    )


def head_of(body: dict[str, Any]) -> dict[str, Any]:
    spec = body["spec"].get("rayClusterSpec", body["spec"])
    container: dict[str, Any] = spec["headGroupSpec"]["template"]["spec"]["containers"][0]
    return container


def test_constants_name_the_operators_objects() -> None:
    names = (kuberay.GROUP, kuberay.VERSION, kuberay.PLURAL, kuberay.KIND)
    assert names == ("ray.io", "v1", "rayclusters", "RayCluster")


def test_defaults_are_those_of_the_reference() -> None:
    executor = KubeRayExecutor()
    assert (executor.namespace, executor.ray_version) == ("default", "2.43.0")
    assert executor.image == "rayproject/ray:2.43.0"
    assert (executor.head_cpu, executor.head_memory) == ("1", "2Gi")
    assert executor.service_type == "ClusterIP"
    assert executor.reuse_volumes_in_worker_groups
    assert KubeRayWorkerGroup("workers", 2).replicas == 2
    assert not hasattr(run, "KubeRayExecutor")


def test_cluster_body_has_the_head_as_the_reference_describes_it() -> None:
    executor = KubeRayExecutor(
        image="my/ray:1",
        labels={"team": "a"},
        env_vars={"MODE": "x$(HOME)"},
        head_ports=[{"containerPort": 6379, "name": "gcs"}],
        lifecycle_kwargs={"postStart": {"exec": {"command": ["true"]}}},
        container_kwargs={"imagePullPolicy": "Always"},
        spec_kwargs={"nodeSelector": {"a": "b"}},
    )
    body = executor.get_cluster_body("my-cluster")
    assert (body["apiVersion"], body["kind"]) == ("ray.io/v1", "RayCluster")
    assert body["metadata"] == {
        "name": "my-cluster",
        "namespace": "default",
        "labels": {"team": "a"},
    }
    assert body["spec"]["rayVersion"] == "2.43.0"
    head = body["spec"]["headGroupSpec"]
    assert head["serviceType"] == "ClusterIP"
    assert head["rayStartParams"] == {"dashboard-host": "0.0.0.0"}
    assert head["template"]["spec"]["nodeSelector"] == {"a": "b"}
    container = head_of(body)
    assert (container["name"], container["image"]) == ("ray-head", "my/ray:1")
    assert container["ports"] == [{"containerPort": 6379, "name": "gcs"}]
    assert container["env"] == [{"name": "MODE", "value": "x$$(HOME)"}]
    assert container["lifecycle"]["preStop"]["exec"]["command"][-1] == "ray stop"
    assert "postStart" in container["lifecycle"]
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "2Gi"}
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert container["imagePullPolicy"] == "Always"


def test_worker_groups_get_the_gpus_asked_for_and_labels_go_on_their_pods() -> None:
    group = KubeRayWorkerGroup(
        group_name="big",
        replicas=3,
        max_replicas=5,
        gpus_per_worker=4,
        cpu_requests="2",
        memory_limits="8Gi",
        labels={"kind": "big"},
        annotations={"note": "n"},
    )
    executor = KubeRayExecutor(
        worker_groups=[group], ray_worker_start_params={"num-gpus": 4}, volumes=[VOLUME]
    )
    executor.volume_mounts = [MOUNT]
    (made,) = executor.get_cluster_body("my-cluster")["spec"]["workerGroupSpecs"]
    assert (made["groupName"], made["replicas"]) == ("big", 3)
    assert (made["minReplicas"], made["maxReplicas"]) == (3, 5)
    assert made["rayStartParams"] == {"num-gpus": "4"}
    assert made["template"]["metadata"] == {"labels": {"kind": "big"}, "annotations": {"note": "n"}}
    container = made["template"]["spec"]["containers"][0]
    assert container["name"] == "ray-worker"
    assert container["resources"] == {
        "requests": {"cpu": "2", "nvidia.com/gpu": 4},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": 4},
    }
    assert container["volumeMounts"] == [MOUNT]
    assert made["template"]["spec"]["volumes"] == [VOLUME]
    assert executor.nnodes() == 4


def test_worker_groups_may_keep_their_own_volumes() -> None:
    own = [{"name": "own", "emptyDir": {}}]
    group = KubeRayWorkerGroup("ww", volumes=own)
    executor = KubeRayExecutor(
        worker_groups=[group], volumes=[VOLUME], reuse_volumes_in_worker_groups=False
    )
    (made,) = executor.get_cluster_body("my-cluster")["spec"]["workerGroupSpecs"]
    assert made["template"]["spec"]["volumes"] == own


def test_describing_a_cluster_changes_no_setting() -> None:
    executor = KubeRayExecutor(
        ray_head_start_params={"num-cpus": 0}, worker_groups=[KubeRayWorkerGroup("ww")]
    )
    before = copy.deepcopy(executor)
    body = executor.get_cluster_body("my-cluster")
    manifests.run_before_ray(body["spec"], ["true"])
    job(executor, "echo 'x'", before_ray=["true"])
    assert executor == before


def test_variables_that_sound_secret_are_not_in_the_description() -> None:
    executor = KubeRayExecutor(env_vars={"WANDB_API_KEY": "abcdef123456"})
    assert "abcdef123456" not in str(executor.get_cluster_body("my-cluster"))
    secret = manifests.secret_body(executor, "my-cluster", "tag")
    assert secret is not None
    assert set(secret["data"]) == {"WANDB_API_KEY"}


@pytest.mark.parametrize(("version", "asks"), [("2.43.0", False), ("2.52.0", True), ("3.0", True)])
def test_clients_need_a_token_where_ray_knows_them(version: str, asks: bool) -> None:
    spec = KubeRayExecutor(ray_version=version).get_cluster_body("my-cluster")["spec"]
    assert (spec.get("authOptions") == {"mode": "token"}) is asks


def test_a_job_shuts_its_cluster_down_and_nothing_is_tried_again_unasked() -> None:
    body = job(KubeRayExecutor(), "python train.py --steps=3", runtime_env="env_vars: {A: b}")
    assert (body["apiVersion"], body["kind"]) == ("ray.io/v1", "RayJob")
    spec = body["spec"]
    assert spec["entrypoint"] == "python train.py --steps=3"
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["runtimeEnvYAML"] == "env_vars: {A: b}"
    assert spec["submitterConfig"] == {"backoffLimit": 0}
    assert spec["backoffLimit"] == 0
    assert head_of(body)["workingDir"] == "/w"
    assert job(KubeRayExecutor(retries=2), "a")["spec"]["backoffLimit"] == 2


@pytest.mark.parametrize(
    "command", ["a && b", "echo 'x  y'", 'echo "$HOME"', "a\nb", "a;b", "a |b", " a", "A=1 b"]
)
def test_a_command_for_a_shell_is_a_file_of_the_head(command: str) -> None:
    body = job(KubeRayExecutor(), command)
    assert body["spec"]["entrypoint"] == "bash /nemo_run_ray/command"
    template = body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    assert command in template["metadata"]["annotations"].values()
    assert head_of(body)["volumeMounts"][-1]["mountPath"] == "/nemo_run_ray"


def test_lines_run_before_ray_in_every_pod_and_in_front_of_own_commands() -> None:
    executor = KubeRayExecutor(
        worker_groups=[KubeRayWorkerGroup("ww")], container_kwargs={"args": ["sleep 1"]}
    )
    body = executor.get_cluster_body("my-cluster")
    manifests.run_before_ray(body["spec"], ["one", "two"])
    for container in manifests.containers_of(body["spec"]):
        assert container["command"] == ["set -e\none\ntwo\nset +e\nsleep 1"]
        assert "args" not in container


@pytest.mark.parametrize(
    ("name", "good"),
    [("ab", True), ("a", False), ("a.b", True), ("a_b", False), ("-a", False), ("a" * 64, False)],
)
def test_names_are_what_kubernetes_takes(name: str, good: bool) -> None:
    assert kuberay.is_valid_name(name) is good


def test_labels_may_have_underscores_inside() -> None:
    assert kuberay.is_valid_label("a_b")
    assert not kuberay.is_valid_label("_a")
    assert not kuberay.is_valid_label("A")


def test_parts_can_be_put_together_by_hand() -> None:
    cluster: dict[str, Any] = {}
    kuberay.populate_meta(cluster, "by-hand", "space", {"a": "b"}, "2.44.0")
    kuberay.populate_ray_head(cluster, image="i:1", cpu="2", memory="4Gi")
    kuberay.populate_worker_group(cluster, KubeRayWorkerGroup("ww", 2), image="i:1")
    assert cluster["metadata"]["namespace"] == "space"
    assert cluster["spec"]["rayVersion"] == "2.44.0"
    assert head_of(cluster)["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    assert cluster["spec"]["workerGroupSpecs"][0]["replicas"] == 2
    with pytest.raises(AssertionError):
        kuberay.populate_meta({}, "By Hand")


def test_worker_groups_can_be_changed_copied_and_deleted() -> None:
    cluster = KubeRayExecutor(worker_groups=[KubeRayWorkerGroup("ww")]).get_cluster_body("cc")
    cluster, found = kuberay.update_worker_group_replicas(cluster, "ww", 4, 2, 3)
    assert found
    group = cluster["spec"]["workerGroupSpecs"][0]
    assert [group[key] for key in ("maxReplicas", "minReplicas", "replicas")] == [4, 2, 3]
    cluster, found = kuberay.update_worker_group_resources(
        cluster, "ww", "1", "2Gi", "3", "4Gi", container_name="ray-worker"
    )
    assert found
    resources = group["template"]["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "1", "memory": "2Gi"}
    assert resources["limits"] == {"cpu": "3", "memory": "4Gi"}
    cluster, found = kuberay.duplicate_worker_group(cluster, "ww", "other")
    assert found
    cluster, found = kuberay.delete_worker_group(cluster, "ww")
    assert found
    assert [item["groupName"] for item in cluster["spec"]["workerGroupSpecs"]] == ["other"]
    assert kuberay.delete_worker_group(cluster, "ww")[1] is False
    assert kuberay.update_worker_group_replicas(cluster, "ww", 1, 1, 1)[1] is False
    with pytest.raises(AssertionError, match="less than"):
        kuberay.update_worker_group_replicas(cluster, "other", 1, 2, 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"service_type": "Open"}, "service_type"),
        ({"ray_version": "latest"}, "ray_version"),
        ({"namespace": "Not Good"}, "namespace"),
        ({"volume_mounts": [MOUNT]}, "none of its volumes"),
        ({"worker_groups": [KubeRayWorkerGroup("A!")]}, "group_name"),
        ({"worker_groups": [KubeRayWorkerGroup("ww"), KubeRayWorkerGroup("ww")]}, "Two worker"),
        ({"worker_groups": [KubeRayWorkerGroup("ww", 2, max_replicas=1)]}, "contradict"),
    ],
)
def test_wrong_settings_are_said_before_anything_is_asked(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        RayCluster(name="c", executor=KubeRayExecutor(**settings)).start()


def test_a_name_that_is_too_long_for_the_operator_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most"):
        RayJob(name="x" * 60, executor=KubeRayExecutor()).start("true", workdir=None)  # type: ignore[arg-type]  # none is sent


def test_an_executor_is_stored_and_read_again() -> None:
    executor = KubeRayExecutor(worker_groups=[KubeRayWorkerGroup("ww", 2)])
    assert executor.clone() == executor


def test_each_backend_is_imported_only_for_its_executor() -> None:
    code = """
        import sys
        from nemo_run.run.ray.cluster import RayCluster
        from nemo_run.run.ray.job import RayJob
        from nemo_run.core.execution.kuberay import KubeRayExecutor
        RayJob(name="j", executor=KubeRayExecutor())
        loaded = {"ray", "leptonai", "kubernetes", "nemo_run.run.ray.slurm"} & set(sys.modules)
        assert "nemo_run.run.ray.kuberay" in sys.modules
        print(sorted(loaded))
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
