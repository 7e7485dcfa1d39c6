"""``nemorun ray``: look at, follow, end and reach Ray clusters and jobs, from any process."""

from __future__ import annotations

from collections.abc import Sequence

from nemo_run.cli.terminal import screen as screens
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.exceptions import ConfigError

COMMANDS = {
    "list": ("list clusters and jobs, the latest first", "--cached"),
    "status": ("show how one is; exits with 1 if it failed", "train"),
    "logs": ("print what a job prints", "train -f"),
    "stop": ("end one, and return when it has ended", "dev"),
    "forward": ("have a port of this machine lead to the dashboard of one", "dev --port 8265"),
}


def main(words: Sequence[str], program: str) -> int:
    """Run a command and return how to exit."""
    if not words or words[0] in ("--help", "-h"):
        _print_help(program)
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        raise ConfigError(f"There is no command {name!r} here. {did_you_mean(name, COMMANDS)}")
    from nemo_run.cli.ray import commands

    parser = commands.parser(name, program)
    options = parser.read(rest)
    return 0 if options is None else commands.run(name, options)


def _print_help(program: str) -> None:
    screen = screens.Screen()
    screen.usage(f"Usage: {program} COMMAND [NAME] [OPTIONS]")
    screen.print()
    screen.paragraph(
        "NAME is that of a RayCluster or a RayJob that was started from this home directory."
    )
    screen.print()
    screen.heading("Commands:")
    screen.rows([(name, help) for name, (help, _) in COMMANDS.items()])
    screen.print()
    screen.heading("Example:")
    screen.print(f"  {program} logs train -f")
