"""A Slurm cluster to try things on: ``python -m tests.integration.slurm up DIR``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.sshd import ALIAS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.slurm", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster whose files go to DIR")
    up.add_argument("dir", type=Path)
    up.add_argument("--nodes", type=int, default=4)
    up.add_argument("--no-accounting", action="store_true", help="without slurmdbd: no sacct")
    up.add_argument("--names", action="store_true", help="put the nodes into /etc/hosts")
    up.add_argument("--task-prolog", default="", help="a program to run before each task")
    down = commands.add_parser("down", help="stop it and undo what it changed; the files stay")
    down.add_argument("dir", type=Path)
    chosen = parser.parse_args()
    directory = chosen.dir.absolute()
    if chosen.command == "down":
        SlurmCluster.at(directory).stop()
        return
    begin = time.monotonic()
    cluster = SlurmCluster.create(
        directory,
        nodes=chosen.nodes,
        accounting=not chosen.no_accounting,
        names_resolve=chosen.names,
        task_prolog=chosen.task_prolog,
    )
    try:
        cluster.start()
    except BaseException:
        cluster.stop()
        raise
    print(f"Ready after {time.monotonic() - begin:.1f} s.")
    print(f"On this machine:  export SLURM_CONF={cluster.slurm_conf}")
    print(f"Over ssh:         ssh -F {cluster.sshd.ssh_config} {ALIAS} sinfo")
    print(f"From nemo_run:    export PATH={cluster.sshd.bin}:$PATH")
    print(
        f'                  run.SSHTunnel(host="{ALIAS}", user="{cluster.sshd.user}", job_dir=...)'
    )


if __name__ == "__main__":
    main()
