"""``nemorun experiment``: look at, follow, end and repeat what was run, from any process."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from nemo_run.cli.terminal import screen as screens
from nemo_run.cli.values.suggestions import meant
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
    "show": Command("show", "show everything that is known of one", "latest"),
    "status": Command("status", "show how its jobs are doing", "latest"),
    "logs": Command("logs", "print what its jobs print", "latest train -f --grep loss"),
    "wait": Command(
        "wait", "wait until all its jobs have ended; exits with 1 if one failed", "latest"
    ),
    "cancel": Command("cancel", "end some or all of its jobs", "latest train eval"),
    "resume": Command("resume", "go on with one whose launcher was killed", "latest --detach"),
    "rerun": Command("rerun", "run one again, with changes", "latest steps=5 --failed"),
    "diff": Command("diff", "compare two: tasks, executors, environment, code", "A B"),
    "tag": Command("tag", "add tags to one, or remove them", "latest best paper"),
    "note": Command("note", "write a note on one", 'latest "better with warm-up"'),
    "rm": Command("rm", "remove some that have ended", "A B --yes"),
    "gc": Command("gc", "remove old ones that have ended", "--older-than 30d"),
    "export": Command("export", "write the list as JSON or CSV", "--format csv -o runs.csv"),
}


SHORT = {
    "ls": "list",
    "status": "status",
    "logs": "logs",
    "wait": "wait",
    "cancel": "cancel",
    "rerun": "rerun",
}
"""Commands that are typed often, and what they are called here."""

_SAME = {"ls": "list"}


def main(words: Sequence[str], program: str) -> int:
    """Run a command and return how to exit."""
    if not words or words[0] in ("--help", "-h"):
        _print_help(program)
        return 0
    name, rest = words[0], words[1:]
    if _SAME.get(name, name) not in COMMANDS:
        raise ConfigError(f"There is no command {name!r} here. {_meant(name)}")
    return run(_SAME.get(name, name), rest, f"{program} {name}")


def _meant(name: str) -> str:
    """Return which command the user may have meant, of those here or of those above."""
    from nemo_run.cli.commands import application

    above = {word: f"{application.PROGRAM} {word}" for word in application.COMMANDS}
    return meant(name, COMMANDS, above)


def run(name: str, words: Sequence[str], program: str) -> int:
    """Run the command of that name, which was called as ``program``; return how to exit."""
    from nemo_run.cli.experiments import arguments

    command = COMMANDS[name]
    module = import_module(f"{__name__}.{command.module}")
    parser = arguments.Parser(program, command.help, command.example)
    module.arguments(parser)
    options = parser.read(words)
    code: int = 0 if options is None else module.run(options)
    return code


def _print_help(program: str) -> None:
    screen = screens.Screen()
    screen.usage(f"Usage: {program} COMMAND [EXPERIMENT] [JOB ...] [OPTIONS]")
    screen.print()
    screen.paragraph(
        "An EXPERIMENT is its id, the beginning of it, a title (meaning its last run), the id or "
        "handle of one of its jobs, or the word latest, which most commands take it for where none "
        "is named."
    )
    screen.paragraph("A JOB is its id, the beginning of it, or its number.")
    screen.print()
    screen.heading("Commands:")
    screen.rows([(name, command.help) for name, command in COMMANDS.items()])
    screen.print()
    screen.heading("Example:")
    screen.print(f"  {program} logs latest -f")
