"""The emulated Run:ai behaves like the real one, asked by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from tests import patience
from tests.emulators.runai import CLIENT_ID, CLIENT_SECRET, Pace, RunaiEmulator
from tests.emulators.runai.emulator import CLUSTER_ID
from tests.emulators.runai.vendor import understood

pytestmark = pytest.mark.slow


class User:
    """Somebody with a token."""

    def __init__(self, emulator: RunaiEmulator) -> None:
        self.emulator = emulator
        body = {
            "grantType": "client_credentials",
            "clientId": CLIENT_ID,
            "clientSecret": CLIENT_SECRET,
        }
        answer = requests.post(
            f"{emulator.base_url}/token", json=body, timeout=patience.seconds(20)
        )
        self.token = answer.json()["accessToken"]

    def ask(self, method: str, path: str, **what: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.emulator.base_url}{path}"
        return requests.request(method, url, headers=headers, timeout=patience.seconds(20), **what)

    def create(self, kind: str, script: str, **settings: Any) -> requests.Response:
        spec = {
            "command": "bash -c",
            "args": f"'{script}'",
            "image": "some/image",
            "storage": {"pvc": [{"name": "work", "path": "/data"}]},
            **settings.pop("spec", {}),
        }
        body = {"name": "job", "projectId": "28", "clusterId": CLUSTER_ID, "spec": spec}
        return self.ask("POST", f"/workloads/{kind}", json={**body, **settings})

    def phases(self, kind: str, id: str, until: str) -> list[str]:
        seen: list[str] = []
        deadline = patience.deadline(20)
        while until not in seen:
            assert time.monotonic() < deadline, seen
            phase = self.ask("GET", f"/workloads/{kind}/{id}").json()["actualPhase"]
            if phase not in seen[-1:]:
                seen.append(phase)
            time.sleep(0.005)
        return seen


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[RunaiEmulator]:
    pace = Pace(creating=0.1, pending=0.1, starting=0.1)
    emulator = RunaiEmulator(tmp_path, pace=pace)
    yield emulator
    emulator.close()


@pytest.fixture
def user(emulator: RunaiEmulator) -> User:
    return User(emulator)


def test_nobody_gets_in_without_a_token(emulator: RunaiEmulator, user: User) -> None:
    assert user.ask("GET", "/workloads").status_code == 200
    emulator.expire_tokens()
    assert user.ask("GET", "/workloads").status_code == 401
    wrong = {"grantType": "client_credentials", "clientId": CLIENT_ID, "clientSecret": "x"}
    assert (
        requests.post(
            f"{emulator.base_url}/token", json=wrong, timeout=patience.seconds(20)
        ).status_code
        == 401
    )


def test_a_workload_goes_through_the_phases(user: User, emulator: RunaiEmulator) -> None:
    id = user.create("trainings", "echo hi > /data/file; sleep 0.3").json()["workloadId"]
    seen = user.phases("trainings", id, "Completed")
    assert [p for p in seen if p in ("Pending", "Running", "Completed")] == [
        "Pending",
        "Running",
        "Completed",
    ]
    assert (emulator.volume("work") / "file").read_text() == "hi\n"


def test_a_training_that_fails_is_started_as_often_as_it_says(user: User) -> None:
    created = user.create("trainings", "exit 3", spec={"backoffLimit": 1})
    id = created.json()["workloadId"]
    user.phases("trainings", id, "Failed")
    assert len(user.ask("GET", f"/workloads/{id}/pods").json()["pods"]) == 2


def test_a_suspended_workload_has_no_pods_and_can_be_resumed(user: User) -> None:
    id = user.create("workspaces", "sleep 60").json()["workloadId"]
    user.phases("workspaces", id, "Running")
    assert user.ask("POST", f"/workloads/workspaces/{id}/suspend").status_code == 202
    assert user.phases("workspaces", id, "Stopped")[-1] == "Stopped"
    assert user.ask("GET", f"/workloads/{id}/pods").json() == {"pods": []}
    assert user.ask("POST", f"/workloads/workspaces/{id}/resume").status_code == 202
    user.phases("workspaces", id, "Running")


def test_a_deleted_workload_is_only_among_the_deleted(user: User) -> None:
    id = user.create("trainings", "true").json()["workloadId"]
    user.phases("trainings", id, "Completed")
    assert user.ask("DELETE", f"/workloads/trainings/{id}").status_code == 202
    deadline = patience.deadline(10)
    while user.ask("GET", f"/workloads/trainings/{id}").status_code != 404:
        assert time.monotonic() < deadline
    found = user.ask("GET", "/workloads", params={"deleted": "true"}).json()["workloads"]
    assert [workload["id"] for workload in found] == [id]
    assert user.ask("GET", "/workloads").json()["workloads"] == []


def test_names_are_unique_and_have_to_be_names(user: User) -> None:
    assert user.create("trainings", "true").status_code == 202
    assert user.create("trainings", "true").status_code == 409
    assert user.create("trainings", "true", useGivenNameAsPrefix=True).status_code == 202
    assert user.create("trainings", "true", name="No Name").status_code == 400
    assert user.create("trainings", "true", projectId="99").status_code == 403


def test_a_workload_is_found_only_under_its_kind(user: User) -> None:
    id = user.create("trainings", "true").json()["workloadId"]
    assert user.ask("GET", f"/workloads/distributed/{id}").status_code == 404
    assert user.ask("GET", f"/workloads/{id}").status_code == 200
    user.phases("trainings", id, "Completed")
    assert user.ask("GET", f"/workloads/{id}/events").json()["events"]


def test_a_distributed_workload_has_a_pod_for_each_worker(user: User) -> None:
    spec = {
        "distributedFramework": "PyTorch",
        "numWorkers": 2,
        "minReplicas": 2,
        "maxReplicas": 2,
    }
    created = user.create("distributed", "echo $HOSTNAME $PET_NNODES", spec=spec)
    id = created.json()["workloadId"]
    user.phases("distributed", id, "Completed")
    pods = user.ask("GET", f"/workloads/{id}/pods").json()["pods"]
    assert [pod["name"] for pod in pods] == ["job-worker-0", "job-worker-1"]
    for pod in pods:
        url = f"{user.emulator.kube_url}/api/v1/namespaces/runai-team-a/pods/{pod['name']}/log"
        headers = {"Authorization": f"Bearer {user.token}"}
        params = {"container": "main", "timestamps": "true"}
        log = requests.get(url, headers=headers, params=params, timeout=patience.seconds(20)).text
        assert log.endswith(f" {pod['name']} 2:2\n")


def test_a_value_is_expanded_as_kubernetes_does(user: User) -> None:
    variables = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A) $(C) $$(A) $$"},
    ]
    created = user.create("trainings", 'echo "$B"', spec={"environmentVariables": variables})
    id = created.json()["workloadId"]
    user.phases("trainings", id, "Completed")
    (workload,) = user.emulator.workloads.values()
    container = workload.pods[0].container
    assert container is not None
    assert container.log.text == "1 $(C) $(A) $\n"


class TestVendorsClient:
    """The vendor's own client, made from the description of the API, finds what it expects."""

    @pytest.fixture
    def vendor(self, emulator: RunaiEmulator) -> Iterator[Any]:
        from runai.api_client import ApiClient
        from runai.configuration import Configuration
        from runai.runai_client import RunaiClient

        with ApiClient(
            Configuration(
                client_id=CLIENT_ID,
                client_secret=CLIENT_SECRET,
                runai_base_url=emulator.kube_url,
            )
        ) as client:
            yield RunaiClient(client)

    def wait(self, workload: Any, phase: str) -> None:
        deadline = patience.deadline(20)
        while workload().data["actualPhase"] != phase:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def test_it_creates_watches_suspends_resumes_and_deletes(self, vendor: Any) -> None:
        from runai.models.phase import Phase

        (project,) = vendor.organizations.projects.get_projects(filter_by=["name==team-a"]).data[
            "projects"
        ]
        request = understood(
            "TrainingCreationRequest",
            {
                "name": "job",
                "projectId": project["id"],
                "clusterId": project["clusterId"],
                "spec": {
                    "command": "sleep 60",
                    "image": "some/image",
                    "storage": {"pvc": [{"name": "work", "path": "/data"}]},
                },
            },
        )
        trainings = vendor.workloads.trainings
        id = understood("Training1", trainings.create_training1(request).data).workload_id

        def look() -> Any:
            return trainings.get_training(id)

        self.wait(look, "Running")
        assert understood("Training1", look().data).actual_phase is Phase.RUNNING
        trainings.suspend_training(id)
        self.wait(look, "Stopped")
        trainings.resume_training(id)
        self.wait(look, "Running")
        trainings.delete_training(id)
        deadline = patience.deadline(20)
        while not vendor.workloads.workloads.get_workloads(deleted=True).data["workloads"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def test_answers_are_as_they_are_described(self, vendor: Any, user: User) -> None:
        id = user.create("trainings", "exit 1", spec={"backoffLimit": 0}).json()["workloadId"]
        user.phases("trainings", id, "Failed")
        (listed,) = vendor.workloads.workloads.get_workloads().data["workloads"]
        assert understood("Workload", listed).phase.value == "Failed"
        (pod,) = vendor.workloads.pods.get_workload_pods(id).data["pods"]
        assert understood("Pod1", pod).completed_at is not None
        events = vendor.workloads.events.get_workload_events(id).data["events"]
        assert [understood("Event2", event).message for event in events][-1] == "a pod failed"
        body = {"grantType": "app_token", "AppId": CLIENT_ID, "AppSecret": CLIENT_SECRET}
        answer = requests.post(
            f"{user.emulator.base_url}/token", json=body, timeout=patience.seconds(20)
        )
        assert understood("TokenResponse", answer.json()).expires_in == 300
