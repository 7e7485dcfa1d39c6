"""The list of experiments as a file for programs."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nemo_run._experiments.display.counts import counted
from nemo_run.cli.experiments import listing, summaries
from nemo_run.cli.experiments.arguments import Parser, as_json
from nemo_run.exceptions import ConfigError


def arguments(parser: Parser) -> None:
    listing.add_filters(parser)
    parser.add_argument("--format", choices=("json", "csv"), help="otherwise what the file says")
    parser.add_argument("--output", "-o", metavar="FILE", help="otherwise standard output")
    parser.json()


def run(options: argparse.Namespace) -> int:
    kind = options.format or ("csv" if str(options.output).endswith(".csv") else "json")
    rows = [summaries.as_data(entry) for entry in listing.filtered(options)]
    text = as_csv(rows) if kind == "csv" and not options.json else as_json(rows) + "\n"
    if options.output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(options.output).write_text(text, encoding="utf-8", newline="")
    except OSError as err:
        raise ConfigError(f"{options.output} cannot be written: {err.strerror}.") from err
    return 0


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return experiments as a table; what is a list or a mapping becomes words."""
    columns = [
        "id",
        "title",
        "state",
        "jobs",
        "states",
        "executors",
        "created_at",
        "started_at",
        "ended_at",
        "duration_s",
        "message",
        "tags",
        "note",
        "path",
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        flat = {
            "states": counted(row["states"]),
            "executors": " ".join(row["executors"]),
            "tags": " ".join(row["tags"]),
        }
        writer.writerow({**row, **flat})
    return text.getvalue()
