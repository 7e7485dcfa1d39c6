"""Names and places of a Slurm job's logs, as programs ask its executor for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nemo_run as run
from nemo_run.core.execution.slurm import SlurmJobDetails


def executor(**settings: Any) -> run.SlurmExecutor:
    return run.SlurmExecutor(
        account="team_ml",
        tunnel=run.LocalTunnel(job_dir="/lustre/jobs"),
        packager=run.Packager(),
        **settings,
    )


def planned(where: run.SlurmExecutor) -> run.SlurmExecutor:
    with run.Experiment("fit", executor=where) as exp:
        exp.add(run.Script(inline="true"), name="train")
        exp.dryrun(log=False)
        own = exp.jobs[0].executor
    assert isinstance(own, run.SlurmExecutor)
    return own


def test_a_planned_job_says_where_its_logs_will_be() -> None:
    own = planned(executor())
    folder = f"/lustre/jobs/fit/{own.experiment_id}/train"
    assert own.job_details.job_name == "team_ml-ml.train"
    assert own.job_details.stdout == Path(f"{folder}/sbatch_team_ml-ml.train_%j.out")
    assert own.job_details.ls_term == f"{folder}/log*"


def test_planning_again_for_another_experiment_tells_of_that_one() -> None:
    first = planned(executor())
    second = planned(first)
    assert first.experiment_id != second.experiment_id
    assert second.job_details.folder == f"/lustre/jobs/fit/{second.experiment_id}/train"


def test_what_the_user_gave_stays_and_what_was_filled_in_is_not_stored() -> None:
    own = planned(executor(job_details=SlurmJobDetails(folder="/logs")))
    assert (own.job_details.job_name, own.job_details.folder) == ("team_ml-ml.train", "/logs")
    stored = own.to_config().job_details
    assert (stored.job_name, stored.folder) == (None, "/logs")


def test_what_is_set_after_planning_counts() -> None:
    own = planned(executor())
    own.job_details.folder = "/elsewhere"
    assert own.clone().job_details.folder == "/elsewhere"
    assert planned(own).job_details.ls_term == "/elsewhere/log*"


def test_planning_makes_no_other_executor_of_it() -> None:
    where = SlurmJobDetails(job_name="mine")
    own = planned(executor(job_details=where))
    assert own.job_details.folder
    assert own.job_details == where
    assert own.job_details != SlurmJobDetails(job_name="another")
