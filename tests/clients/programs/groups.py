"""Run a main command with a sandbox beside it, on the same node or on nodes of their own."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusters import executor, out, record, states  # type: ignore[import-not-found]

import nemo_run as run
from nemo_run.core.execution.slurm import SlurmJobDetails

SERVER = Path(__file__).parent / "jobs" / "sandbox.py"
HOST_OF_FIRST = "$(scontrol show hostnames $SLURM_JOB_NODELIST_HET_GROUP_0 | head -n1)"


@dataclass(kw_only=True)
class Details(SlurmJobDetails):
    """Files named after the part of the job that writes them."""

    prefix: str = "main"

    @property
    def stdout(self) -> Path:
        return Path(str(self.folder)) / f"{self.prefix}_sbatch.log"

    @property
    def stderr(self) -> Path:
        return Path(str(self.folder)) / f"{self.prefix}_sbatch.err"

    @property
    def srun_stdout(self) -> Path:
        return Path(str(self.folder)) / f"{self.prefix}_srun.log"

    @property
    def srun_stderr(self) -> Path:
        return Path(str(self.folder)) / f"{self.prefix}_srun.err"

    @property
    def ls_term(self) -> str:
        return str(Path(str(self.folder)) / "*_srun.log")


def part(name: str, **settings: object) -> Any:
    return executor(
        env_vars={"PART": name},
        job_details=Details(job_name=f"tool-{name}", folder=out("logs"), prefix=name),
        srun_args=["--overlap"],
        **settings,
    )


def same_node() -> None:
    """The main command asks the sandbox, and the job ends with the main command."""
    port = out("port")
    sandbox = run.Script(str(SERVER), args=[port, out("sandbox")], entrypoint="python3")
    ask = f"""
until [ -s '{port}' ]; do sleep 0.1; done
python3 -c 'import sys, urllib.request as u; print(u.urlopen("http://127.0.0.1:" + \
open(sys.argv[1]).read()).read().decode())' '{port}' > '{out("answer.txt")}'
echo "$PART" > '{out("part.txt")}'
echo main has the answer
"""
    with run.Experiment("same_node") as experiment:
        experiment.add(
            [run.Script(inline=ask), sandbox],
            executor=[part("main"), part("sandbox")],
            name="nemo-run",
        )
        experiment.run()
    note(experiment)


def heterogeneous() -> None:
    """A server on one node, clients on two others which know where the server is."""
    settings = {"heterogeneous": True}
    one = part("server", nodes=1, ntasks_per_node=1, **settings)
    two = part("clients", nodes=2, ntasks_per_node=1, **settings)
    for chosen in (one, two):
        chosen.env_vars["SERVER_HOST"] = HOST_OF_FIRST
    clients = run.Script(
        inline=f"""
printf '%s ' "$PART" "$SERVER_HOST" "$SLURMD_NODENAME" > '{out("client-")}'$SLURM_PROCID
echo "client $SLURM_PROCID"
until [ -e '{out("server")}' ]; do sleep 0.1; done
"""
    )
    meet = {"MEET": f"{out('client-0')}:{out('client-1')}"}
    with run.Experiment("heterogeneous") as experiment:
        experiment.add(
            [record("server", env=meet), clients],
            executor=[one, two],
            name="nemo-run",
        )
        experiment.run()
    note(experiment)


def shared_groups() -> None:
    """Three commands on two groups of nodes: the first two share one."""
    settings = {"heterogeneous": True, "het_group_indices": [0, 0, 1]}
    executors = [part(name, **settings) for name in ("a", "b", "c")]
    meet = {"MEET": ":".join(out(f"in-{name}") for name in "abc")}
    with run.Experiment("shared_groups") as experiment:
        experiment.add(
            [record(f"in-{name}", env=meet) for name in "abc"],
            executor=executors,
            name="nemo-run",
        )
        experiment.run()
    note(experiment)


def note(experiment: run.Experiment) -> None:
    Path(out("states")).write_text(json.dumps(states(experiment)))


if __name__ == "__main__":
    Path(out("logs")).mkdir()
    globals()[sys.argv[1]]()
