"""One task run many times with different arguments, as one experiment.

.. code-block:: python

    with run.Experiment("rates", executor=run.LocalExecutor(jobs_at_a_time=2)) as experiment:
        add_sweep(experiment, task, grid({"rate": [0.1, 0.01], "net.width": [8, 16]}))
        experiment.run()
    print(summary(experiment))
    if failed(experiment):
        with retry(experiment) as again:
            again.run()

What a killed launcher has not started is started by `Experiment.resume`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nemo_run._experiments.display import counts as display_counts
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.config import Partial
    from nemo_run.run.experiment import Experiment

Point = Mapping[str, Any]
"""What is different in one job of a sweep: values by path, such as ``net.width``."""

MAX_JOBS = 10_000
_MAX_LABEL = 60


def grid(axes: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Return every combination of the values of all axes; those of the last change fastest.

    Raises:
        ConfigError: an axis has no values, or there are more combinations than jobs make sense.
    """
    count = 1
    for name, values in axes.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Sequence) or not values:
            raise ConfigError(f"{name!r} is swept over a list of values, not over {values!r}.")
        count *= len(values)
    if count > MAX_JOBS:
        raise ConfigError(f"This sweep would be {count:,} jobs; at most {MAX_JOBS:,} are possible.")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def labels(points: Sequence[Point], name: str) -> list[str]:
    """Return a name for the job of each point: what is different in it, if that is short."""
    made = [
        ",".join(f"{key}={value}" for key, value in point.items()).replace("/", "_")
        for point in points
    ]
    plain = all(isinstance(v, (str, int, float)) for point in points for v in point.values())
    short = all(0 < len(label) <= _MAX_LABEL and label.isprintable() for label in made)
    if plain and short and len(set(made)) == len(made):
        return made
    width = len(str(len(points) - 1))
    return [f"{name}-{number:0{width}}" for number in range(len(points))]


def add_sweep(
    experiment: Experiment,
    task: Partial[Any],
    points: Sequence[Point],
    name: str = "sweep",
    **options: Any,
) -> list[str]:
    """Add a job for each point and return their ids.

    Args:
        task: what to run; copied for each job, with the values of its point set.
        points: see `grid`; any list of mappings will do.
        name: what jobs are called, with a number, where their values make no name.
        options: for `Experiment.add`, such as ``executor`` and ``plugins``.

    Raises:
        ConfigError: there are no points, or a path leads nowhere in the task.
    """
    from nemo_run.config import set_value

    if not points:
        raise ConfigError("A sweep needs at least one point.")
    tasks = []
    for point in points:
        changed = copy.deepcopy(task)
        for path, value in point.items():
            set_value(changed, path, value)
        tasks.append(changed)
    return [
        experiment.add(changed, name=label, **options)
        for changed, label in zip(tasks, labels(points, name), strict=True)
    ]


def summary(experiment: Experiment) -> str:
    """Return how the jobs of an experiment are doing: ``4 jobs: 3 SUCCEEDED, 1 FAILED``."""
    return display_counts.summary(experiment.status(return_dict=True) or {})


def failed(experiment: Experiment) -> list[str]:
    """Return the ids of the jobs that ended without success."""
    statuses = experiment.status(return_dict=True) or {}
    return [
        job for job, status in statuses.items() if status["status"].name in ("FAILED", "CANCELLED")
    ]


def retry(experiment: Experiment) -> Experiment:
    """Make an experiment ready to run again, under a new id, with what did not succeed.

    Run it as after `Experiment.reset`; the old run stays as it is.

    Raises:
        ConfigError: there is nothing to run again.
    """
    jobs = failed(experiment)
    if not jobs:
        raise ConfigError("No job failed or was cancelled; there is nothing to run again.")
    keep_only(experiment, jobs)
    return experiment.reset()


def keep_only(experiment: Experiment, jobs: Collection[str]) -> None:
    """Drop the other jobs; what one depended on and is not run again counts as done."""
    kept = [job for job in experiment.jobs if job.id in jobs]
    for job in kept:
        job.dependencies = [name for name in job.dependencies if name in jobs]
    experiment._jobs = kept


def cancel(experiment: Experiment) -> None:
    """End all jobs that have not ended; returns when they have.

    Raises:
        NemoRunError: one could not be ended.
    """
    # The last first: whatever waits for a job that is cancelled is not to be started meanwhile.
    for job in reversed(experiment.jobs):
        experiment.cancel(job.id, check=True)
