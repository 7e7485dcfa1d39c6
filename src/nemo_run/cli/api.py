"""Factories and entrypoints: what a command line can name."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nemo_run.cli.commands.options import (
    InvalidOptionError,
    MissingRequiredOptionError,
    RunContextError,
)
from nemo_run.cli.commands.script_mode import CommandDefaults, main
from nemo_run.cli.registry.entrypoints import (
    ROOT_ENTRYPOINT_NAMESPACE,
    Entrypoint,
    EntrypointProtocol,
    entrypoint,
    list_entrypoints,
)
from nemo_run.cli.registry.factories import (
    DEFAULT_NAME,
    ROOT_FACTORY_NAMESPACE,
    FactoryProtocol,
    FactoryRegistration,
    extract_constituent_types,
    factory,
    list_factories,
    resolve_factory,
)

if TYPE_CHECKING:
    from nemo_run.cli.commands.run_context import RunContext
    from nemo_run.cli.commands.typer_app import (
        EntrypointCommand,
        GeneralCommand,
        add_global_options,
        configure_logging,
        create_cli,
    )
    from nemo_run.cli.values.overrides import parse_cli_args, parse_config, parse_partial

    EXECUTOR_CLASSES: list[Any]
    PLUGIN_CLASSES: list[Any]

__all__ = [
    "DEFAULT_NAME",
    "EXECUTOR_CLASSES",
    "INCLUDE_WORKSPACE_FILE",
    "MAIN_ENTRYPOINT",
    "NEMORUN_PRETTY_EXCEPTIONS",
    "NEMORUN_SKIP_CONFIRMATION",
    "PLUGIN_CLASSES",
    "ROOT_ENTRYPOINT_NAMESPACE",
    "ROOT_FACTORY_NAMESPACE",
    "CommandDefaults",
    "Entrypoint",
    "EntrypointCommand",
    "EntrypointProtocol",
    "FactoryProtocol",
    "FactoryRegistration",
    "GeneralCommand",
    "InvalidOptionError",
    "MissingRequiredOptionError",
    "RunContext",
    "RunContextError",
    "add_global_options",
    "configure_logging",
    "create_cli",
    "entrypoint",
    "extract_constituent_types",
    "factory",
    "list_entrypoints",
    "list_factories",
    "main",
    "parse_cli_args",
    "parse_config",
    "parse_partial",
    "resolve_factory",
]

INCLUDE_WORKSPACE_FILE = os.environ.get("INCLUDE_WORKSPACE_FILE", "true").lower()
"""What the environment said when this was imported; loading asks it again."""

MAIN_ENTRYPOINT: Entrypoint | None = None
"""The entrypoint of a script that was executed with ``LAZY_CLI=true``."""

NEMORUN_SKIP_CONFIRMATION: bool | None = None
"""What was answered when this process first asked whether to go on."""

NEMORUN_PRETTY_EXCEPTIONS = os.environ.get("NEMORUN_PRETTY_EXCEPTIONS", "false").lower()
"""What the environment said when this was imported; `main` asks it again."""

# What only a run, or a typer application, needs; a help text does without.
_LATER = {
    "EntrypointCommand": "commands.typer_app",
    "GeneralCommand": "commands.typer_app",
    "RunContext": "commands.run_context",
    "add_global_options": "commands.typer_app",
    "configure_logging": "commands.typer_app",
    "create_cli": "commands.typer_app",
    "parse_cli_args": "values.overrides",
    "parse_config": "values.overrides",
    "parse_partial": "values.overrides",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"nemo_run.cli.{_LATER[name]}"), name)
    if name == "EXECUTOR_CLASSES":
        return _executor_classes()
    if name == "PLUGIN_CLASSES":
        from nemo_run.run.plugin import ExperimentPlugin

        return [ExperimentPlugin, list[ExperimentPlugin]]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _executor_classes() -> list[Any]:
    """Return the classes that factories of executors were looked up for in 0.12."""
    import nemo_run

    names = ("Executor", "LocalExecutor", "SkypilotExecutor", "SlurmExecutor")
    return [getattr(nemo_run, name) for name in names if name in nemo_run.__all__]
