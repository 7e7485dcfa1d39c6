"""Factories and entrypoints: what a command line can name."""

from __future__ import annotations

import os

from nemo_run.cli._entrypoints import (
    ROOT_ENTRYPOINT_NAMESPACE,
    Entrypoint,
    EntrypointProtocol,
    entrypoint,
    list_entrypoints,
)
from nemo_run.cli._factories import (
    DEFAULT_NAME,
    ROOT_FACTORY_NAMESPACE,
    FactoryProtocol,
    FactoryRegistration,
    extract_constituent_types,
    factory,
    list_factories,
    resolve_factory,
)
from nemo_run.cli._overrides import parse_cli_args, parse_config, parse_partial

__all__ = [
    "DEFAULT_NAME",
    "INCLUDE_WORKSPACE_FILE",
    "MAIN_ENTRYPOINT",
    "ROOT_ENTRYPOINT_NAMESPACE",
    "ROOT_FACTORY_NAMESPACE",
    "Entrypoint",
    "EntrypointProtocol",
    "FactoryProtocol",
    "FactoryRegistration",
    "entrypoint",
    "extract_constituent_types",
    "factory",
    "list_entrypoints",
    "list_factories",
    "parse_cli_args",
    "parse_config",
    "parse_partial",
    "resolve_factory",
]

INCLUDE_WORKSPACE_FILE = os.environ.get("INCLUDE_WORKSPACE_FILE", "true").lower()
"""What the environment said when this was imported; loading asks it again."""

MAIN_ENTRYPOINT: Entrypoint | None = None
"""The entrypoint of a script that was executed with ``LAZY_CLI=true``."""
