"""Run an experiment again, as it was or with changes, whole or only what did not succeed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nemo_run.cli.experiments.arguments import LATEST, Parser, as_json
from nemo_run.cli.experiments.finding import find, find_jobs, open_experiment
from nemo_run.cli.experiments.wait import tell_outcome
from nemo_run.cli.terminal.screen import Screen
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.run.experiment import Experiment


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.add_argument(
        "words",
        metavar="KEY=VALUE",
        nargs="*",
        default=[],
        help="changes to its tasks; run.executor=NAME and run.executor.KEY too",
    )
    parser.add_argument("--job", action="append", metavar="JOB", help="only this; may be repeated")
    parser.add_argument("--failed", action="store_true", help="only what did not succeed")
    parser.add_argument(
        "--code", choices=("today", "recorded"), default="today", help="of which time; today's"
    )
    parser.add_argument("--detach", action="store_true", help="return once it is launched")
    parser.add_argument("--dryrun", action="store_true", help="only show what would be submitted")
    parser.add_argument("--tail-logs", action="store_true", help="print the logs while waiting")
    parser.json()


def run(options: argparse.Namespace) -> int:
    from nemo_run.cli.commands.again import again

    if "=" in options.experiment:
        options.words, options.experiment = [options.experiment, *options.words], LATEST
    for word in options.words:
        if "=" not in word:
            raise ConfigError(f"{word!r} is not of the form key=value. Jobs are named by --job.")
    place = find(options.experiment)
    old = open_experiment(place.path)
    statuses = old.status(return_dict=True) or {}
    chosen = _chosen(options, list(statuses), statuses)
    if not chosen:
        raise ConfigError(f"All jobs of {place.id} succeeded; there is nothing to run again.")
    new = again(old, chosen, options.words, options.code)
    with new:
        if options.dryrun:
            _show(new, for_programs=options.json)
            return 0
        new.run(detach=options.detach, tail_logs=options.tail_logs)
    results = new.status(return_dict=True) or {}
    return tell_outcome(new._id, results, options)


def _show(experiment: Experiment, *, for_programs: bool) -> None:
    """Print what would be submitted; for programs only which jobs that would be."""
    from nemo_run.core.frontend.console.api import CONSOLE

    if not for_programs:
        experiment.console = CONSOLE
    experiment.dryrun()
    if for_programs:
        jobs = {job.id: "UNSUBMITTED" for job in experiment.jobs}
        Screen().print(as_json({"id": None, "jobs": jobs}))


def _chosen(
    options: argparse.Namespace, ids: Sequence[str], statuses: dict[str, dict[str, object]]
) -> list[str]:
    named = [ids[i] for i in find_jobs(options.job, ids)] if options.job else list(ids)
    if not options.failed:
        return named
    return [job for job in named if getattr(statuses[job]["status"], "name", "") != "SUCCEEDED"]
