"""Name a job and its files after the team's own rules."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from clusters import executor, out, tunnel  # type: ignore[import-not-found]

import nemo_run as run
from nemo_run.core.execution.slurm import SlurmJobDetails


@dataclass(kw_only=True)
class TeamDetails(SlurmJobDetails):
    prefix: str = "main"

    @property
    def stdout(self) -> Path:
        return Path(str(self.folder)) / f"{self.prefix}_%j_sbatch.log"

    @property
    def stderr(self) -> Path:
        return Path(str(self.folder)) / f"{self.prefix}_%j_sbatch.err"

    @property
    def srun_stdout(self) -> Path:
        return Path(str(self.folder)) / f"{self.prefix}_%j_srun.log"

    @property
    def srun_stderr(self) -> Path:
        return Path(str(self.folder)) / f"{self.prefix}_%j_srun.err"

    @property
    def ls_term(self) -> str:
        return str(Path(str(self.folder)) / f"{self.prefix}_*_srun.log")


CHOICES = {
    "own": lambda: TeamDetails(job_name="team-train", folder=out("logs"), prefix="train"),
    "given": lambda: SlurmJobDetails(job_name="team-train", folder=out("logs")),
    "default": SlurmJobDetails,
}


def main(choice: str) -> None:
    way = tunnel()
    way.run(f"mkdir -p {out('logs')}", hide=True)
    where = executor(job_details=CHOICES[choice](), tunnel=way)
    with run.Experiment("details", executor=where) as experiment:
        experiment.add(run.Script(inline="echo the words of $SLURM_JOB_ID"), name="train")
        experiment.run()
    (job,) = experiment.jobs
    Path(out("job")).write_text(json.dumps([experiment._id, job.handle, job.state.name]))


def logs() -> None:
    """Another process looks for the words of the job."""
    run.Experiment.from_title("details").logs("train")


if __name__ == "__main__":
    logs() if sys.argv[1] == "logs" else main(sys.argv[1])
