"""The commands as a typer application, for programs that have one of their own.

``nemorun`` itself does without typer: commands parse their words themselves, here as there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from nemo_run.cli import devspace, experiment
from nemo_run.cli import experiments as cli_experiments
from nemo_run.cli.commands import application as commands_application
from nemo_run.cli.registry.entrypoints import (
    Entrypoint,
    list_entrypoints,
    registered_entrypoints,
)

_AS_TYPED: dict[str, Any] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


class EntrypointCommand(TyperCommand):
    """A command whose help text is that of its entrypoint."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        entrypoint = getattr(self.callback, "entrypoint", None)
        if entrypoint is None:
            super().format_help(ctx, formatter)
        else:
            entrypoint.help()


class GeneralCommand(TyperGroup):
    """A group of commands."""


def create_cli(
    add_verbose_callback: bool = False, nested_entrypoints_creation: bool = True
) -> typer.Typer:
    """Return a typer application with the commands of ``nemorun`` and of this program.

    What this program has registered is in it, each namespace as a group.

    Args:
        add_verbose_callback: let it take ``--verbose`` in front of a command.
        nested_entrypoints_creation: load plug-ins only when the command line of this process begins
            with the group of one, which shows what is in it then; False to load them at once.
    """
    app = typer.Typer(cls=GeneralCommand, no_args_is_help=True)
    for name, builtin in commands_application.COMMANDS.items():
        if name not in ("experiment", "devspace"):
            forward(app, name, builtin.help, (name,))
    app.add_typer(experiment.create(), name="experiment", help="[Module] experiment")
    app.add_typer(devspace.create(), name="devspace", help="[Module] devspace")
    names = commands_application.groups()
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    load = not nested_entrypoints_creation or wanted in names
    tree = list_entrypoints() if load else registered_entrypoints()
    for name in dict.fromkeys([*names, *tree]):
        if name in commands_application.COMMANDS:
            continue  # ours stays; a program can put its own in front with `app.command`
        group = typer.Typer(cls=GeneralCommand, help=f"[Module] {name}", no_args_is_help=True)
        _add_tree(group, tree.get(name, {}))
        app.add_typer(group, name=name)
    for name, long in cli_experiments.SHORT.items():
        if name not in names and name not in tree:
            forward(app, name, cli_experiments.COMMANDS[long].help, (name,))
    if add_verbose_callback:
        add_global_options(app)
    return app


def _add_tree(parent: typer.Typer, tree: Mapping[str, Any]) -> None:
    for name, found in commands_application.command_names(tree).items():
        if isinstance(found, Entrypoint):
            add_entrypoint(parent, found)
        else:
            group = typer.Typer(cls=GeneralCommand, help=f"[Module] {name}")
            _add_tree(group, found)
            parent.add_typer(group, name=name)


def add_entrypoint(
    parent: typer.Typer,
    entrypoint: Entrypoint,
    *,
    defaults: Mapping[str, Any] | None = None,
    **command_options: Any,
) -> Callable[..., Any]:
    """Register an entrypoint as a command of ``parent`` and return the command."""
    from nemo_run.cli.commands.entrypoint_command import execute

    def command(ctx: typer.Context) -> None:
        code = execute(entrypoint, ctx.args, program=ctx.command_path, defaults=defaults)
        raise typer.Exit(code)

    command.entrypoint = entrypoint  # type: ignore[attr-defined]  # see EntrypointCommand
    parent.command(
        entrypoint.name,
        **{
            "cls": EntrypointCommand,
            "help": f"[Entrypoint] {entrypoint.help_str}",
            "context_settings": _AS_TYPED,
            **command_options,
        },
    )(command)
    return command


def forward(app: typer.Typer, name: str, help: str, words: Sequence[str]) -> None:
    """Add a command that hands its words to ours."""

    def command(ctx: typer.Context) -> None:
        raise typer.Exit(commands_application.main([*words, *ctx.args]))

    app.command(name, help=help, context_settings=_AS_TYPED)(command)


def add_global_options(app: typer.Typer) -> typer.Typer:
    """Let an application take ``--verbose`` in front of its commands."""

    @app.callback()
    def global_options(
        verbose: bool = typer.Option(False, "-v", "--verbose", help="say more"),
    ) -> None:
        configure_logging(verbose)

    return app


def configure_logging(verbose: bool) -> None:
    """Show what nemo_run logs: with ``verbose`` what happens to jobs, otherwise only trouble."""
    from nemo_run.core.frontend.console import api

    api.configure_logging("INFO" if verbose else "WARNING")
