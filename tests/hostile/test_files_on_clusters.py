"""What other users of a cluster may read of a job's files."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from tests.contract.backends import Cluster
from tests.contract.conftest import marks_of
from torchx.specs import AppState

from nemo_run._backends.slurm.files import packed
from nemo_run._backends.slurm.request import submission
from nemo_run.core.execution.slurm import SlurmBatchRequest, SlurmExecutor
from nemo_run.core.tunnel.client import SSHTunnel


def test_all_that_reaches_slurm_is_for_its_owner_only(tmp_path: Path) -> None:
    job = tmp_path / "exp" / "job"
    (job / "configs").mkdir(parents=True)
    (job / "configs" / "job_fn_or_script").touch(mode=0o600)
    (job / "nsys_profile").mkdir()
    (tmp_path / "exp" / "__main__.py").write_text("TOKEN = 'secret'")
    tunnel = SSHTunnel(host="far.invalid", user="me", job_dir="/remote/exp")
    executor = SlurmExecutor(account="me", tunnel=tunnel, env_vars={"HF_TOKEN": "secret"})
    executor.job_dir = str(job)
    request = SlurmBatchRequest(
        launch_cmd=["sbatch"],
        jobs=["job"],
        command_groups=[["true"]],
        executor=executor,
        max_retries=0,
        extra_env={},
        tag="nr-1",
    )
    files = submission(request, b"#!/bin/sh").files
    with tarfile.open(fileobj=io.BytesIO(packed(files))) as tar:
        modes = {info.name: info.mode for info in tar if not info.issym()}
    assert {"remote/exp/job", "remote/exp/__main__.py", "remote/exp/job/code"} <= set(modes)
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}


def for_others(directory: Path) -> list[str]:
    """Return the files with something in them that other users can read below a directory."""
    found = []
    for path in directory.iterdir():
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & 0o011:
            found += for_others(path)
        elif stat.S_ISREG(mode) and mode & 0o044 and path.stat().st_size:
            found.append(str(path))
    return found


@pytest.mark.parametrize(
    "cluster",
    [pytest.param(name, marks=marks_of(name)) for name in ("dgx_cloud", "kubeflow", "lepton")],
    indirect=True,
)
def test_nothing_on_a_volume_is_for_others(cluster: Cluster, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        end = cluster.wait(cluster.schedule("echo said; echo made > here"))
    finally:
        os.umask(before)
    assert end.state is AppState.SUCCEEDED
    (volumes,) = tmp_path.glob("*/volumes")
    assert list(volumes.rglob("here")), "the job wrote there"
    assert for_others(volumes) == []
