"""Configure tasks from the command line.

Names are resolved when they are first used, so importing this costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
