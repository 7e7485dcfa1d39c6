"""The cluster that other tests rely on is what they take it for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience
from tests.conftest import processes_with
from tests.integration.slurm.cluster import SlurmCluster, temporary_cluster
from tests.integration.slurm.daemons import wait_until

from nemo_run._shell import render

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def over_ssh(cluster: SlurmCluster, command: str) -> str:
    argv = ["ssh", "-F", str(cluster.sshd.ssh_config), "loop", command]
    return subprocess.check_output(
        argv, text=True, stdin=subprocess.DEVNULL, timeout=patience.seconds(60)
    )


def test_jobs_run_on_all_nodes_and_see_their_gpus(slurm: SlurmCluster) -> None:
    log = slurm.directory / "gpus.log"
    script = "srun sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"
    ask = ["sbatch", "--parsable", "--wait", "-N4", "--gpus-per-node=2", "-o", str(log)]
    job = over_ssh(slurm, render([*ask, "--wrap", script])).strip()

    assert sorted(log.read_text().splitlines()) == [f"node{n} 0,1" for n in (1, 2, 3, 4)]
    wait_until(
        lambda: over_ssh(slurm, f"sacct -nXP -o state -j {job}").strip() == "COMPLETED",
        "the end of the job in the accounts",
    )


def test_a_cluster_without_accounting_has_no_accounts(bare_slurm: SlurmCluster) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        over_ssh(bare_slurm, "sacct")
    assert "node4" in over_ssh(bare_slurm, "sinfo -N")


def test_connections_and_commands_are_counted(slurm: SlurmCluster) -> None:
    connections, commands = slurm.sshd.connections(), slurm.sshd.commands()
    over_ssh(slurm, "true")
    over_ssh(slurm, "true")
    assert slurm.sshd.connections() == connections + 2
    assert slurm.sshd.commands() == commands + 2


def test_the_controller_can_be_away_and_come_back(slurm: SlurmCluster) -> None:
    with slurm.without_controller(), pytest.raises(subprocess.CalledProcessError):
        over_ssh(slurm, "SLURM_TIMEOUT=2 timeout 5 squeue")
    assert "JOBID" in over_ssh(slurm, "squeue")


def test_a_drained_node_takes_no_jobs(slurm: SlurmCluster) -> None:
    slurm.drain("node4")
    try:
        assert over_ssh(slurm, "sinfo -h -n node4 -p main -o %T").strip() == "drained"
    finally:
        slurm.resume("node4")


def test_nothing_is_left_behind() -> None:
    with temporary_cluster(nodes=1, accounting=False) as cluster:
        cluster.run("sbatch", "-o", "/dev/null", "--wrap", "sleep 600 & sleep 600")
        wait_until(lambda: "R" in cluster.run("squeue", "-h", "-o", "%t"), "a running job")

    assert not cluster.directory.exists()
    assert processes_with(f"SLURM_CONF={cluster.slurm_conf}") == []


def test_what_a_killed_test_run_left_is_removed_by_the_next() -> None:
    killed = (
        "import os; from tests.integration.slurm.cluster import temporary_cluster\n"
        "with temporary_cluster(nodes=1, accounting=False) as cluster:\n"
        "    print(cluster.directory, flush=True)\n"
        "    os._exit(0)\n"
    )
    said = subprocess.check_output([sys.executable, "-c", killed], cwd=ROOT, text=True)
    left = Path(said.strip())
    assert left.exists()

    with temporary_cluster(nodes=1, accounting=False):
        pass
    assert not left.exists()
    assert processes_with(f"SLURM_CONF={left}/etc/slurm.conf") == []


def test_it_can_be_started_and_stopped_by_hand(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("hand")
    by_hand = [sys.executable, "-m", "tests.integration.slurm"]
    up = [*by_hand, "up", str(directory), "--no-accounting", "--nodes=1", "--names"]
    said = subprocess.check_output(up, cwd=ROOT, text=True)
    try:
        assert "Ready" in said
        assert f"node1 # {directory}" in Path("/etc/hosts").read_text()
    finally:
        subprocess.run([*by_hand, "down", str(directory)], cwd=ROOT, check=True)
    assert str(directory) not in Path("/etc/hosts").read_text()
    assert processes_with(f"SLURM_CONF={directory}/etc/slurm.conf") == []
