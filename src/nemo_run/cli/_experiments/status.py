"""How the jobs of an experiment are doing."""

from __future__ import annotations

import argparse
from typing import Any

from nemo_run.cli._experiments._arguments import Parser, as_json
from nemo_run.cli._experiments._finding import find, find_jobs
from nemo_run.cli._screen import Screen
from nemo_run.run._counting import counted_parts, summary
from nemo_run.run._durations import elapsed

HEADER = ("", "JOB", "STATE", "EXECUTOR", "EXIT", "TOOK", "MESSAGE")


def arguments(parser: Parser) -> None:
    parser.experiment()
    parser.jobs("only these")
    parser.json()


def run(options: argparse.Namespace) -> int:
    from nemo_run.cli._experiments._opening import open_experiment

    place = find(options.experiment)
    statuses = open_experiment(place.path).status(return_dict=True) or {}
    ids = list(statuses)
    chosen = find_jobs(options.jobs, ids) if options.jobs else range(len(ids))
    shown = {ids[index]: statuses[ids[index]] for index in chosen}
    screen = Screen()
    if options.json:
        jobs = {job: {**status, "status": status["status"].name} for job, status in shown.items()}
        screen.print(as_json({"id": place.id, "jobs": jobs}))
        return 0
    screen.heading(place.id)
    screen.table(HEADER, [row(ids.index(job), job, status) for job, status in shown.items()])
    for job, status in shown.items():
        if "parts" in status:
            screen.print(f"{job}: {counted_parts(status['parts'])}")
    screen.print(summary(statuses))
    return 0


def row(index: int, job: str, status: dict[str, Any]) -> tuple[str, ...]:
    code = status["exit_code"]
    return (
        str(index),
        job,
        status["status"].name,
        status["executor"],
        "" if code is None else str(code),
        elapsed(status["duration_s"]),
        status["message"],
    )
