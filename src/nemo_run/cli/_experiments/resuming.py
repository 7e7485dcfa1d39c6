"""Go on with an experiment whose launcher was killed: start what is missing, wait for all."""

from __future__ import annotations

import argparse
from pathlib import Path

from nemo_run.cli._experiments import waiting
from nemo_run.cli._experiments._arguments import Parser, as_json
from nemo_run.cli._experiments._finding import find
from nemo_run.cli._screen import Screen
from nemo_run.run._counting import summary


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.add_argument("--detach", action="store_true", help="leave that to a process of its own")
    parser.json()


def run(options: argparse.Namespace) -> int:
    from nemo_run.cli._experiments._opening import open_experiment
    from nemo_run.run import _detached
    from nemo_run.run._directory import ExperimentDirectory

    place = find(options.experiment)
    experiment = open_experiment(place.path)
    screen = Screen()
    if options.detach:
        _detached.spawn(ExperimentDirectory(Path(place.path)))
        statuses = experiment.status(return_dict=True) or {}
    else:
        experiment.resume()
        statuses = waiting.wait_for(place.path, None)
    if options.json:
        jobs = {job: state["status"].name for job, state in statuses.items()}
        screen.print(as_json({"id": place.id, "jobs": jobs}))
    else:
        screen.print(f"{place.id}: {summary(statuses)}")
    succeeded = all(state["status"].name == "SUCCEEDED" for state in statuses.values())
    return 0 if options.detach or succeeded else 1
