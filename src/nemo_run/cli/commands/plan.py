"""``nemorun plan``: what a command would submit, with secrets hidden; nothing is submitted."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from nemo_run.cli.commands import application
from nemo_run.cli.commands.options import wants_help
from nemo_run.cli.terminal.screen import Screen
from nemo_run.cli.terminal.standard_output import output_may_be_lost
from nemo_run.exceptions import ConfigError


def main(words: Sequence[str], program: str) -> int:
    """Show the plan of a command and return how to exit."""
    if not words or (wants_help(words) and words[0].startswith("-")):
        _print_help(program)
        return 0
    from nemo_run._experiments.plan_only import planning

    with planning(), output_may_be_lost():
        if words[0].endswith(".py"):
            return _plan_script(Path(words[0]), words[1:])
        return _plan_command(words, program)


def _plan_command(words: Sequence[str], program: str) -> int:
    from nemo_run.cli.commands.entrypoint_command import execute
    from nemo_run.cli.registry.entrypoints import Entrypoint

    found, path, rest = application.find(words)
    if not isinstance(found, Entrypoint):
        raise ConfigError(
            f"{' '.join(words)!r} names neither a script nor a command. See nemorun --help."
        )
    return execute(found, rest, program=" ".join((program, *path)))


def _print_help(program: str) -> None:
    screen = Screen()
    screen.usage(f"Usage: {program} SCRIPT.py|GROUP COMMAND [OPTIONS] [KEY=VALUE ...]")
    screen.print()
    screen.paragraph(
        "Show what a command would submit, without submitting it: its arguments, its executor and "
        "the requests for the backend. Secrets are hidden. The words are those of the command "
        "itself."
    )
    screen.print()
    screen.heading("Example:")
    screen.print(f"  {program} train.py net=small_net run.executor=local")


def _plan_script(script: Path, words: Sequence[str]) -> int:
    if not script.is_file():
        raise ConfigError(f"There is no script {str(script)!r}.")
    sys.argv = [str(script), *words]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0
