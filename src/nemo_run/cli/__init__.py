"""Configure tasks from the command line.

Names are resolved when they are first used, so importing this costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_run._later import on_demand

if TYPE_CHECKING:
    from nemo_run.cli.api import (
        RunContext,
        create_cli,
        entrypoint,
        factory,
        list_entrypoints,
        list_factories,
        main,
        resolve_factory,
    )
    from nemo_run.cli.cli_parser import parse_cli_args, parse_config, parse_partial

__all__ = [
    "RunContext",
    "create_cli",
    "entrypoint",
    "factory",
    "list_entrypoints",
    "list_factories",
    "main",
    "parse_cli_args",
    "parse_config",
    "parse_partial",
    "resolve_factory",
]

_HOMES = {
    "RunContext": "api",
    "create_cli": "api",
    "entrypoint": "api",
    "factory": "api",
    "list_entrypoints": "api",
    "list_factories": "api",
    "main": "api",
    "parse_cli_args": "cli_parser",
    "parse_config": "cli_parser",
    "parse_partial": "cli_parser",
    "resolve_factory": "api",
}
_MODULES = frozenset({"api", "cli_parser", "config", "experiment", "lazy", "workspace"})


__getattr__ = on_demand(__name__, *_MODULES, homes=_HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
