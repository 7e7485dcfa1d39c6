"""What ``nemorun doctor`` says of an executor for Lepton."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli import commands
from tests.emulators.lepton import LeptonEmulator

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "container_image": "some/image",
    "nemo_run_dir": "/volume/nemo_run",
    "resource_shape": "cpu.small",
    "node_group": "my-group",
    "mounts": [{"path": "/", "mount_path": "/volume", "from": "node-nfs:shared"}],
    "secret_vars": {"TOKEN": "hub"},
}


def doctor(tmp_path: Path, env: dict[str, str] | None = None, **settings: Any) -> dict[str, str]:
    """Return what the command found, by subject: its verdict and what it saw."""
    words = ", ".join(f"{name}={value!r}" for name, value in {**SETTINGS, **settings}.items())
    done = commands.nemorun("doctor", f"LeptonExecutor({words})", "--json", cwd=tmp_path, env=env)
    installation, findings = done.json().values()
    verdicts = {finding["verdict"] for finding in (*installation, *findings)}
    assert done.code == (1 if "failed" in verdicts else 0)
    return {f["subject"]: f"{f['verdict']}: {f['detail']}" for f in findings}


def test_all_is_well(emulator: LeptonEmulator, tmp_path: Path) -> None:
    emulator.secrets["hub"] = "x"
    assert doctor(tmp_path) == {
        "executor": "ok: LeptonExecutor",
        "settings": "ok: ",
        "credentials": "ok: workspace ws1",
        "node group": "ok: my-group (my-group-x7k2)",
        "secret": "ok: hub",
        "mount": "unknown: /volume: comes with the job.",
        "image": "unknown: some/image is pulled when a job starts.",
    }


@pytest.mark.parametrize(
    ("settings", "subject", "said"),
    [
        ({"resource_shape": ""}, "settings", "needs a resource_shape"),
        ({"node_group": "other"}, "node group", "Known: my-group."),
        ({"secret_vars": {"TOKEN": "gone"}}, "secret", "has no secret 'gone'. Known: hub."),
        ({"image_pull_secrets": ["registry"]}, "secret", "has no secret 'registry'"),
    ],
    ids=["shape", "node group", "secret", "pull secret"],
)
def test_what_is_wrong_is_named(
    emulator: LeptonEmulator, tmp_path: Path, settings: dict[str, Any], subject: str, said: str
) -> None:
    emulator.secrets["hub"] = "x"
    found = doctor(tmp_path, **settings)
    assert found[subject].startswith("failed: ")
    assert said in found[subject]


def test_a_token_that_is_refused_is_named(emulator: LeptonEmulator, tmp_path: Path) -> None:
    found = doctor(tmp_path, env={"LEPTON_WORKSPACE_TOKEN": "wrong"})
    assert found["credentials"].startswith("failed: Lepton does not accept the token")
    assert "node group" not in found, "nothing more can be asked"
