"""A planted token is nowhere that others can look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import KubeflowCluster
from tests.contract.secrets import command_lines, holds, readable_files_with
from tests.emulators.kubernetes import KubernetesEmulator
from torchx.specs import AppState

pytestmark = pytest.mark.slow

TOKEN = "hf_Zx81kQmP0vLr77"
PLANTED: dict[str, Any] = {"env_vars": {"HF_TOKEN": TOKEN, "STEPS": "3"}}


@pytest.mark.parametrize("kind", ["cluster", "bare"])
def test_a_token_is_in_the_secret_of_the_job_alone(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    place: KubeflowCluster = request.getfixturevalue(kind)
    emulator = place.emulator
    assert emulator is not None
    app_id = place.schedule("echo ${#HF_TOKEN} $STEPS; sleep 0.3", **PLANTED)
    commands = command_lines()
    assert place.wait(app_id).state is AppState.SUCCEEDED
    assert place.lines(app_id) == [f"{len(TOKEN)} 3\n"]
    assert TOKEN not in commands
    assert readable_files_with(TOKEN, tmp_path) == []
    (job,) = emulator.created
    for shown in (job.to_json(), *(pod.to_json() for pod in (*job.pods, *emulator.movers))):
        assert not holds(TOKEN, json.dumps(shown).encode())
    for asked in emulator.server.seen:
        if not asked.path.endswith("/secrets"):
            text = f"{asked.path}?{asked.query_string} {dict(asked.headers)}"
            assert not holds(TOKEN, asked.body + text.encode())
    kept = [path for path in emulator.volume("work").rglob("*") if path.is_file()]
    assert not [path for path in kept if holds(TOKEN, path.read_bytes())]


def test_a_variable_that_sounds_secret_refers_to_the_secret_of_the_job(
    bare: KubeflowCluster, emulator: KubernetesEmulator
) -> None:
    bare.wait(bare.schedule("true", **PLANTED))
    (job,) = emulator.created
    assert job.trainer["env"] == [
        {
            "name": "HF_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": job.name, "key": "HF_TOKEN"}},
        },
        {"name": "STEPS", "value": "3"},
    ]


def test_a_dry_run_masks_what_whole_entries_hold_and_leaves_them_alone(
    bare: KubeflowCluster,
) -> None:
    entries: list[dict[str, Any]] = [
        {"name": "HF_TOKEN", "value": TOKEN},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}},
    ]
    text = str(bare.plan("true", env_list=entries))
    assert TOKEN not in text
    assert '"name": "wandb"' in text
    assert entries[0]["value"] == TOKEN
