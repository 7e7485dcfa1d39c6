"""Wait until all jobs of some experiments have ended."""

from __future__ import annotations

import argparse
import time
from typing import Any

from nemo_run._shell import as_word
from nemo_run.cli._experiments._arguments import Parser, as_json, seconds
from nemo_run.cli._experiments._finding import find
from nemo_run.cli._screen import Screen
from nemo_run.exceptions import NemoRunError
from nemo_run.run._counting import plural, summary

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 10.0


def arguments(parser: Parser) -> None:
    parser.experiment(nargs="+")
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
        NemoRunError: the time is over, or nobody is left to start the rest.
    """
    from nemo_run.cli._experiments._opening import open_experiment

    experiment = open_experiment(path)
    pause_s = _FIRST_PAUSE_S
    while True:
        # Not by name: a job that nobody knows anything of is UNKNOWN, and will not end.
        states = zip(experiment.jobs, experiment._watch.states(), strict=True)
        waiting = [(job.id, state) for job, state in states if not state.ended]
        if not waiting:
            return experiment.status(return_dict=True) or {}
        names = ", ".join(job for job, _ in waiting)
        if deadline is not None and time.monotonic() > deadline:
            raise NemoRunError(
                f"{plural(len(waiting), 'job')} of {experiment._id} had not ended in time: "
                f"{names}. They go on."
            )
        if not any(state.launched for _, state in waiting) and experiment._watch.is_abandoned():
            raise NemoRunError(
                f"{plural(len(waiting), 'job')} of {experiment._id} were never started, and nobody "
                f"is left to start them: {names}. Go on with "
                f"`nemorun experiment resume {as_word(experiment._id)}`."
            )
        left_s = _LAST_PAUSE_S if deadline is None else max(0.05, deadline - time.monotonic())
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.3, _LAST_PAUSE_S if _is_remote(experiment) else 0.5)


def _is_remote(experiment: Any) -> bool:
    return not all(job.executor.CAPABILITIES.local_paths for job in experiment.jobs)
