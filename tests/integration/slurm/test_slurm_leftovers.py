"""What a removed experiment leaves on the cluster: nothing, if that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli import commands
from tests.integration.slurm.cluster import SlurmCluster

import nemo_run as run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def launched(tmp_path: Path) -> str:
    tunnel = run.SSHTunnel(host="loop", user="root", job_dir=str(tmp_path / "cluster"))
    executor = run.SlurmExecutor(account="root", mem="100M", tunnel=tunnel, packager=run.Packager())
    with run.Experiment("left", executor=executor, clean_mode=True, check=True) as experiment:
        experiment.add(run.Script(inline="echo hello"), name="one")
        experiment.add(run.Script(inline="echo hello"), name="two")
        experiment.run()
    return experiment._id


def test_directories_on_the_cluster_are_collected_after_a_dry_run(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    id = launched(tmp_path)
    there = tmp_path / "cluster" / "left" / id
    assert (there / "one").is_dir()
    words = ("experiment", "gc", "--older-than", "0s", "--json")
    dry = commands.nemorun(*words, cwd=tmp_path)
    assert dry.code == 0, dry.err
    assert dry.json()["leftovers"] == [f"directory {there} on root@loop"]
    assert there.is_dir(), "it was only looked at"
    kept = commands.nemorun(*words, "--keep-remote", cwd=tmp_path).json()
    assert kept["leftovers"] == []
    done = commands.nemorun(*words, "--yes", cwd=tmp_path)
    assert done.json()["experiments"] == [id], done.err
    assert not there.exists()
    assert (tmp_path / "cluster").is_dir(), "what is the user's own stays"


def test_rm_leaves_them_unless_told_otherwise(slurm: SlurmCluster, tmp_path: Path) -> None:
    id = launched(tmp_path)
    there = tmp_path / "cluster" / "left" / id
    shown = commands.nemorun("experiment", "rm", id, "--dryrun", cwd=tmp_path)
    assert shown.lines == [f"Would remove {id}", f"Would leave directory {there} on root@loop"]
    done = commands.nemorun("experiment", "rm", id, "--yes", "--remote", cwd=tmp_path)
    assert done.lines == [f"Removed {id}", f"Removed directory {there} on root@loop"]
    assert not there.exists()
