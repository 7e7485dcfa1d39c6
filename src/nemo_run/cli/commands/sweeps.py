"""A command run once for each combination of values, as one experiment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._experiments.display.counts import plural, summary
from nemo_run._shell import as_word
from nemo_run.cli.commands.options import InvalidOptionError
from nemo_run.cli.commands.task_source import check_complete
from nemo_run.cli.experiments import status
from nemo_run.cli.terminal.confirmation import confirmed
from nemo_run.cli.terminal.screen import Screen
from nemo_run.cli.values.config_files import read_plain
from nemo_run.cli.values.edit import overrides_from
from nemo_run.cli.values.errors import ArgumentParsingError
from nemo_run.cli.values.grammar import Operation, Override, parse_override, split
from nemo_run.cli.values.overrides import apply_overrides
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.exceptions import ConfigError
from nemo_run.run.experiment import Experiment
from nemo_run.run.sweep import MAX_JOBS, Point, grid, labels

if TYPE_CHECKING:
    from nemo_run.cli.commands.run_context import RunContext
    from nemo_run.cli.registry.entrypoints import Entrypoint
    from nemo_run.config import Partial

_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?:\.\.({_NUMBER}))?")
_MAX_SHOWN = 20
_MAX_EXPONENT = 308


def run_sweep(
    context: RunContext, entrypoint: Entrypoint, words: Sequence[str], file: str | None
) -> None:
    """Run the task of an entrypoint once for each point that words and a file describe.

    Raises:
        CLIException: a word does not fit.
        JobFailedError: a job did not succeed.
    """
    if entrypoint.type != "task":
        raise InvalidOptionError("--sweep is for tasks; an experiment adds its jobs itself.")
    for name in ("direct", "repl", "to_yaml", "to_toml", "to_json"):
        if getattr(context, name):
            flag = name.replace("_", "-")
            raise InvalidOptionError(f"--sweep and --{flag} exclude each other.")
    axes, fixed = split_axes(context.parse_args(words))
    rows = _rows(file)
    points = [{**row, **point} for row in rows for point in grid(axes)]
    if len(points) > MAX_JOBS:
        raise ConfigError(f"This sweep would be {len(points):,} jobs; {MAX_JOBS:,} are possible.")
    files = {key: file or "" for row in rows for key in row if key not in axes}
    tasks = [_task(context, entrypoint, fixed, point, files) for point in points]
    names = labels(points, context.name)
    _describe(context.name, axes, names)
    executor = context.executor or LocalExecutor(jobs_at_a_time=os.cpu_count() or 1)
    if not context.dryrun and not confirmed(context.name, skip=context.skip_confirmation):
        return
    with Experiment(
        context.name,
        executor=executor,
        skip_status_at_exit=True,
        enable_goodbye_message=False,
        check=False,  # told below
    ) as experiment:
        for task, name in zip(tasks, names, strict=True):
            experiment.add(task, name=name, plugins=context.plugins or None)
        if context.dryrun:
            experiment.dryrun()
        else:
            experiment.run(detach=context.detach, tail_logs=context.tail_logs)
    if not context.dryrun:
        _report(experiment)
    if not (context.dryrun or context.detach):
        experiment.raise_if_failed()


def _report(experiment: Experiment) -> None:
    """Print what came of a sweep, and what can be done about it."""
    statuses = experiment.status(return_dict=True) or {}
    screen = Screen()
    status.print_table(screen, dict(enumerate(statuses.items())))
    screen.print(f"{experiment._id}: {summary(statuses)}")
    if any(state["status"].name in ("FAILED", "CANCELLED") for state in statuses.values()):
        screen.print(f"Retry those: nemorun experiment rerun --failed {as_word(experiment._id)}")


def split_axes(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Take the words apart into those with several values, by key, and the others.

    Raises:
        CLIException: a word is not of the form key=value.
    """
    axes: dict[str, list[str]] = {}
    fixed = []
    for word in words:
        override = parse_override(word) if "=" in word else None
        values = values_of(override.value) if override is not None else []
        if override is None or (len(values) < 2 and not _RANGE.fullmatch(override.value)):
            fixed.append(word)
        elif override.operation is not Operation.ASSIGN:
            raise ArgumentParsingError(
                f"Only = gives several values, not {override.operation.value!r}", word
            )
        else:
            axes[override.key] = values
    return axes, fixed


def values_of(text: str) -> list[str]:
    """Return the values that a text lists: ``1e-3,1e-4``, ``1..4``, ``0..10..5``, or both mixed.

    Commas in brackets and quotes are part of a value.
    """
    return [value for part in split(text) for value in _range(part)]


def _range(text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        return [text]
    first, last = Decimal(match[1]), Decimal(match[2])
    step = Decimal(match[3]) if match[3] else Decimal(1 if last >= first else -1)
    if any(number and abs(number.adjusted()) > _MAX_EXPONENT for number in (first, last, step)):
        raise ArgumentParsingError(
            f"{text!r} has numbers beyond what a float holds (1e-308 to 1e308)", text
        )
    if step == 0 or (last - first) / step < 0:
        raise ArgumentParsingError(f"{text!r} leads nowhere: check its step", text)
    # Compared before it becomes an integer, which may have hundreds of digits.
    if (last - first) / step >= MAX_JOBS:
        raise ArgumentParsingError(
            f"{text!r} would be more than {MAX_JOBS:,} values; use a larger step", text
        )
    count = int((last - first) / step) + 1
    return [format((first + number * step).normalize(), "f") for number in range(count)]


def _rows(file: str | None) -> list[Point]:
    """Return the points in a file: a list of them, or a grid given by a list for each key."""
    if file is None:
        return [{}]
    data = read_plain(Path(file))
    if isinstance(data, list) and data and all(isinstance(row, Mapping) for row in data):
        return [{str(key): value for key, value in row.items()} for row in data]
    if isinstance(data, Mapping) and data:
        return grid({str(k): v if isinstance(v, list) else [v] for k, v in data.items()})
    raise ConfigError(
        f"{file} holds no sweep: write a list of mappings, or a mapping of lists of values."
    )


def _task(
    context: RunContext,
    entrypoint: Entrypoint,
    fixed: Sequence[str],
    point: Point,
    files: Mapping[str, str],
) -> Partial[Any]:
    task = context.parse_fn(entrypoint.fn, fixed)
    changes: list[Override] = []
    for key, value in point.items():
        file = files.get(key, "")
        # Words are text, as typed; what comes from a file has a type already.
        if isinstance(value, str):
            changes.append(Override(key, Operation.ASSIGN, value, file=file))
        else:
            changes += overrides_from({key: value}, file=file)
    apply_overrides(task, changes)
    check_complete(task)
    return task


def _describe(name: str, axes: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    screen = Screen()
    over = " x ".join(f"{key} ({len(values)})" for key, values in axes.items())
    screen.heading(f"Sweep {name}: {plural(len(names), 'job')}{' over ' + over if over else ''}")
    for label in names[:_MAX_SHOWN]:
        screen.print(f"  {label}")
    if len(names) > _MAX_SHOWN:
        screen.print(f"  … and {len(names) - _MAX_SHOWN} more")
