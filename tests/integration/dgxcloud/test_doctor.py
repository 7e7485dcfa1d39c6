"""What ``nemorun doctor`` says of an executor for DGX Cloud."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli import commands
from tests.contract.backends import DGXCloudCluster
from tests.emulators.runai import RunaiEmulator

pytestmark = pytest.mark.slow


def doctor(cluster: DGXCloudCluster, tmp_path: Path, **settings: Any) -> dict[str, str]:
    """Return what the command found, by subject: its verdict and what it saw."""
    executor: Any = cluster.executor(**settings)
    names = ["base_url", "kube_apiserver_url", "client_id", "client_secret", "project_name"]
    names += ["container_image", "pvcs", "pvc_nemo_run_dir", "nodes"]
    words = ", ".join(f"{name}={getattr(executor, name)!r}" for name in names)
    done = commands.nemorun("doctor", f"DGXCloudExecutor({words})", "--json", cwd=tmp_path)
    assert done.err == ""
    installation, findings = done.json().values()
    verdicts = {finding["verdict"] for finding in (*installation, *findings)}
    assert done.code == (1 if "failed" in verdicts else 0)
    return {f["subject"]: f"{f['verdict']}: {f['detail']}" for f in findings}


def test_all_is_well(cluster: DGXCloudCluster, emulator: RunaiEmulator, tmp_path: Path) -> None:
    found = doctor(cluster, tmp_path)
    assert found == {
        "executor": "ok: DGXCloudExecutor",
        "settings": "ok: ",
        "credentials": f"ok: emulator-client at {emulator.base_url}",
        "project": "ok: team-a",
        "cluster": f"ok: {emulator.kube_url}, namespace runai-team-a",
        "volume": "unknown: /workspace: Run:ai mounts it with the job.",
        "image": "unknown: some/image:1 is pulled when a job starts.",
    }


@pytest.mark.parametrize(
    ("settings", "subject", "said"),
    [
        ({"nodes": 0}, "settings", "nodes=0 would run nothing"),
        ({"pvc_nemo_run_dir": "/elsewhere"}, "settings", "is on none of the volumes"),
        ({"client_id": "nobody"}, "credentials", "gave no token to client 'nobody'"),
        ({"client_secret": "env:NOT_SET"}, "credentials", "NOT_SET"),
        ({"project_name": "team-z"}, "project", "no project 'team-z'"),
        ({"kube_apiserver_url": "http://127.0.0.1:9"}, "cluster", "127.0.0.1:9"),
    ],
    ids=lambda value: "=".join(map(str, *value.items())) if isinstance(value, dict) else None,
)
def test_what_is_wrong_is_named(
    cluster: DGXCloudCluster, tmp_path: Path, settings: dict[str, Any], subject: str, said: str
) -> None:
    found = doctor(cluster, tmp_path, **settings)
    assert found[subject].startswith("failed: ")
    assert said in found[subject]


def test_nothing_is_made_there(
    cluster: DGXCloudCluster, emulator: RunaiEmulator, tmp_path: Path
) -> None:
    doctor(cluster, tmp_path)
    assert not emulator.workloads
