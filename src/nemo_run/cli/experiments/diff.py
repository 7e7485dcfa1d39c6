"""What is different between two experiments: tasks, executors, code and environment."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_run._experiments.display.tables import one_line
from nemo_run._experiments.provenance.record import Provenance, known_provenance
from nemo_run._experiments.store import listing
from nemo_run._files import read_regular
from nemo_run.cli.experiments import plain
from nemo_run.cli.experiments.arguments import EXPERIMENT_HELP, Parser, as_json
from nemo_run.cli.experiments.finding import Place, find
from nemo_run.cli.terminal.screen import CYAN, GREEN, RED, Screen

_SCRIPT = "__main__.py"

Difference = tuple[str, str | None, str | None]


def arguments(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help=EXPERIMENT_HELP)
    parser.add_argument("b", metavar="B", help="the other one")
    parser.json()


def run(options: argparse.Namespace) -> int:
    first, second = find(options.a), find(options.b)
    before, after = facts(first), facts(second)
    found = {
        subject: difference(before.get(subject, {}), after.get(subject, {}))
        for subject in dict.fromkeys((*before, *after))
    }
    found["launching script"] = text_difference(_text(first, _SCRIPT), _text(second, _SCRIPT))
    found = {subject: changes for subject, changes in found.items() if changes}
    screen = Screen()
    if options.json:
        data = {
            subject: [{"path": path, "a": a, "b": b} for path, a, b in changes]
            for subject, changes in found.items()
        }
        screen.print(as_json({"a": first.id, "b": second.id, "differences": data}))
        return 0
    screen.print(screen.style(f"--- {first.id}", RED))
    screen.print(screen.style(f"+++ {second.id}", GREEN))
    if not found:
        screen.print("No differences.")
    for subject, changes in found.items():
        screen.print(screen.style(subject, CYAN))
        for path, a, b in changes:
            if a is not None:
                screen.print(screen.style(f"  - {path} = {one_line(a)}", RED))
            if b is not None:
                screen.print(screen.style(f"  + {path} = {one_line(b)}", GREEN))
    return 0


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    """Return the paths at which two mappings differ, in order, with both values."""
    paths = dict.fromkeys((*before, *after))
    changes = [(path, before.get(path), after.get(path)) for path in paths]
    return [(path, a, b) for path, a, b in changes if a != b]


def text_difference(before: str, after: str) -> list[Difference]:
    """Return the lines that one text has and the other has not, with their numbers."""
    import difflib

    old, new = before.splitlines(), after.splitlines()
    changes: list[Difference] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            changes += [(f"line {n + 1}", old[n], None) for n in range(start, end)]
            changes += [(f"line {n + 1}", None, new[n]) for n in range(new_start, new_end)]
    return changes


def facts(place: Place) -> dict[str, dict[str, str]]:
    """Return what there is to compare of an experiment, by subject and path."""
    found: dict[str, dict[str, str]] = {}
    for job in listing.read_jobs(place.path):
        executor = plain.masked(job.executor)
        environment, executor = _without_environment(executor)
        found[f"job {job.id}: task"] = _named("task", plain.flat(plain.masked_task(job.task)))
        found[f"job {job.id}: executor"] = _named("executor", plain.flat(executor))
        found[f"job {job.id}: environment"] = plain.flat(environment) if environment else {}
        found[f"job {job.id}: dependencies"] = {name: "needed" for name in job.dependencies}
    found["nemo_run"] = {"version": _text(place, "_VERSION").strip()}
    provenance = known_provenance(Path(place.path))
    if provenance is not None:
        found["code"] = _code(provenance, place)
        found["call"] = {
            "command": shlex.join(provenance.argv),
            "directory": provenance.cwd,
            "host": provenance.host,
            "python": f"{provenance.python} ({provenance.executable})",
        }
        found["packages"] = dict(provenance.packages)
    return found


def _code(provenance: Provenance, place: Place) -> dict[str, str]:
    """Return what is known of the code that ran; changes that were not committed by their hash."""
    found = {f"archive of {job}": kept.sha256 for job, kept in provenance.archives.items()}
    if provenance.git is not None:
        git = provenance.git
        found |= {"commit": git.commit, "branch": git.branch}
        found |= {f"changed {name}": "not committed" for name in git.changed}
        found |= {f"untracked {name}": "not committed" for name in git.untracked}
        patch = _text(place, git.patch) if git.patch else ""
        if patch:
            found["uncommitted changes"] = hashlib.sha256(patch.encode()).hexdigest()
    return found


def _named(name: str, flat: dict[str, str]) -> dict[str, str]:
    return {path or name: value for path, value in flat.items()}


def _without_environment(executor: Any) -> tuple[Any, Any]:
    """Take the environment out of a stored executor; several of them are left as they are."""
    arguments = getattr(executor, "arguments", None)
    if arguments is None:
        return None, executor
    rest = {name: value for name, value in arguments.items() if name != "env_vars"}
    return arguments.get("env_vars"), dataclasses.replace(executor, arguments=rest)


def _text(place: Place, name: str) -> str:
    try:
        return read_regular(f"{place.path}/{name}").decode("utf-8", "replace")
    except OSError:
        return ""
