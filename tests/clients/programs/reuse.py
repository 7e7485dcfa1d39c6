"""Package code once, and give the packaged copy to the jobs of later experiments."""

import json
import sys
from pathlib import Path
from typing import Any

from clusters import executor, out, states, tunnel  # type: ignore[import-not-found]

import nemo_run as run
from nemo_run.core.execution.slurm import get_packaging_job_key

NAME = "nemo-run"


def packaged(experiment: run.Experiment) -> str:
    """Return where the cluster has the code of an experiment."""
    way = experiment.tunnels[tunnel().key]
    key = get_packaging_job_key(experiment._id, NAME)
    found = way.packaging_jobs[key].dst_path
    assert found is not None
    return str(found)


def show(name: str) -> run.Script:
    """Return a task that runs the packaged program."""
    return run.Script("tool/say.sh", args=[out(name)])


def git_executor() -> Any:
    return executor(packager=run.GitArchivePackager(check_uncommitted_changes=True))


def first() -> None:
    """Package for a job that this process does not wait for, and reuse its code at once."""
    with run.Experiment("first", executor=git_executor()) as experiment:
        experiment.add(show("one"), name=NAME)
        experiment.run(detach=True)
    note("first", experiment)
    follow("second", experiment)


def shared() -> None:
    """All jobs have one name, as in tools which have no other word for them."""
    with run.Experiment("shared", executor=git_executor()) as experiment:
        one = experiment.add(show("one"), name=NAME)
        experiment.add(show("two"), name=NAME, dependencies=[one])
        experiment.add(show("three"), name=NAME)
        experiment.run()
    Path(out("shared.json")).write_text(json.dumps({"states": states(experiment)}))


def later() -> None:
    """Another process finds the experiment by its id, and by its title."""
    known = json.loads(Path(out("first.json")).read_text())
    follow("by-id", run.Experiment.from_id(known["id"]))
    follow("by-title", run.Experiment.from_title("first"))


def follow(name: str, earlier: run.Experiment) -> None:
    where = git_executor()
    where.packager.symlink_from_remote_dir = packaged(earlier)
    # The code is there, and nothing is checked or packaged any more.
    with run.Experiment(name, executor=where) as experiment:
        experiment.add(show(name), name=NAME)
        experiment.run()
    note(name, experiment)


def note(name: str, experiment: run.Experiment) -> None:
    found = {"id": experiment._id, "code": packaged(experiment), "states": states(experiment)}
    Path(out(f"{name}.json")).write_text(json.dumps(found))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
