"""50 jobs that do nothing on a Slurm cluster over ssh, submitted and followed to their ends."""

from __future__ import annotations

from typing import Any

from tests.integration.slurm.cluster import SlurmCluster, temporary_cluster
from tests.integration.slurm.sshd import Sshd

from benchmarks._bench import Bench
from benchmarks._candidates import Candidate
from benchmarks._report import Fact, Limit, Row

JOBS = 50


def run(bench: Bench) -> list[Row | Fact]:
    count = JOBS // 5 if bench.quick else JOBS
    with temporary_cluster() as cluster:
        ours = _many(bench, bench.ours, cluster, count)
    with temporary_cluster() as cluster:
        theirs = _many(bench, bench.released, cluster, count)
    name = bench.released.name
    return [
        Row("time", ours["seconds"], "s", name, theirs["seconds"], Limit("<=", 1 / 5)),
        Row("remote commands", ours["commands"], "", name, theirs["commands"], Limit("<=", 1 / 10)),
        Row("connections", ours["connections"], "", name, theirs["connections"]),
        Fact("one connection", str(ours["connections"]), ours["connections"] == 1),
        Fact(
            "jobs that succeeded",
            f"{ours['succeeded']} of {count}; {name}: {theirs['succeeded']}",
            ours["succeeded"] == count,
        ),
    ]


def _many(bench: Bench, candidate: Candidate, cluster: SlurmCluster, count: int) -> dict[str, Any]:
    """Return what a candidate reports, and what the ssh server has counted meanwhile."""
    sshd = cluster.sshd
    _allow_many_sessions(sshd)
    home = bench.home(candidate)
    # Both find the server's key and an ssh that knows it; neither has a config of its own.
    ssh = home / ".ssh"
    ssh.mkdir(parents=True, exist_ok=True)
    (ssh / "known_hosts").write_text(sshd.known_hosts.read_text())
    job_dir = bench.directory()
    where = (sshd.host, sshd.user, sshd.port, sshd.identity, job_dir)
    report = bench.ask(candidate, "slurm", *where, count, programs=sshd.bin)
    return {**report, "connections": sshd.connections(), "commands": sshd.commands()}


def _allow_many_sessions(sshd: Sshd) -> None:
    """Let a connection have more than the usual ten sessions, which 0.11.1 does not survive."""
    with (sshd.etc / "sshd_config").open("a") as file:
        file.write("MaxSessions 500\n")
    sshd.kill()
    sshd.restart()
