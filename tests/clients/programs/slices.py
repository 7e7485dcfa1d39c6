"""Train for longer than a job may take: the same script again and again, from its checkpoint."""

import json
import sys
from pathlib import Path
from typing import Any

from clusters import executor, out, states, wait  # type: ignore[import-not-found]

import nemo_run as run

TRAIN = str(Path(__file__).parent / "jobs" / "train.py")
MOST = 6


def training(total: int, steps_a_slice: int) -> run.Script:
    args = [out("checkpoint"), str(total), str(steps_a_slice)]
    return run.Script(TRAIN, args=args, entrypoint="python3")


def step() -> int:
    path = Path(out("checkpoint"))
    return int(json.loads(path.read_text())["step"]) if path.exists() else 0


def chain(total: int, steps_a_slice: int, number: int, time: str = "00:10:00") -> dict[str, Any]:
    """Submit all slices at once; each waits for the end of the one before, whatever it was."""
    where = executor(dependency_type="afterany", time=time)
    with run.Experiment("chain", executor=where) as experiment:
        before: list[str] = []
        for _ in range(number):
            name = experiment.add(
                training(total, steps_a_slice), name="train", dependencies=before or None
            )
            before = [name]
        experiment.run(detach=True)
    return wait(experiment._id)  # type: ignore[no-any-return]


def handles(total: int, steps_a_slice: int) -> dict[str, Any]:
    """An experiment for each slice, which depends on the job of the one before."""
    before: list[str] = []
    launched = []
    for number in range(4):
        where = executor(dependencies=before, dependency_type="afterany")
        with run.Experiment(f"slice-{number}", executor=where) as experiment:
            experiment.add(training(total, steps_a_slice), name="train")
            experiment.run(detach=True)
        (job,) = experiment.jobs
        before = [job.handle]
        launched.append(experiment._id)
    return {name.rpartition("_")[0]: wait(name)["train"] for name in launched}


def loop(total: int, steps_a_slice: int) -> dict[str, Any]:
    """Submit a slice, wait for its end, and look at the checkpoint for whether to go on."""
    found = {}
    for number in range(MOST):
        with run.Experiment("loop", executor=executor()) as experiment:
            experiment.add(training(total, steps_a_slice), name="train")
            experiment.run()
        found[str(number)] = states(experiment)["train"]
        if step() >= total:
            break
    return found


if __name__ == "__main__":
    (how,) = sys.argv[1:]
    choices: dict[str, Any] = {
        "chain": lambda: chain(10, 4, number=4),
        "handles": lambda: handles(10, 4),
        "loop": lambda: loop(10, 4),
        "limit": lambda: chain(100, 0, number=3, time="00:01:00"),
    }
    Path(out("ends")).write_text(json.dumps(choices[how]()))
