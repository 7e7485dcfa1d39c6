"""50 jobs that say a line on a Slurm cluster over ssh, submitted and followed to their ends."""

from __future__ import annotations

from typing import Any, Literal

from tests.integration.slurm.cluster import temporary_cluster
from tests.integration.slurm.sshd import Sshd

from benchmarks._bench import Bench
from benchmarks._candidates import Candidate
from benchmarks._report import Fact, Limit, Row

JOBS = 50

Logs = Literal["logs", "no-logs"]


def run(bench: Bench) -> list[Row | Fact]:
    count = JOBS // 5 if bench.quick else JOBS
    ours, theirs = (_many(bench, each, count, "logs") for each in (bench.ours, bench.released))
    waiting = [_many(bench, each, count, "no-logs") for each in (bench.ours, bench.released)]
    name = bench.released.name
    return [
        Row("time", ours["seconds"], "s", name, theirs["seconds"], Limit("<=", 1 / 5)),
        Row("remote commands", ours["commands"], "", name, theirs["commands"], Limit("<=", 1 / 10)),
        Row("connections", ours["connections"], "", name, theirs["connections"]),
        Fact("one connection", str(ours["connections"]), ours["connections"] == 1),
        _complete("jobs that succeeded", "succeeded", ours, theirs, count, name),
        _complete("lines that were shown", "lines", ours, theirs, count, name),
        Row(
            "time without logs",
            waiting[0]["seconds"],
            "s",
            name,
            waiting[1]["seconds"],
            Limit("<=", 1 / 5),
        ),
        Row("remote commands", waiting[0]["commands"], "", name, waiting[1]["commands"]),
    ]


def _complete(
    what: str, key: str, ours: dict[str, Any], theirs: dict[str, Any], count: int, name: str
) -> Fact:
    return Fact(what, f"{ours[key]} of {count}; {name}: {theirs[key]}", ours[key] == count)


def _many(bench: Bench, candidate: Candidate, count: int, logs: Logs) -> dict[str, Any]:
    """Return what a candidate reports, and what the ssh server has counted meanwhile."""
    with temporary_cluster() as cluster:
        sshd = cluster.sshd
        _allow_many_sessions(sshd)
        home = bench.home(candidate)
        # Both find the server's key and an ssh that knows it; neither has a config of its own.
        ssh = home / ".ssh"
        ssh.mkdir(parents=True, exist_ok=True)
        (ssh / "known_hosts").write_text(sshd.known_hosts.read_text())
        where = (sshd.host, sshd.user, sshd.port, sshd.identity, bench.directory())
        report = bench.ask(candidate, "slurm", *where, count, logs, programs=sshd.bin)
        return {**report, "connections": sshd.connections(), "commands": sshd.commands()}


def _allow_many_sessions(sshd: Sshd) -> None:
    """Let a connection have more than the usual ten sessions, which 0.11.1 does not survive."""
    with (sshd.etc / "sshd_config").open("a") as file:
        file.write("MaxSessions 500\n")
    sshd.kill()
    sshd.restart()
