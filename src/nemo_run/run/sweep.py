"""One task run many times with different arguments, as one experiment.

.. code-block:: python

    with run.Experiment("rates", executor=run.LocalExecutor(jobs_at_a_time=2)) as experiment:
        add_sweep(experiment, task, grid({"rate": [0.1, 0.01], "net.width": [8, 16]}))
        experiment.run()
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
