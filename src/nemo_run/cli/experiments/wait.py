"""Wait until all jobs of some experiments have ended."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from typing import Any

from nemo_run._durations import seconds
from nemo_run._experiments.display.counts import plural, summary
from nemo_run._shell import as_word
from nemo_run._transport.waiting import Waiting
from nemo_run.cli.experiments.arguments import Parser, as_json
from nemo_run.cli.experiments.finding import find, open_experiment
from nemo_run.cli.terminal.screen import Screen
from nemo_run.exceptions import NemoRunError

_FIRST_PAUSE_S, _LAST_PAUSE_S, _LAST_LOCAL_PAUSE_S = 0.1, 10.0, 0.5


def arguments(parser: Parser) -> None:
    parser.experiment(nargs="*")
    parser.add_argument("--timeout", metavar="TIME", help="give up after it, such as 2h")
    parser.json()


def run(options: argparse.Namespace) -> int:
    deadline = None if options.timeout is None else time.monotonic() + seconds(options.timeout)
    places = [find(word) for word in options.experiment]
    outcomes = {place.id: wait_for(place.path, deadline) for place in places}
    screen = Screen()
    if options.json:
        plain = {
            id: {job: {**s, "status": s["status"].name} for job, s in statuses.items()}
            for id, statuses in outcomes.items()
        }
        screen.print(as_json(plain))
    else:
        for id, statuses in outcomes.items():
            screen.print(f"{id}: {summary(statuses)}")
    succeeded = all(s["status"].name == "SUCCEEDED" for o in outcomes.values() for s in o.values())
    return 0 if succeeded else 1


def wait_for(path: str, deadline: float | None) -> dict[str, dict[str, Any]]:
    """Return the statuses of an experiment's jobs once all have ended.

    Raises:
        NemoRunError: the time is over, or no process is left to start the rest.
    """

    experiment = open_experiment(path)
    pauses = Waiting(
        _FIRST_PAUSE_S,
        _LAST_PAUSE_S if _is_remote(experiment) else _LAST_LOCAL_PAUSE_S,
        timeout_s=math.inf if deadline is None else deadline - time.monotonic(),
        growth=1.3,
    )
    while True:
        # Not by name: a lost job is UNKNOWN, and will not end.
        states = zip(experiment.jobs, experiment._watch.states(), strict=True)
        waiting = [(job.id, state) for job, state in states if not state.ended]
        if not waiting:
            return experiment.status(return_dict=True) or {}
        names = ", ".join(job for job, _ in waiting)
        if pauses.is_over:
            raise NemoRunError(
                f"{plural(len(waiting), 'job')} of {experiment._id} had not ended in time: "
                f"{names}. They go on."
            )
        if not any(state.launched for _, state in waiting) and experiment._watch.is_abandoned():
            raise NemoRunError(
                f"{plural(len(waiting), 'job')} of {experiment._id} were never started, and "
                f"their launcher is gone: {names}. Go on with "
                f"`nemorun experiment resume {as_word(experiment._id)}`."
            )
        pauses.pause()


def _is_remote(experiment: Any) -> bool:
    return not all(job.executor.CAPABILITIES.local_paths for job in experiment.jobs)


def tell_outcome(id: str, statuses: Mapping[str, Any], options: argparse.Namespace) -> int:
    """Print how the jobs of an experiment did, as ``--json`` says; return the exit code for it."""
    if options.json:
        jobs = {job: status["status"].name for job, status in statuses.items()}
        Screen().print(as_json({"id": id, "jobs": jobs}))
    else:
        Screen().print(f"{id}: {summary(statuses)}")
    succeeded = all(status["status"].name == "SUCCEEDED" for status in statuses.values())
    return 0 if options.detach or succeeded else 1
