"""The example for Docker does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience
from tests.contract.backends import ROOT, DockerCluster
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PYTHON

pytestmark = pytest.mark.slow


def test_three_groups_run_in_order_and_their_logs_are_shown(
    cluster: DockerCluster, engine: DockerEngine, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "docker_groups.py"), PYTHON],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience.seconds(200),
    )
    assert done.returncode == 0, done.stdout
    shown = re.findall(r"^(\w+)-([01])/0 (\w+) (left|right) on (\S+)$", done.stdout, re.MULTILINE)
    assert sorted((group, side) for group, _, said, side, _ in shown if group == said) == [
        (group, side) for group in ("data", "model", "train") for side in ("left", "right")
    ], done.stdout
    assert {group for group, *_ in shown[-2:]} == {"train"}
    assert len({host for *_, host in shown}) == 6, "each has a container of its own"
    assert "{'data': 'SUCCEEDED', 'model': 'SUCCEEDED', 'train': 'SUCCEEDED'}" in done.stdout
    with engine.client() as client:
        assert client.containers.list(all=True) == []
