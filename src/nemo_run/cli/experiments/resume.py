"""Go on with an experiment whose launcher was killed: start what is missing, wait for all."""

from __future__ import annotations

import argparse
from pathlib import Path

from nemo_run.cli.experiments import wait as experiments_wait
from nemo_run.cli.experiments.arguments import Parser
from nemo_run.cli.experiments.finding import find, open_experiment


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.add_argument("--detach", action="store_true", help="leave that to a process of its own")
    parser.json()


def run(options: argparse.Namespace) -> int:
    from nemo_run._experiments.conductor import detached
    from nemo_run._experiments.store.directory import ExperimentDirectory

    place = find(options.experiment)
    experiment = open_experiment(place.path)
    if options.detach:
        detached.spawn(ExperimentDirectory(Path(place.path)))
        statuses = experiment.status(return_dict=True) or {}
    else:
        experiment.resume()
        statuses = experiments_wait.wait_for(place.path, None)
    return experiments_wait.tell_outcome(place.id, statuses, options)
