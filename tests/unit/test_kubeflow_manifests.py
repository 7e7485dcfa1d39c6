"""TrainJobs, and what goes with them, made from settings alone."""

from __future__ import annotations

import base64
import getpass
import re
import sys
from typing import Any

import fiddle as fdl
import pytest

import nemo_run as run
from nemo_run._backends.kubeflow import manifests
from nemo_run._backends.kubeflow.calls import launch_script
from nemo_run._backends.kubeflow.client import TrainJob
from nemo_run._backends.kubeflow.script import Outcome, render
from nemo_run._transport.answers import Answer
from nemo_run.core.execution.base import ExecutorMacros
from nemo_run.core.execution.kubeflow import KubeflowJobState
from nemo_run.core.execution.launcher import FaultTolerance
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError


def executor(**settings: Any) -> run.KubeflowExecutor:
    return run.KubeflowExecutor(**{"image": "img:1", **settings})


def test_a_plain_job_says_no_more_than_it_must() -> None:
    assert executor().get_job_body("j", ["echo", "hi"]) == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {
                "numNodes": 1,
                "numProcPerNode": 1,
                "image": "img:1",
                "command": ["echo", "hi"],
                "env": [],
            },
        },
    }


def test_every_setting_has_its_place() -> None:
    body = executor(
        labels={"a": "1"},
        annotations={"b": "2"},
        num_nodes=2,
        gpus_per_node=8,
        cpu_requests="4",
        memory_limits="8Gi",
        extra_resource_requests={"rdma/ib": "1"},
        env_vars={"A": "x"},
        env_list=[{"name": "B", "value": "y"}],
        volumes=[{"name": "v", "emptyDir": {}}],
        volume_mounts=[{"name": "v", "mountPath": "/v"}],
        tolerations=[{"key": "gpu"}],
        affinity={"nodeAffinity": {}},
        image_pull_secrets=["s"],
        pod_labels={"l": "1"},
        pod_annotations={"n": "2"},
    ).get_job_body("j", ["true"])
    assert body["metadata"]["labels"] == {"a": "1"}
    assert body["metadata"]["annotations"] == {"b": "2"}
    trainer = body["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    assert trainer["env"] == [{"name": "A", "value": "x"}, {"name": "B", "value": "y"}]
    assert trainer["resourcesPerNode"] == {
        "requests": {"cpu": "4", "nvidia.com/gpu": "8", "rdma/ib": "1"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "8"},
    }
    assert body["spec"]["podTemplateOverrides"] == [
        {
            "targetJobs": [{"name": "node"}],
            "spec": {
                "volumes": [{"name": "v", "emptyDir": {}}],
                "imagePullSecrets": [{"name": "s"}],
                "tolerations": [{"key": "gpu"}],
                "affinity": {"nodeAffinity": {}},
                "containers": [
                    {"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
                ],
            },
            "metadata": {"labels": {"l": "1"}, "annotations": {"n": "2"}},
        }
    ]


def test_what_goes_over_everything_goes_last() -> None:
    body = executor(
        tolerations=[{"key": "a"}],
        pod_spec_overrides={"tolerations": [{"key": "b"}], "nodeSelector": {"x": "y"}},
        container_kwargs={"args": ["more"], "image": "other"},
        spec_kwargs={"suspend": True},
    ).get_job_body("j", ["true"])
    spec = body["spec"]
    assert spec["suspend"] is True
    assert (spec["trainer"]["image"], spec["trainer"]["args"]) == ("other", ["more"])
    assert spec["podTemplateOverrides"][0]["spec"] == {
        "tolerations": [{"key": "b"}],
        "nodeSelector": {"x": "y"},
    }


@pytest.mark.parametrize("given", [False, True])
def test_the_work_volume_is_mounted_unless_its_claim_is_a_volume_already(given: bool) -> None:
    own = {"name": "mine", "persistentVolumeClaim": {"claimName": "work"}}
    settings: dict[str, Any] = {"workdir_pvc": "work", "workdir_pvc_path": "/w"}
    if given:
        settings["volumes"] = [own]
        settings["volume_mounts"] = [{"name": "mine", "mountPath": "/w"}]
    spec = executor(**settings).get_job_body("j", [])["spec"]["podTemplateOverrides"][0]["spec"]
    name = "mine" if given else "nemo-run-workdir"
    assert [volume["name"] for volume in spec["volumes"]] == [name]
    assert spec["containers"][0]["volumeMounts"] == [{"name": name, "mountPath": "/w"}]


def test_making_a_body_changes_no_setting() -> None:
    one, other = (executor(volumes=[{"name": "v", "emptyDir": {}}]) for _ in range(2))
    body = manifests.submitted_body(one, "j", ["true"], tag="nr-1")
    body["spec"]["podTemplateOverrides"][0]["spec"]["volumes"][0]["name"] = "changed"
    assert one == other


def test_a_job_of_ours_has_a_tag_and_its_secret_whatever_the_user_replaced() -> None:
    mine = executor(
        labels={"a": "1"},
        pod_spec_overrides={"volumes": [{"name": "v", "emptyDir": {}}], "containers": []},
        spec_kwargs={"podTemplateOverrides": [{"targetJobs": [{"name": "other"}]}]},
    )
    body = manifests.submitted_body(mine, "j", ["$HOME $(x)"], tag="nr-1")
    assert body["metadata"]["labels"] == {"a": "1", "nemo-run/tag": "nr-1"}
    assert body["spec"]["trainer"]["command"] == ["$$HOME $$(x)"]
    other, ours = body["spec"]["podTemplateOverrides"]
    assert other == {"targetJobs": [{"name": "other"}]}
    assert ours["spec"]["volumes"] == [
        {"name": "nemo-run-job", "secret": {"secretName": "j"}},
        {"name": "nemo-run-files", "emptyDir": {}},
    ]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"pod_spec_overrides": {"volumes": [], "containers": []}}, id="pods"),
        pytest.param({"pod_spec_overrides": {"volumes": []}}, id="volumes"),
        pytest.param({"pod_spec_overrides": {"containers": []}}, id="containers"),
        pytest.param({"spec_kwargs": {"podTemplateOverrides": []}}, id="spec"),
        pytest.param(
            {"volumes": [{"name": "mine", "persistentVolumeClaim": {"claimName": "work"}}]},
            id="a volume that is mounted nowhere",
        ),
    ],
)
def test_a_job_of_ours_has_its_work_volume_whatever_the_user_replaced(
    settings: dict[str, Any],
) -> None:
    mine = executor(workdir_pvc="work", workdir_pvc_path="/w", **settings)
    body = manifests.submitted_body(mine, "j", ["true"], tag="nr-1")
    (entry,) = body["spec"]["podTemplateOverrides"]
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in entry["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    (container,) = entry["spec"]["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == "/w"]
    assert claims == {mount["name"]: "work"}


def test_nothing_else_is_mounted_where_the_work_volume_goes() -> None:
    mine = executor(
        workdir_pvc="work",
        workdir_pvc_path="/w",
        volumes=[{"name": "v", "emptyDir": {}}],
        volume_mounts=[{"name": "v", "mountPath": "/w/"}],
    )
    with pytest.raises(ConfigError, match="volume_mounts has 'v' at /w"):
        mine.check()


def test_a_variable_with_a_login_is_in_the_secret_alone() -> None:
    login = "postgres://me:hunter2@host/db"
    mine = executor(env_vars={"DATABASE": login, "SITE": "https://host/db"})
    assert "hunter2" not in str(mine.get_job_body("j", []))
    body = manifests.secret_body(mine, "j", tag="nr-1", data={})
    assert body["data"] == {"DATABASE": base64.b64encode(login.encode()).decode()}


def test_what_sounds_secret_is_in_the_secret_alone() -> None:
    mine = executor(env_vars={"HF_TOKEN": "t0k", "STEPS": "$3", "WANDB_API_KEY": ""})
    env = mine.get_job_body("j", [])["spec"]["trainer"]["env"]
    assert env == [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "j", "key": "HF_TOKEN"}}},
        {"name": "STEPS", "value": "$$3"},
        {"name": "WANDB_API_KEY", "value": ""},
    ]
    body = manifests.secret_body(mine, "j", tag="nr-1", data={"launch.sh": b"x"})
    data = {key: base64.b64decode(value).decode() for key, value in body["data"].items()}
    assert data == {"HF_TOKEN": "t0k", "launch.sh": "x"}


@pytest.mark.parametrize("base", ["", "---", "1234", "Mixed.Case_and more", "x" * 80, "naïve"])
def test_names_are_ones_that_kubernetes_takes_and_no_other_job_has(base: str) -> None:
    names = {manifests.trainjob_name(base, f"nr-{number:020x}") for number in range(5)}
    assert len(names) == 5
    for name in names:
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
        assert len(name) <= 33


def test_the_processes_on_a_node_are_those_asked_for_else_one_for_each_gpu() -> None:
    asked = [executor(nprocs_per_node=3, gpus_per_node=8), executor(gpus_per_node=8), executor()]
    assert [one.nproc_per_node() for one in asked] == [3, 8, 1]


def test_the_place_of_a_job_is_below_user_experiment_and_job_also_when_it_was_stored() -> None:
    mine = executor(workdir_pvc="work")
    mine.assign("exp_1", "/home/x", "task", "dir")
    place = f"/nemo_run/{getpass.getuser()}/exp_1/task/code"
    assert mine.code_dir == place
    stored = ZlibJSONSerializer().serialize(mine)
    assert fdl.build(ZlibJSONSerializer().deserialize(stored)).code_dir == place


def test_a_config_has_nothing_that_0_12_does_not_know() -> None:
    mine = executor()
    mine.assign("exp_1", "/home/x", "task", "dir")
    assert "job_name" not in mine.to_config().__arguments__


class TestState:
    @pytest.mark.parametrize(
        ("status", "state"),
        [
            ({}, "CREATED"),
            ({"jobsStatus": [{"active": 1}]}, "RUNNING"),
            ({"jobsStatus": [{"ready": 1}]}, "RUNNING"),
            ({"jobsStatus": [{"failed": 1}]}, "RUNNING"),
            ({"jobsStatus": [{"succeeded": 1, "active": 0}]}, "SUCCEEDED"),
            ({"jobsStatus": [{"succeeded": 1}, {"active": 1}]}, "RUNNING"),
            ({"jobsStatus": [{"suspended": 1}]}, "UNKNOWN"),
            ({"conditions": [{"type": "Complete", "status": "True"}]}, "SUCCEEDED"),
            ({"conditions": [{"type": "Failed", "status": "True"}]}, "FAILED"),
            (
                {
                    "conditions": [{"type": "Failed", "status": "False"}],
                    "jobsStatus": [{"active": 1, "failed": 1}],
                },
                "RUNNING",
            ),
        ],
    )
    def test_a_job_has_failed_when_kubeflow_says_so(
        self, status: dict[str, Any], state: str
    ) -> None:
        metadata = {"name": "job", "uid": "1"}
        job = TrainJob.read(Answer({"metadata": metadata, "status": status}))
        assert KubeflowJobState.of(job).name == state

    def test_every_state_has_one_of_torchx(self) -> None:
        from nemo_run.run.torchx_backend.schedulers.kubeflow import KUBEFLOW_STATES

        assert set(KUBEFLOW_STATES) == {*KubeflowJobState, None}


class TestScript:
    def test_only_variables_of_the_pod_are_left_to_the_shell(self) -> None:
        text = render(
            ["run", "$PET_MASTER_ADDR:1", "$HOME"],
            name="j",
            place="/w/a b",
            env={"A": "$B", "R": "$PET_NODE_RANK"},
            expand={"PET_MASTER_ADDR", "PET_NODE_RANK"},
        )
        assert "run \"${PET_MASTER_ADDR}\":1 '$HOME' </dev/null" in text
        assert "export A='$B'" in text
        assert 'export R="${PET_NODE_RANK}"' in text
        assert "dir='/w/a b'" in text

    def test_every_macro_is_a_variable_of_the_pod(self) -> None:
        mine = executor(launcher=FaultTolerance(cfg_path="/w/ft.yml"))
        macros = [
            ExecutorMacros.HEAD_NODE_IP_VAR,
            ExecutorMacros.NPROC_PER_NODE_VAR,
            ExecutorMacros.NUM_NODES_VAR,
            ExecutorMacros.NODE_RANK_VAR,
            ExecutorMacros.FT_LAUNCHER_CFG_PATH_VAR,
        ]
        words = [mine.macro_values().substitute(f"$${macro}") for macro in macros]
        text = launch_script(mine, ["run", *words], name="j", env={"C": words[-1]}, retries=0)
        assert (
            'run "${PET_MASTER_ADDR}" "${PET_NPROC_PER_NODE}" "${PET_NNODES}" "${PET_NODE_RANK}" '
            '"${FAULT_TOL_CFG_PATH}"'
        ) in text
        known, used = "export FAULT_TOL_CFG_PATH=/w/ft.yml\n", 'export C="${FAULT_TOL_CFG_PATH}"\n'
        assert text.index(known) < text.index(used)

    def test_what_a_pod_leaves_can_be_read(self) -> None:
        said = "nemo_run: exit_code=3 attempts=2 lines=14\n"
        assert Outcome.from_message(said) == Outcome(3, 2, 14)
        assert Outcome.from_file("3 2\n") == Outcome(3, 2)
        assert Outcome.from_message("OOM") is None
        assert Outcome.from_file("") is None


def test_the_package_it_needs_is_named_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    mine = executor()
    with pytest.raises(ImportError, match=r"nemo_run\[kubeflow\]"):
        mine.check()
