"""The experiment commands of 0.12 as functions, and all of them as a typer application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_run.cli import experiments as cli_experiments

if TYPE_CHECKING:
    import typer

__all__ = ["cancel", "create", "list", "logs", "status"]

_PROGRAM = "nemorun experiment"


def list(experiment_title: str = "") -> None:
    """Print the experiments of a title, or all, the newest first."""
    cli_experiments.main(["list", *([experiment_title] if experiment_title else [])], _PROGRAM)


def logs(experiment_id: str, job_idx: int = 0) -> None:
    """Print the log of a job, following it until the job ends."""
    cli_experiments.main(["logs", experiment_id, str(job_idx), "--follow"], _PROGRAM)


def status(experiment_id: str) -> None:
    """Print how the jobs of an experiment are doing."""
    cli_experiments.main(["status", experiment_id], _PROGRAM)


def cancel(
    experiment_id: str, job_idx: int = 0, all: bool = False, dependencies: bool = False
) -> None:
    """End a job, or all; with ``dependencies`` also what it depends on."""
    words = ["--all"] if all else [str(job_idx)]
    flags = ["--dependencies"] if dependencies else []
    cli_experiments.main(["cancel", experiment_id, *words, *flags], _PROGRAM)


def create() -> typer.Typer:
    """Return a typer application with the experiment commands."""
    import typer

    from nemo_run.cli.commands.typer_app import forward

    app = typer.Typer(no_args_is_help=True)
    for name, command in cli_experiments.COMMANDS.items():
        forward(app, name, command.help, ("experiment", name))
    return app
