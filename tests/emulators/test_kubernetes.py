"""The emulated Kubernetes behaves like a real one, asked by the vendor's own client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config  # type: ignore[import-untyped]
from tests import patience
from tests.emulators.kubernetes import KubernetesEmulator, Pace
from tests.emulators.kubernetes.operator import Runtime

pytestmark = pytest.mark.slow

WHERE = ("trainer.kubeflow.org", "v1alpha1", "default", "trainjobs")


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[KubernetesEmulator]:
    emulator = KubernetesEmulator(tmp_path, pace=Pace(back_off=0.02))
    yield emulator
    emulator.close()


@pytest.fixture
def api(emulator: KubernetesEmulator) -> Any:
    configuration = client.Configuration()
    config.load_kube_config(str(emulator.kubeconfig), client_configuration=configuration)
    return client.ApiClient(configuration)


def job(script: str, **trainer: Any) -> dict[str, Any]:
    command = ["sh", "-c", script]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"image": "any:1", "command": command, **trainer},
        },
    }


def create(api: Any, body: dict[str, Any]) -> Any:
    return client.CustomObjectsApi(api).create_namespaced_custom_object(*WHERE, body)


def status(api: Any) -> Any:
    found = client.CustomObjectsApi(api).get_namespaced_custom_object(*WHERE, "job")
    return found["status"]


def until(condition: Callable[[], object]) -> None:
    deadline = patience.deadline(60)
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def log(api: Any, pod: str, **options: Any) -> str:
    answer = client.CoreV1Api(api).read_namespaced_pod_log(
        pod, "default", container="node", _preload_content=False, **options
    )
    text: str = answer.data.decode()
    return text


def conditions(api: Any) -> list[str]:
    return [item["type"] for item in status(api).get("conditions") or ()]


def test_a_job_becomes_an_indexed_pod_for_each_node_and_completes(api: Any) -> None:
    create(api, job("echo $JOB_COMPLETION_INDEX $PET_NODE_RANK of $PET_NNODES", numNodes=2))
    until(lambda: conditions(api) == ["Complete"])
    assert status(api)["jobsStatus"][0]["succeeded"] == 1
    core = client.CoreV1Api(api)
    selector = "jobset.sigs.k8s.io/jobset-name=job"
    pods = core.list_namespaced_pod("default", label_selector=selector).items
    indices = [pod.metadata.labels["batch.kubernetes.io/job-completion-index"] for pod in pods]
    assert sorted(indices) == ["0", "1"]
    for pod in pods:
        index = pod.metadata.labels["batch.kubernetes.io/job-completion-index"]
        assert pod.metadata.name.startswith(f"job-node-0-{index}-")
        assert log(api, pod.metadata.name) == f"{index} {index} of 2\n"


def test_a_container_that_fails_is_started_again_until_the_job_is_given_up(
    api: Any, emulator: KubernetesEmulator
) -> None:
    create(api, job("echo try; echo bad > /dev/termination-log; exit 3"))
    until(lambda: conditions(api) == ["Failed"])
    (pod,) = emulator.created[0].pods
    assert len(pod.containers) == 7
    assert set(pod.messages[:-1]) == {"bad\n"}
    assert client.CoreV1Api(api).list_namespaced_pod("default").items == []


def test_the_log_of_the_container_before_can_be_had(
    api: Any, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    mark = tmp_path / "second"
    create(api, job(f"[ -e {mark} ] && sleep 60; touch {mark}; echo first; exit 1"))
    until(lambda: emulator.created and emulator.created[0].pods)
    (pod,) = emulator.created[0].pods
    until(lambda: pod.restarts == 1)
    assert log(api, pod.name, previous=True) == "first\n"
    assert log(api, pod.name, previous=True, timestamps=True).endswith("Z first\n")


def test_a_failed_job_is_made_again_as_often_as_its_runtime_says(
    api: Any, emulator: KubernetesEmulator
) -> None:
    emulator.runtimes["torch-distributed"] = Runtime(backoff_limit=0, max_restarts=2)
    create(api, job("exit 1"))
    until(lambda: conditions(api) == ["Failed"])
    assert len(emulator.created[0].pods) == 3


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"trainer": {"numNodez": 1}}, 400, "unknown field spec.trainer.numNodez"),
        ({"runtimeRef": {"name": ""}}, 422, "runtimeRef.name: Required"),
        ({"runtimeRef": {"name": "other"}}, 422, "runtimeRef: not found"),
        ({"podTemplateOverrides": [{"spec": {}}]}, 422, "targetJobs: Required"),
        (
            {
                "podTemplateOverrides": [
                    {
                        "targetJobs": [{"name": "node"}],
                        "spec": {
                            "containers": [
                                {"name": "node", "volumeMounts": [{"name": "x", "mountPath": "/x"}]}
                            ]
                        },
                    }
                ]
            },
            422,
            "volumeMounts.name: Not found",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    api: Any, change: dict[str, Any], status: int, said: str
) -> None:
    body = job("true")
    body["spec"] |= change
    with pytest.raises(client.ApiException) as caught:
        create(api, body)
    assert caught.value.status == status
    assert said in json.loads(caught.value.body)["message"]


def test_a_name_is_taken_once_and_a_deleted_job_takes_its_pods_along(
    api: Any, emulator: KubernetesEmulator
) -> None:
    create(api, job("sleep 60"))
    with pytest.raises(client.ApiException) as caught:
        create(api, job("true"))
    assert caught.value.status == 409
    until(lambda: emulator.pods)
    client.CustomObjectsApi(api).delete_namespaced_custom_object(*WHERE, "job")
    until(lambda: not emulator.trainjobs)
    assert emulator.pods == {}


def test_who_has_another_token_is_not_let_in(api: Any, emulator: KubernetesEmulator) -> None:
    emulator.token = "another"
    with pytest.raises(client.ApiException) as caught:
        status(api)
    assert caught.value.status == 401
