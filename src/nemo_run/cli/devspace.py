"""``nemorun devspace``: launch, find, use and end machines to work on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from nemo_run.cli.terminal.screen import Screen
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    import typer

    from nemo_run.cli.experiments.arguments import Parser
    from nemo_run.devspace.base import DevSpace

__all__ = ["connect", "create", "launch", "sshserver"]

EDITORS = ("none", "code", "cursor", "jupyter")


class Command(NamedTuple):
    """What a command is for, and how it is typed."""

    help: str
    example: str


COMMANDS = {
    "launch": Command(
        "launch a devspace, or connect to it if it runs", "space=dev --editor none --idle 2h"
    ),
    "connect": Command("connect to one by name, or by the host and path it printed", "dev"),
    "list": Command("list those that this machine knows", "--json"),
    "stop": Command("end some; returns when they have ended", "dev"),
    "sshserver": Command("run the ssh server of one, on the node itself", "TEXT --verbose"),
}


def main(words: Sequence[str], program: str) -> int:
    """Run a command and return how to exit."""
    if not words or words[0] in ("--help", "-h"):
        _print_help(program)
        return 0
    name, rest = words[0], list(words[1:])
    if name == "proxy":
        return _proxy(rest)
    if name not in COMMANDS:
        raise ConfigError(f"There is no command {name!r} here. {did_you_mean(name, COMMANDS)}")
    options = parser(name, program).read(rest)
    if options is not None:
        _HANDLERS[name][1](options)
    return 0


def parser(name: str, program: str) -> Parser:
    """Return what reads the words of a command."""
    from nemo_run.cli.experiments.arguments import Parser

    made = Parser(f"{program} {name}", *COMMANDS[name])
    _HANDLERS[name][0](made)
    return made


def _attending(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--editor", choices=EDITORS, help="to open; asked for at a terminal")
    parser.add_argument("--detach", action="store_true", help="return once it is up")


def _launch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="KEY=VALUE", nargs="*", help="what to launch: space=NAME")
    _attending(parser)
    parser.add_argument("--idle", metavar="TIME", help="end it after so long without connections")
    parser.add_argument(
        "--reverse",
        metavar="HOST",
        nargs="?",
        const="",
        help="be reached through a login that the job makes to HOST, or to where it came from",
    )


def _launch(options: argparse.Namespace) -> None:
    from nemo_run.cli.registry.entrypoints import Entrypoint

    def run(space: DevSpace) -> None:
        if options.editor:
            space.editor = options.editor
        if options.idle:
            space.idle = options.idle
        if options.reverse is not None:
            space.reverse = options.reverse or True
        space.detach = space.detach or options.detach
        config = run.__io__.space  # type: ignore[attr-defined]  # set by the entrypoint
        space.__io__, space.executor.__io__ = config, config.executor  # type: ignore[attr-defined]
        launch(space)

    from nemo_run.core.frontend.console.api import CONSOLE
    from nemo_run.devspace.base import DevSpace

    run.__annotations__["space"] = DevSpace
    command = Entrypoint(run, namespace="devspace", name="launch", enable_executor=False)
    command._execute_simple(options.words, CONSOLE)


def _connect_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", metavar="NAME|HOST", help="its name, or user@hostname with PATH")
    parser.add_argument("path", metavar="PATH", nargs="?", help="that its server has printed")
    _attending(parser)


def _connect(options: argparse.Namespace) -> None:
    from nemo_run.devspace import commands

    if options.path is None:
        commands.reattach(options.host, editor=options.editor, detach=options.detach)
    else:
        connect(options.host, options.path, editor=options.editor, detach=options.detach)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs to read")


def _list(options: argparse.Namespace) -> None:
    from nemo_run.devspace import commands

    rows = commands.listed()
    screen = Screen()
    if options.json:
        from nemo_run.cli.experiments.arguments import as_json

        screen.print(as_json(rows))
    elif not rows:
        screen.print("This machine knows of no devspace.")
    else:
        screen.rows([(row["name"], f"{row['state']:<10} ssh {row['alias']}") for row in rows])


def _stop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+", help="of a devspace")


def _stop(options: argparse.Namespace) -> None:
    from nemo_run.devspace import commands

    for name in options.names:
        Screen().print(f"{name}: {commands.stop(name)}")


def _sshserver_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("space_zlib", metavar="SPACE_ZLIB", help="a DevSpace, as text")
    parser.add_argument(
        "--verbose", action=argparse.BooleanOptionalAction, default=False, help="log more"
    )


def _sshserver(options: argparse.Namespace) -> None:
    sshserver(options.space_zlib, verbose=options.verbose)


_HANDLERS = {
    "launch": (_launch_arguments, _launch),
    "connect": (_connect_arguments, _connect),
    "list": (_list_arguments, _list),
    "stop": (_stop_arguments, _stop),
    "sshserver": (_sshserver_arguments, _sshserver),
}


def _proxy(words: Sequence[str]) -> int:
    """Be the connection of ``ssh ALIAS``; only our ssh config calls it."""
    from nemo_run.devspace import _reaching, _records

    if len(words) != 1:
        raise ConfigError("proxy takes the name of a devspace.")
    return _reaching.proxy(_records.get(words[0]))


def launch(space: DevSpace) -> None:
    """Launch a devspace, and stay with it."""
    space.launch()


def connect(host: str, path: str, *, editor: str | None = None, detach: bool = False) -> None:
    """Connect to a devspace that another machine has launched; see `DevSpace.connect`."""
    from nemo_run.devspace.base import DevSpace

    DevSpace.connect(host, path, editor=editor, detach=detach)


def sshserver(space_zlib: str, verbose: bool = False) -> None:
    """Run the ssh server of a devspace here, until it is ended."""
    from nemo_run.devspace import commands

    commands.serve(space_zlib, verbose=verbose)


def create() -> typer.Typer:
    """Return a typer application with the commands of devspaces."""
    import typer

    from nemo_run.cli.commands.typer_app import forward

    app = typer.Typer(no_args_is_help=True)
    for name, command in COMMANDS.items():
        forward(app, name, command.help, ("devspace", name))
    return app


def _print_help(program: str) -> None:
    screen = Screen()
    screen.usage(f"Usage: {program} COMMAND [WORDS ...] [OPTIONS]")
    screen.print()
    screen.paragraph(
        "A devspace is a job with an ssh server: a machine of a cluster to work on, by ssh, an "
        "editor or Jupyter."
    )
    screen.print()
    screen.heading("Commands:")
    screen.rows([(name, command.help) for name, command in COMMANDS.items()])
    screen.print()
    screen.heading("Example:")
    screen.print(f"  {program} launch {COMMANDS['launch'].example}")
