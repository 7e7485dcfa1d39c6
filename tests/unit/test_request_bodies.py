"""The whole of what Run:ai and Kubernetes are asked for, in the words of each."""

from __future__ import annotations

from typing import Any

import pytest

import nemo_run as run
from nemo_run._backends.kubeflow import manifests
from nemo_run._backends.kubeflow.client import TrainJob
from nemo_run._backends.runai import payloads
from nemo_run._backends.runai.client import Project
from nemo_run._transport.answers import Answer

PROJECT = Project(id="28", name="team-a", cluster_id="71f69d83", namespace="runai-team-a")
PVCS = [{"name": "work", "path": "/workspace"}]
TAG = "nr-0123456789abcdef0123"


class TestRunai:
    def job(self, **settings: Any) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "name": "train",
            "project": PROJECT,
            "script": "/w/launch.sh",
            "image": "img:1",
            "pvcs": PVCS,
            "gpus": 0,
            "nodes": 1,
            "framework": "PyTorch",
            "retries": 2,
            "env": {"A": "1", "API_TOKEN": "secret"},
            "tag": TAG,
            "custom": {},
        }
        return payloads.job(**{**plain, **settings})

    def test_a_training(self) -> None:
        assert self.job() == {
            "name": "train",
            "useGivenNameAsPrefix": False,
            "projectId": "28",
            "clusterId": "71f69d83",
            "spec": {
                "command": "/bin/bash /w/launch.sh",
                "image": "img:1",
                "compute": {"largeShmRequest": True},
                "storage": {"pvc": PVCS},
                "environmentVariables": [{"name": "A", "value": "1"}],
                "labels": [{"name": "nemo-run/tag", "value": TAG}],
                "backoffLimit": 2,
                "restartPolicy": "Never",
            },
        }

    def test_a_distributed_workload_has_as_many_workers_as_nodes(self) -> None:
        one, two = self.job()["spec"], self.job(nodes=2, gpus=8)["spec"]
        assert {key: two[key] for key in two.keys() - one.keys()} == {
            "distributedFramework": "PyTorch",
            "numWorkers": 2,
            "minReplicas": 2,
            "maxReplicas": 2,
        }
        assert two["compute"] == {"largeShmRequest": True, "gpuDevicesRequest": 8}
        other = self.job(nodes=2, framework="MPI")["spec"]
        assert (other["distributedFramework"], other["numWorkers"]) == ("MPI", 2)
        assert "minReplicas" not in other

    def test_a_workspace_that_moves_files(self) -> None:
        security = {"runAsUid": 1000}
        body = payloads.mover(
            name="mover", project=PROJECT, pvcs=PVCS, security=security, used="/w/state/used"
        )
        assert body == {
            "name": "mover",
            "useGivenNameAsPrefix": False,
            "projectId": "28",
            "clusterId": "71f69d83",
            "spec": {
                "command": "sh -c",
                "args": "'mkdir -p /w/state; touch /w/state/used; "
                'while [ -n "$(find /w/state/used -mmin -5)" ]; do sleep 5; done\'',
                "image": "busybox:1.37.0",
                "compute": {"cpuCoreRequest": 0.1, "cpuMemoryRequest": "64M"},
                "storage": {"pvc": PVCS},
                "backoffLimit": 0,
                "autoDeletionTimeAfterCompletionSeconds": 60,
                "security": security,
            },
        }
        plain = payloads.mover(name="m", project=PROJECT, pvcs=[], security={}, used="/u")
        assert "security" not in plain["spec"]

    def test_a_workspace_is_shared_by_jobs_with_the_same_volumes_and_rights(self) -> None:
        prefix = payloads.mover_prefix(PVCS, {"a": 1, "b": 2})
        assert prefix == payloads.mover_prefix([dict(reversed(PVCS[0].items()))], {"b": 2, "a": 1})
        assert prefix.startswith("nemo-run-mover-")
        assert len(prefix) == len("nemo-run-mover-") + 10
        assert prefix != payloads.mover_prefix(PVCS, {"a": 1})
        assert prefix != payloads.mover_prefix([], {"a": 1, "b": 2})

    @pytest.mark.parametrize(
        ("role", "name"),
        [
            ("train", "train-cdef0123"),
            ("7b", "j-7b-cdef0123"),
            ("-_-", "job-cdef0123"),
            ("x" * 50, f"{'x' * 21}-cdef0123"),
            (f"{'x' * 20}_y", f"{'x' * 20}-cdef0123"),
        ],
    )
    def test_a_name_has_the_role_and_the_end_of_the_tag(self, role: str, name: str) -> None:
        made = payloads.workload_name(role, TAG)
        assert made == name.replace("cdef0123", TAG[-12:])
        assert len(made) <= 34


class TestKubeflow:
    def executor(self, **settings: Any) -> run.KubeflowExecutor:
        return run.KubeflowExecutor(**{"image": "img:1", **settings})

    def test_a_job_of_ours(self) -> None:
        body = manifests.submitted_body(self.executor(), "j", ["$x"], tag=TAG)
        assert body["metadata"]["labels"] == {"nemo-run/tag": TAG}
        assert body["spec"]["podTemplateOverrides"] == [
            {
                "targetJobs": [{"name": "node"}],
                "spec": {
                    "containers": [
                        {
                            "name": "node",
                            "volumeMounts": [
                                {
                                    "name": "nemo-run-job",
                                    "mountPath": "/nemo_run_job",
                                    "readOnly": True,
                                },
                                {"name": "nemo-run-files", "mountPath": "/nemo_run"},
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "nemo-run-job", "secret": {"secretName": "j"}},
                        {"name": "nemo-run-files", "emptyDir": {}},
                    ],
                },
            }
        ]

    def test_a_job_of_ours_on_a_work_volume(self) -> None:
        mine = self.executor(
            workdir_pvc="work",
            workdir_pvc_path="/w",
            volumes=[{"name": "v", "emptyDir": {}}],
            volume_mounts=[{"name": "v", "mountPath": "/v"}],
        )
        body = manifests.submitted_body(mine, "j", ["x"], tag=TAG)
        (entry,) = body["spec"]["podTemplateOverrides"]
        assert entry["spec"]["volumes"] == [
            {"name": "v", "emptyDir": {}},
            {"name": "nemo-run-workdir", "persistentVolumeClaim": {"claimName": "work"}},
            {"name": "nemo-run-job", "secret": {"secretName": "j"}},
        ]
        (container,) = entry["spec"]["containers"]
        assert container["volumeMounts"] == [
            {"name": "v", "mountPath": "/v"},
            {"name": "nemo-run-workdir", "mountPath": "/w"},
            {"name": "nemo-run-job", "mountPath": "/nemo_run_job", "readOnly": True},
        ]

    def test_a_work_volume_that_the_user_mounts_is_taken_as_it_is(self) -> None:
        mine = self.executor(
            workdir_pvc="work",
            workdir_pvc_path="/w",
            volumes=[{"name": "mine", "persistentVolumeClaim": {"claimName": "work"}}],
            volume_mounts=[{"name": "mine", "mountPath": "/w/"}],
        )
        body = manifests.submitted_body(mine, "j", ["x"], tag=TAG)
        (entry,) = body["spec"]["podTemplateOverrides"]
        names = [volume["name"] for volume in entry["spec"]["volumes"]]
        mounts = [mount["name"] for mount in entry["spec"]["containers"][0]["volumeMounts"]]
        assert names == mounts == ["mine", "nemo-run-job"]

    def test_a_container_and_a_pod_of_other_names_are_left_alone(self) -> None:
        mine = self.executor(
            pod_spec_overrides={"containers": [{"name": "sidecar"}]},
        )
        body = manifests.submitted_body(mine, "j", ["x"], tag=TAG)
        (entry,) = body["spec"]["podTemplateOverrides"]
        first, second = entry["spec"]["containers"]
        assert first == {"name": "sidecar"}
        assert second["name"] == "node"

    def test_settings_of_the_pods(self) -> None:
        mine = self.executor(
            image_pull_secrets=["reg"],
            tolerations=[{"key": "gpu"}],
            affinity={"nodeAffinity": {}},
            pod_labels={"a": "1"},
            pod_annotations={"b": "2"},
        )
        (entry,) = mine.get_job_body("j", [])["spec"]["podTemplateOverrides"]
        assert entry == {
            "targetJobs": [{"name": "node"}],
            "spec": {
                "imagePullSecrets": [{"name": "reg"}],
                "tolerations": [{"key": "gpu"}],
                "affinity": {"nodeAffinity": {}},
            },
            "metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}},
        }

    def test_resources_are_asked_for_on_the_side_that_was_set(self) -> None:
        mine = self.executor(
            gpus_per_node=8,
            cpu_requests="4",
            memory_requests="1Gi",
            cpu_limits="5",
            memory_limits="2Gi",
            extra_resource_requests={"rdma/ib": 1},
            extra_resource_limits={"rdma/ib": 2},
        )
        assert mine.get_job_body("j", [])["spec"]["trainer"]["resourcesPerNode"] == {
            "requests": {"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "8", "rdma/ib": "1"},
            "limits": {"cpu": "5", "memory": "2Gi", "nvidia.com/gpu": "8", "rdma/ib": "2"},
        }
        only = self.executor(cpu_limits="5").get_job_body("j", [])["spec"]["trainer"]
        assert only["resourcesPerNode"] == {"limits": {"cpu": "5"}}

    def test_a_secret_goes_with_its_job(self) -> None:
        mine = self.executor(namespace="team")
        assert manifests.secret_body(mine, "j", tag=TAG, data={"launch.sh": b"x"}) == {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {
                "name": "j",
                "namespace": "team",
                "labels": {"nemo-run/tag": TAG, "nemo-run/purpose": "job"},
            },
            "data": {"launch.sh": "eA=="},
        }
        job = TrainJob.read(Answer({"metadata": {"name": "j", "uid": "u1"}}))
        assert manifests.owned_by(job) == {
            "metadata": {
                "ownerReferences": [
                    {
                        "apiVersion": "trainer.kubeflow.org/v1alpha1",
                        "kind": "TrainJob",
                        "name": "j",
                        "uid": "u1",
                    }
                ]
            }
        }

    def test_a_pod_that_moves_files(self) -> None:
        mine = self.executor(tolerations=[{"key": "gpu"}], image_pull_secrets=["reg"])
        body = manifests.mover_body(
            start=f"{'m' * 49}-x",
            namespace="team",
            image="busybox",
            volumes=[{"name": "v", "emptyDir": {}}],
            mounts=[{"name": "v", "mountPath": "/w"}],
            pod={
                **manifests.mover_pod(mine),
                "affinity": {"a": {}},
                "securityContext": {"runAsUser": 1},
                "nodeSelector": {"n": "1"},
                "hostNetwork": True,
            },
        )
        start, _, unique = body["metadata"].pop("name").rpartition("-")
        assert start == "m" * 49
        assert len(unique) == 8
        assert body == {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": "team", "labels": {"nemo-run/purpose": "mover"}},
            "spec": {
                "restartPolicy": "Never",
                "activeDeadlineSeconds": 7200,
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "mover",
                        "image": "busybox",
                        "command": ["sh", "-c", "sleep 7200"],
                        "volumeMounts": [{"name": "v", "mountPath": "/w"}],
                    }
                ],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "tolerations": [{"key": "gpu"}],
                "imagePullSecrets": [{"name": "reg"}],
                "affinity": {"a": {}},
                "securityContext": {"runAsUser": 1},
                "nodeSelector": {"n": "1"},
            },
        }

    @pytest.mark.parametrize(
        ("base", "start"),
        [("Train_1", "train-1"), ("7b", "j-7b"), ("", "job"), ("x" * 50, "x" * 20)],
    )
    def test_a_name_has_the_base_and_the_end_of_the_tag(self, base: str, start: str) -> None:
        assert manifests.trainjob_name(base, TAG) == f"{start}-{TAG[-12:]}"
