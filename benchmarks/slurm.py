"""50 jobs that say a line on a Slurm cluster over ssh, submitted and followed to their ends."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, Literal

from tests.integration.slurm.cluster import temporary_cluster
from tests.integration.slurm.sshd import Sshd

from benchmarks._bench import Bench, Turn, in_turns
from benchmarks._candidates import Candidate
from benchmarks._report import Fact, Limit, Row

JOBS = 50
ROUNDS = 5

Logs = Literal["logs", "no-logs"]


def run(bench: Bench) -> list[Row | Fact]:
    count = JOBS // 5 if bench.quick else JOBS
    ours, theirs = (_many(bench, each, count, "logs") for each in (bench.ours, bench.released))
    rounds = bench.times(ROUNDS)
    ours_waits, theirs_waits, hand_waits = (_moments(rounds) for _ in range(3))
    # Slurm's own work for the jobs is part of the time, so it is measured, too.
    waiting = in_turns(
        rounds,
        {
            "ours": Turn(lambda: _many(bench, bench.ours, count, "no-logs", next(ours_waits))),
            "theirs": Turn(
                lambda: _many(bench, bench.released, count, "no-logs", next(theirs_waits))
            ),
            "by hand": Turn(lambda: _by_hand(count, next(hand_waits))),
        },
    )
    took = {
        who: {key: statistics.median(report[key] for report in reports) for key in reports[0]}
        for who, reports in waiting.items()
    }
    name = bench.released.name
    ours_s, ours_commands = took["ours"]["seconds"], took["ours"]["commands"]
    return [
        Row("time", ours["seconds"], "s", name, theirs["seconds"], Limit("<=", 1 / 5)),
        Row("remote commands", ours["commands"], "", name, theirs["commands"], Limit("<=", 1 / 10)),
        Row("connections", ours["connections"], "", name, theirs["connections"]),
        Fact("one connection", str(ours["connections"]), ours["connections"] == 1),
        _complete("jobs that succeeded", "succeeded", ours, theirs, count, name),
        _complete("lines that were shown", "lines", ours, theirs, count, name),
        Row("time without logs", ours_s, "s", name, took["theirs"]["seconds"], Limit("<=", 1 / 5)),
        Row("", ours_s, "s", "sbatch and squeue by hand", took["by hand"]["seconds"]),
        Row("remote commands", ours_commands, "", name, took["theirs"]["commands"]),
    ]


def _complete(
    what: str, key: str, ours: dict[str, Any], theirs: dict[str, Any], count: int, name: str
) -> Fact:
    return Fact(what, f"{ours[key]} of {count}; {name}: {theirs[key]}", ours[key] == count)


def _moments(rounds: int) -> Iterator[float]:
    """Yield how long to wait before each round, after the start of a cluster.

    Slurm looks at its queue about once a second, beginning with its start. Who comes just too late
    for a look waits a second more than who comes just in time, so each round comes at another
    moment of the second.
    """
    return (number / rounds for number in range(rounds))


def _many(
    bench: Bench, candidate: Candidate, count: int, logs: Logs, wait_s: float = 0.0
) -> dict[str, Any]:
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
        time.sleep(wait_s)
        report = bench.ask(candidate, "slurm", *where, count, logs, programs=sshd.bin)
        return {**report, "connections": sshd.connections(), "commands": sshd.commands()}


def _by_hand(count: int, wait_s: float) -> dict[str, float]:
    """Return what the jobs take without a launcher, for someone on the login node."""
    with temporary_cluster() as cluster:
        time.sleep(wait_s)
        begin = time.perf_counter()
        for _ in range(count):
            cluster.run("sbatch", "--mem=10M", "--output=/dev/null", "--wrap", "srun echo a line")
        while cluster.run("squeue", "-h"):
            time.sleep(0.1)
        return {"seconds": time.perf_counter() - begin}


def _allow_many_sessions(sshd: Sshd) -> None:
    """Let a connection have more than the usual ten sessions, which 0.11.1 does not survive."""
    with (sshd.etc / "sshd_config").open("a") as file:
        file.write("MaxSessions 500\n")
    sshd.kill()
    sshd.restart()
