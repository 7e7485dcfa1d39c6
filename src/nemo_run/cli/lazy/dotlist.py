"""Nested mappings as flat lists of changes, the form a lazy entrypoint keeps them in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nemo_run.cli.values.config_files import plain
from nemo_run.cli.values.edit import split_operator, target_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

Change = tuple[str, str, Any]
"""A key, an operator and a value."""


def dictconfig_to_dot_list(
    config: DictConfig | Mapping[str, Any],
    prefix: str = "",
    resolve: bool = True,
    has_factory: bool = False,
    has_target: bool = False,
) -> list[Change]:
    """Return a nested config as ``(dotted key, operator, value)``, in order.

    A mapping inside starts with what it is a config of: ``Config[...]`` or ``Partial[...]`` for a
    ``_target_``, the expression of a ``_factory_``, else plain ``Config``. A ``run`` mapping at the
    top is left out.

    Args:
        config: the mapping.
        prefix: the key it is at.
        resolve: put values in place of interpolations.
        has_factory: a factory makes what the keys are for, so it is not started here.
        has_target: something else makes it, so it is not started here.

    Raises:
        ConfigError: an interpolation leads nowhere, or a mandatory value is missing.
    """
    started = has_factory or has_target
    return _changes(_data(config, resolve), prefix, started=started)


def _data(config: Any, resolve: bool) -> Mapping[Any, Any]:
    from omegaconf import DictConfig, OmegaConf

    if not isinstance(config, DictConfig):
        config = OmegaConf.create(dict(config))
    data: Any = plain(config) if resolve else OmegaConf.to_container(config, resolve=False)
    return dict(data)


def _changes(data: Mapping[Any, Any], prefix: str, *, started: bool) -> list[Change]:
    changes: list[Change] = []
    rest = dict(data)
    if not prefix:
        rest.pop("run", None)
    elif not started:
        changes.append((prefix, "=", _start(rest)))
        rest = {k: v for k, v in rest.items() if k not in ("_target_", "_partial_", "_factory_")}
    for name, value in rest.items():
        key, operation = split_operator(str(name))
        path = f"{prefix}.{key}" if prefix and not key.startswith("[") else prefix + key
        if isinstance(value, Mapping) and _has_paths(value):
            changes += _changes(value, path, started=False)
        else:
            changes.append((path, operation.value, value))
    return changes


def _start(data: Mapping[Any, Any]) -> str:
    if "_factory_" in data:
        return str(data["_factory_"])
    if "_target_" not in data:
        return "Config"
    kind, named = target_of(data)
    return f"{kind.__name__}[{named}]"


def _has_paths(data: Mapping[Any, Any]) -> bool:
    """Tell whether every key can be a step of a path; otherwise the mapping is kept whole."""
    if "_call_" in data or "_args_" in data:
        return False
    return all(split_operator(str(key))[0].strip("[]").isidentifier() for key in data)
