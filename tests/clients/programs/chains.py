"""Chains of jobs, where what comes later runs whatever became of what came before."""

import json
import sys
from pathlib import Path

from clusters import executor, out, record, states, wait  # type: ignore[import-not-found]

import nemo_run as run


def failing(name: str) -> run.Script:
    return run.Script(inline=f"sleep 2; date +%s.%N > '{out(name)}'; exit 5")


def inside(detach: bool) -> None:
    """One experiment: the second job depends on the first, which fails; a third on the second."""
    where = executor(dependency_type="afterany")
    with run.Experiment("inside", executor=where) as experiment:
        one = experiment.add(failing("failed"), name="one")
        two = experiment.add(record("second"), name="two", dependencies=[one])
        experiment.add(record("third"), name="three", dependencies=[two])
        experiment.run(detach=detach)
    if not detach:
        Path(out("ended")).write_text(json.dumps([job.state.name for job in experiment.jobs]))
    note(experiment._id)


def across() -> None:
    """A second experiment depends on jobs of the first by their handles."""
    with run.Experiment("before", executor=executor()) as before:
        before.add(failing("failed"), name="one")
        before.add(run.Script(inline=f"sleep 3; date +%s.%N > '{out('good')}'"), name="two")
        before.run(detach=True)
    later = run.Experiment.from_title("before")
    handles = [job.handle for job in later.jobs]
    where = executor(dependencies=handles, dependency_type="afterany")
    with run.Experiment("after", executor=where) as after:
        after.add(record("second"), name="one")
        after.run(detach=True)
    note(after._id)


def only_after_success() -> None:
    """Without a word about it, a job waits for the success of what it depends on."""
    with run.Experiment("strict", executor=executor()) as experiment:
        one = experiment.add(failing("failed"), name="one")
        experiment.add(record("second"), name="two", dependencies=[one])
        experiment.run(detach=True)
    note(experiment._id)


def note(experiment_id: str) -> None:
    found = {"id": experiment_id, "states": wait(experiment_id)}
    found["handles"] = {job.id: job.handle for job in run.Experiment.from_id(experiment_id).jobs}
    assert found["states"] == states(run.Experiment.from_id(experiment_id))
    Path(out("chain")).write_text(json.dumps(found))


if __name__ == "__main__":
    choices = {
        "inside": lambda: inside(detach=False),
        "detached": lambda: inside(detach=True),
        "across": across,
        "strict": only_after_success,
    }
    choices[sys.argv[1]]()
