"""``nemorun ray`` finds by name what was started from here; asking is tested on a real Slurm."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.cli import commands

import nemo_run as run
from nemo_run.cli.commands.completion import candidates
from nemo_run.config import get_nemorun_home
from nemo_run.exceptions import ConfigError, UnsupportedError
from nemo_run.run.ray import _known
from nemo_run.run.ray.job import RayJob


@pytest.fixture
def executor(tmp_path: Path) -> run.SlurmExecutor:
    tunnel = run.LocalTunnel(job_dir=str(tmp_path / "jobs"))
    return run.SlurmExecutor(account="team", tunnel=tunnel, env_vars={"HF_TOKEN": "hf_abcdefgh"})


def test_what_was_to_be_started_is_listed_the_latest_first(
    executor: run.SlurmExecutor, tmp_path: Path
) -> None:
    assert commands.nemorun("ray", "list", cwd=tmp_path).out.startswith("No Ray clusters")
    _known.remember("cluster", "dev", executor)
    _known.remember("job", "train", executor)
    shown = commands.nemorun("ray", "list", "--cached", "--json", cwd=tmp_path).json()
    assert [(each["name"], each["kind"], each["executor"]) for each in shown] == [
        ("train", "job", "SlurmExecutor"),
        ("dev", "cluster", "SlurmExecutor"),
    ]
    assert {each["state"] for each in shown} == {None}
    table = commands.nemorun("ray", "list", "--cached", cwd=tmp_path)
    assert "hf_abcdefgh" not in table.out
    assert candidates(["ray", "status"], "d") == ["dev"]


def test_what_is_started_again_with_other_settings_is_the_same(
    executor: run.SlurmExecutor,
) -> None:
    _known.remember("cluster", "dev", executor)
    executor.nodes = 2
    _known.remember("cluster", "dev", executor)
    (known,) = _known.all_known()
    assert known.cluster().executor == executor


def test_the_cluster_that_a_job_was_submitted_to_is_known_again() -> None:
    executor = run.LeptonExecutor(
        container_image="i", nemo_run_dir="/v", resource_shape="cpu.small"
    )
    _known.remember("job", "train", executor, cluster_name="shared")
    (known,) = _known.all_known()
    assert known.job().backend.cluster_name == "shared"


def test_only_the_owner_can_read_with_which_variables(
    executor: run.SlurmExecutor,
) -> None:
    _known.remember("cluster", "dev", executor)
    (path,) = Path(get_nemorun_home(), "ray", "known").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_name_that_is_not_known_is_said_with_one_that_is(
    executor: run.SlurmExecutor, tmp_path: Path
) -> None:
    _known.remember("cluster", "dev", executor)
    for command in ("status", "logs", "stop", "forward"):
        done = commands.nemorun("ray", command, "dex", cwd=tmp_path)
        assert (done.code, "Did you mean 'dev'?" in done.err) == (2, True)
    done = commands.nemorun("ray", "logs", "dev", cwd=tmp_path)
    assert (done.code, "is a cluster" in done.err) == (2, True)


def test_a_damaged_file_is_named(executor: run.SlurmExecutor, tmp_path: Path) -> None:
    _known.remember("cluster", "dev", executor)
    (path,) = Path(get_nemorun_home(), "ray", "known").iterdir()
    path.write_text("[1]")
    done = commands.nemorun("ray", "list", cwd=tmp_path)
    assert done.code != 0
    assert str(path) in done.err


def test_a_ray_job_is_a_task_only_where_that_starts_a_cluster(
    executor: run.SlurmExecutor,
) -> None:
    task = RayJob(name="train", executor=executor).as_task("python train.py")
    assert task.metadata == {"use_with_ray_cluster": True}
    with pytest.raises(UnsupportedError, match="setup_lines"):
        RayJob(name="x", executor=executor, pre_ray_start_commands=["a"]).as_task("true")
    with pytest.raises((ValueError, ConfigError)):
        RayJob(name="x", executor=run.LocalExecutor()).as_task("true")
