"""What we ask Run:ai for, held against the vendor's own description of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.emulators.runai.vendor import not_understood

from nemo_run._backends.runai import payloads
from nemo_run._backends.runai.client import Project
from nemo_run._backends.runai.payloads import workload_name

PROJECT = Project(id="28", name="team-a", cluster_id="71f69d83", namespace="runai-team-a")
PVCS = [{"name": "work", "path": "/workspace", "existingPvc": True, "claimName": "work"}]


def job(**settings: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "name": "train-0123456789ab",
        "project": PROJECT,
        "script": "/workspace/nemo_run/.dgx_cloud/train/launch_script.sh",
        "image": "some/image:1",
        "pvcs": PVCS,
        "gpus": 0,
        "nodes": 1,
        "framework": "PyTorch",
        "retries": 0,
        "env": {},
        "tag": "nr-0123456789abcdef0123",
        "custom": {},
    }
    return payloads.job(**{**defaults, **settings})


class TestNames:
    @pytest.mark.parametrize(
        "role",
        ["train", "Mixed.Case_x", "x" * 80, "___", "1234", "naïve ☃", "a b", "-", "", "a--b-"],
    )
    def test_any_role_gives_a_name_that_kubernetes_takes(self, role: str) -> None:
        name = workload_name(role, "nr-0123456789abcdef0123")
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
        assert len(name) <= payloads.MAX_NAME

    def test_a_role_can_be_recognised(self) -> None:
        assert workload_name("Train_7b", "nr-00000000abcdef012345") == "train-7b-abcdef012345"

    def test_roles_that_look_alike_and_submissions_of_one_role_differ(self) -> None:
        names = {
            workload_name("x" * 70 + end, f"nr-{number:020x}")
            for end in "ab"
            for number in range(50)
        }
        assert len(names) == 50  # the tag alone tells apart: no two submissions share one


class TestJob:
    def test_a_job_on_one_node_is_a_plain_training(self) -> None:
        body = job()
        assert "numWorkers" not in body["spec"]
        assert body["spec"]["backoffLimit"] == 0
        assert body["useGivenNameAsPrefix"] is False

    def test_a_job_on_several_nodes_has_as_many_workers(self) -> None:
        spec = job(nodes=3)["spec"]
        assert (spec["numWorkers"], spec["minReplicas"], spec["maxReplicas"]) == (3, 3, 3)
        assert spec["distributedFramework"] == "PyTorch"

    def test_gpus_are_asked_for_only_where_there_are_any(self) -> None:
        assert job(gpus=8)["spec"]["compute"] == {"largeShmRequest": True, "gpuDevicesRequest": 8}
        assert job()["spec"]["compute"] == {"largeShmRequest": True}

    def test_variables_that_sound_secret_stay_out_of_what_others_can_see(self) -> None:
        spec = job(env={"HF_TOKEN": "x", "WANDB_API_KEY": "y", "STEPS": "3"})["spec"]
        assert spec["environmentVariables"] == [{"name": "STEPS", "value": "3"}]

    def test_the_users_own_words_win_also_over_the_number_of_workers(self) -> None:
        custom = {"priorityClass": "low", "maxReplicas": 8, "image": "other"}
        spec = job(nodes=2, custom=custom)["spec"]
        assert {key: spec[key] for key in custom} == custom

    def test_the_tag_is_on_the_job(self) -> None:
        labels = job()["spec"]["labels"]
        assert labels == [{"name": "nemo-run/tag", "value": "nr-0123456789abcdef0123"}]


@pytest.mark.slow
class TestVendorModels:
    """`runapy` is generated from the description of Run:ai's API."""

    @pytest.mark.parametrize("retries", [0, 3])
    def test_a_training_is_understood(self, retries: int) -> None:
        body = job(gpus=8, retries=retries, env={"A": "1"}, custom={"priorityClass": "low"})
        assert not_understood("trainings", body) == []

    def test_a_distributed_workload_is_understood(self) -> None:
        body = job(nodes=4, gpus=8, env={"A": "1"}, custom={"security": {"runAsUid": 1000}})
        assert not_understood("distributed", body) == []

    def test_a_workspace_is_understood(self) -> None:
        body = payloads.mover(
            name="nemo-run-mover-1",
            project=PROJECT,
            pvcs=PVCS,
            security={"runAsUid": 1000},
            used="/workspace/used",
        )
        assert not_understood("workspaces", body) == []

    def test_a_word_that_run_ai_does_not_have_would_be_found(self) -> None:
        assert not_understood("trainings", job(custom={"gpus": 8})) == ["body.spec.gpus"]

    def test_the_phases_are_those_of_run_ai(self) -> None:
        from runai.models.phase import Phase

        from nemo_run.core.execution.dgxcloud import DGXCloudState

        assert {state.value for state in DGXCloudState} == {phase.value for phase in Phase}
