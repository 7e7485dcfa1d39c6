"""``nemorun experiment``: look at, follow, end and repeat what was run, from any process."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from nemo_run.cli import _screen
from nemo_run.cli._suggestions import did_you_mean
from nemo_run.exceptions import ConfigError


class Command(NamedTuple):
    """A command: the module that has its ``arguments`` and its ``run``."""

    module: str
    help: str
    example: str


COMMANDS = {
    "list": Command(
        "listing", "list all experiments, the newest first", "--state FAILED --since 2d"
    ),
    "show": Command("showing", "show everything that is known of one", "latest"),
    "status": Command("status", "show how its jobs are doing", "latest"),
    "logs": Command("logs", "print what its jobs print", "latest train -f --grep loss"),
    "wait": Command(
        "waiting", "wait until all its jobs have ended; exits with 1 if one failed", "latest"
    ),
    "cancel": Command("cancelling", "end some or all of its jobs", "latest train eval"),
    "resume": Command("resuming", "go on with one whose launcher was killed", "latest --detach"),
    "rerun": Command("rerunning", "run one again, with changes", "latest steps=5 --failed"),
    "diff": Command("differences", "compare two: tasks, executors, environment, code", "A B"),
    "tag": Command("tagging", "add tags to one, or remove them", "latest best paper"),
    "note": Command("noting", "write a note on one", 'latest "better with warm-up"'),
    "rm": Command("removing", "remove some that have ended", "A B --yes"),
    "gc": Command("collecting", "remove old ones that have ended", "--older-than 30d"),
    "export": Command("exporting", "write the list as JSON or CSV", "--format csv -o runs.csv"),
}


def main(words: Sequence[str], program: str) -> int:
    """Run a command and return how to exit."""
    if not words or words[0] in ("--help", "-h"):
        _print_help(program)
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        raise ConfigError(f"There is no command {name!r} here. {did_you_mean(name, COMMANDS)}")
    from nemo_run.cli._experiments import _arguments

    command = COMMANDS[name]
    module = import_module(f"{__name__}.{command.module}")
    parser = _arguments.Parser(f"{program} {name}", command.help, command.example)
    module.arguments(parser)
    options = parser.read(rest)
    code: int = 0 if options is None else module.run(options)
    return code


def _print_help(program: str) -> None:
    screen = _screen.Screen()
    screen.usage(f"Usage: {program} COMMAND [EXPERIMENT] [JOB ...] [OPTIONS]")
    screen.print()
    screen.paragraph(
        "An EXPERIMENT is its id, the beginning of it, a title (meaning its last run), the id or "
        "handle of one of its jobs, or the word latest."
    )
    screen.paragraph("A JOB is its id, the beginning of it, or its number.")
    screen.print()
    screen.heading("Commands:")
    screen.rows([(name, command.help) for name, command in COMMANDS.items()])
    screen.print()
    screen.heading("Example:")
    screen.print(f"  {program} logs latest -f")
