"""The import contract of `make check` is broken by what it forbids."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources, which keeps all contracts."""
    root = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    done = lint(root)
    assert done.returncode == 0, done.stdout
    return root


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("_backends/docker/planted.py", "from nemo_run._backends.slurm import client"),
        ("_backends/slurm/planted.py", "from nemo_run._backends.ray import slurm_batch"),
        ("_backends/lepton/planted.py", "from nemo_run._backends.kubernetes import script"),
        ("_backends/slurm/planted.py", "from nemo_run.core.execution.docker import DockerExecutor"),
        ("_transport/planted.py", "from nemo_run._backends.runai import client"),
        ("_config/planted.py", "from nemo_run.run.experiment import Experiment"),
        ("run/torchx_backend/schedulers/planted.py", "from nemo_run.cli import api"),
    ],
)
def test_an_import_against_the_direction_is_found(sources: Path, where: str, line: str) -> None:
    assert_found(sources, where, f"{line}\n")


def test_an_import_within_a_function_counts(sources: Path) -> None:
    lazy = "def later() -> None:\n    from nemo_run._backends.slurm import client\n"
    assert_found(sources, "_backends/docker/planted.py", lazy)


def assert_found(root: Path, where: str, text: str) -> None:
    """Assert that the linter names a module that is planted, and take it out again."""
    planted = root / "src/nemo_run" / where
    planted.write_text(text)
    try:
        done = lint(root)
    finally:
        planted.unlink()
    assert done.returncode == 1, done.stdout
    assert "planted" in done.stdout


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the linter on the sources in ``root``, not on those that are installed."""
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=root,
        env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=patience.seconds(120),
    )
