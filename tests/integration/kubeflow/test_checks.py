"""What cannot work is said before anything is made in the cluster, and by ``nemorun doctor``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli import commands
from tests.contract.backends import KubeflowCluster
from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.kubernetes.operator import Runtime
from tests.integration.kubeflow.waiting import until
from torchx.specs import AppState

from nemo_run.exceptions import (
    BackendUnavailableError,
    ConfigError,
    NemoRunError,
    SubmitError,
    UnsupportedError,
)

pytestmark = pytest.mark.slow


def without_kubeflow(emulator: KubernetesEmulator) -> None:
    emulator.kubeflow = False


def with_another_token(emulator: KubernetesEmulator) -> None:
    emulator.token = "another"


def without_exec(emulator: KubernetesEmulator) -> None:
    emulator.denied.add("create pods/exec")


def without_jobs(emulator: KubernetesEmulator) -> None:
    emulator.denied.add("create trainjobs")


def without_patching(emulator: KubernetesEmulator) -> None:
    emulator.denied.add("patch secrets")


def without_reading(emulator: KubernetesEmulator) -> None:
    emulator.denied |= {"get pods", "delete pods", "get secrets"}


def with_a_strange_runtime(emulator: KubernetesEmulator) -> None:
    emulator.runtimes["odd"] = Runtime(name="odd", job="worker")


WRONG = [
    pytest.param(without_kubeflow, {}, "cluster", "does not know TrainJobs", id="no Kubeflow"),
    pytest.param(with_another_token, {}, "cluster", "does not let us in", id="wrong token"),
    pytest.param(None, {"namespace": "nowhere"}, "namespace", "no namespace 'nowhere'", id="ns"),
    pytest.param(without_exec, {}, "rights", "may not: create pods/exec", id="no exec"),
    pytest.param(without_jobs, {}, "rights", "may not: create trainjobs", id="no jobs"),
    pytest.param(without_patching, {}, "rights", "may not: patch secrets", id="no patch"),
    pytest.param(
        without_reading,
        {"workdir_pvc": None},
        "rights",
        "may not: get secrets, get pods, delete pods",
        id="no reading",
    ),
    pytest.param(
        None, {"runtime_ref": "other"}, "runtime", "no ClusterTrainingRuntime 'other'", id="runtime"
    ),
    pytest.param(
        with_a_strange_runtime, {"runtime_ref": "odd"}, "runtime", "has no job 'node'", id="no node"
    ),
    pytest.param(
        None, {"workdir_pvc": "lost"}, "volume", "no PersistentVolumeClaim 'lost'", id="claim"
    ),
]


@pytest.mark.parametrize(("change", "settings", "subject", "said"), WRONG)
def test_what_is_missing_is_named_before_anything_is_made(
    cluster: KubeflowCluster,
    emulator: KubernetesEmulator,
    tmp_path: Path,
    change: Callable[[KubernetesEmulator], None] | None,
    settings: dict[str, Any],
    subject: str,
    said: str,
) -> None:
    if change is not None:
        change(emulator)
    with pytest.raises(SubmitError, match=said):
        cluster.schedule("true", **settings)
    (app_id,) = cluster.listed()
    assert "FAILED" in str(cluster.listed()[app_id])
    assert (emulator.created, emulator.secrets, emulator.movers) == ([], {}, [])
    found = doctor(cluster, tmp_path, **settings)
    assert found[subject].startswith("failed: ")
    assert said in found[subject]
    assert (emulator.created, emulator.secrets, emulator.movers) == ([], {}, [])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"image": ""}, "image is empty"),
        ({"num_nodes": 0}, "num_nodes=0 would run nothing"),
        ({"namespace": "Not_A_Name"}, "cannot be a name in Kubernetes"),
        ({"workdir_pvc_path": "relative"}, "must be an absolute path"),
        ({"volume_mounts": [{"name": "x", "mountPath": "/x"}]}, "none of `volumes`"),
        ({"workdir_local_path": "/no/such"}, "no directory of this machine"),
    ],
)
def test_settings_that_cannot_work_are_refused_while_planning(
    cluster: KubeflowCluster, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        cluster.plan("true", **settings)


def test_several_nodes_cannot_be_started_again(cluster: KubeflowCluster) -> None:
    with pytest.raises(UnsupportedError, match="retries=1"):
        cluster.plan("true", num_nodes=2, retries=1)


class TestKubeconfig:
    def test_that_there_is_none_is_said(
        self, cluster: KubeflowCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
        with pytest.raises(ConfigError, match="KUBECONFIG"):
            cluster.schedule("true")

    def test_one_that_is_none_is_named(
        self, cluster: KubeflowCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "odd").write_text("[1, 2]")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "odd"))
        with pytest.raises(ConfigError, match="odd"):
            cluster.schedule("true")

    def test_a_job_is_asked_about_where_it_was_submitted_to(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
    ) -> None:
        app_id = cluster.schedule("echo hi")
        config = json.loads(emulator.kubeconfig.read_text())
        other = {"name": "elsewhere", "cluster": {"server": "http://127.0.0.1:9"}}
        config["clusters"].append(other)
        config["contexts"].append(
            {"name": "elsewhere", "context": {"cluster": "elsewhere", "user": "u"}}
        )
        config["current-context"] = "elsewhere"
        emulator.kubeconfig.write_text(json.dumps(config))
        seen = cluster.in_new_process().call("seen", app_id)
        assert (seen["state"], seen["lines"]) == ("SUCCEEDED", ["hi\n"])

    def test_another_kubeconfig_does_not_hide_the_one_that_a_job_was_submitted_with(
        self,
        cluster: KubeflowCluster,
        emulator: KubernetesEmulator,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        app_id = cluster.schedule("true")
        other = tmp_path / "other"
        other.write_text(
            emulator.kubeconfig.read_text().replace(emulator.url, "http://127.0.0.1:9")
        )
        monkeypatch.setenv("KUBECONFIG", str(other))
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_a_kubeconfig_that_was_moved_is_used_where_it_is_now(
        self,
        cluster: KubeflowCluster,
        emulator: KubernetesEmulator,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        app_id = cluster.schedule("true")
        until(lambda: emulator.created[0].ended)
        moved = emulator.kubeconfig.rename(tmp_path / "moved")
        monkeypatch.setenv("KUBECONFIG", str(moved))
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() * 3600)  # it is read again
        status = cluster.status(app_id)
        assert status is not None
        assert status.state is AppState.SUCCEEDED

    def test_one_that_has_vanished_says_nothing_of_the_job(
        self,
        cluster: KubeflowCluster,
        emulator: KubernetesEmulator,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        app_id = cluster.schedule("sleep 60")
        away = emulator.kubeconfig.rename(tmp_path / "away")
        now = time.monotonic
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: now() * 3600)  # it is read again
            with pytest.raises(BackendUnavailableError, match="KUBECONFIG"):
                cluster.cancel(app_id)
            with pytest.raises(BackendUnavailableError, match="KUBECONFIG"):
                cluster.lines(app_id)
        away.rename(emulator.kubeconfig)
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED

    def test_a_context_that_leads_elsewhere_by_now_says_nothing_of_the_job(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = cluster.schedule("sleep 60")
        emulator.write_kubeconfig(server="http://127.0.0.1:9")
        status = cluster.in_new_process().call("told", app_id)
        assert status[0] in ("SUBMITTED", "PENDING", "RUNNING")
        assert "now leads to http://127.0.0.1:9" in status[1]
        emulator.write_kubeconfig()
        cluster.cancel(app_id)

    def test_credentials_that_were_renewed_are_read_again(
        self, cluster: KubeflowCluster, emulator: KubernetesEmulator
    ) -> None:
        app_id = cluster.schedule("echo hi")
        emulator.token = "renewed"
        emulator.write_kubeconfig(token="renewed")
        assert cluster.wait(app_id).exit_code == 0
        assert cluster.lines(app_id) == ["hi\n"]


def doctor(cluster: KubeflowCluster, tmp_path: Path, **settings: Any) -> dict[str, str]:
    """Return what the command found, by subject: its verdict and what it saw."""
    given = {"image": "some/image:1", **cluster.volume, **settings}
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    done = commands.nemorun("doctor", f"KubeflowExecutor({words})", "--json", cwd=tmp_path)
    assert done.err == ""
    installation, findings = done.json().values()
    verdicts = {finding["verdict"] for finding in (*installation, *findings)}
    assert done.code == (1 if "failed" in verdicts else 0)
    return {f["subject"]: f"{f['verdict']}: {f['detail']}" for f in findings}


def test_all_is_well(
    cluster: KubeflowCluster, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    found = doctor(cluster, tmp_path)
    assert found.pop("rights").startswith("ok: create trainjobs, ")
    assert found == {
        "executor": "ok: KubeflowExecutor",
        "settings": "ok: ",
        "cluster": f"ok: {emulator.url}, context emulated",
        "namespace": "ok: default",
        "runtime": "ok: torch-distributed",
        "volume": "ok: work (Bound), mounted at /workspace",
        "image": "unknown: some/image:1 is pulled when a job starts.",
    }


def test_what_we_may_not_look_at_is_left_to_the_cluster(
    cluster: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    emulator.denied |= {"get namespaces", "get clustertrainingruntimes"}
    emulator.denied.add("get persistentvolumeclaims")
    assert cluster.wait(cluster.schedule("true")).exit_code == 0


def test_a_cluster_that_cannot_be_reached_is_said(cluster: KubeflowCluster, tmp_path: Path) -> None:
    assert cluster.outage is not None
    with cluster.outage():
        found = doctor(cluster, tmp_path)
    assert found["cluster"].startswith("failed: ")


def test_errors_are_ours(cluster: KubeflowCluster) -> None:
    with pytest.raises(NemoRunError):
        cluster.schedule("true", runtime_ref="other")
