"""Where a command runs, from the words that begin with ``run.``: its executor and plugins."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, Union

from nemo_run._config.fiddle import fdl
from nemo_run.cli.commands.task_source import check_complete
from nemo_run.cli.registry.factories import names_for
from nemo_run.cli.values.edit import realize
from nemo_run.cli.values.errors import ArgumentValueError, CLIException, summary
from nemo_run.cli.values.grammar import Operation, Override, parse_call, parse_file
from nemo_run.cli.values.overrides import apply_overrides
from nemo_run.cli.values.parameter import Slot, own
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.cli.values.value_parser import parse_factory
from nemo_run.config import Config
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.exceptions import ConfigError
from nemo_run.run.plugin import ExperimentPlugin


def _placement(executor: Any = None, plugins: Any = ()) -> None:
    """What the overrides of both are applied to; never called."""


def place(
    context: type, executor: Any, plugins: Any, overrides: Iterable[Override]
) -> tuple[Executor | None, list[ExperimentPlugin]]:
    """Return the executor and the plugins that overrides name and change; see `configure`.

    Raises:
        CLIException: an override does not fit.
        ConfigError: what comes out is no executor, or no plugin.
    """
    where, which = configure(context, executor, plugins, overrides)
    return built_executor(where), [_built(item, ExperimentPlugin, "run.plugins") for item in which]


def built_executor(config: Any) -> Executor | None:
    """Return the executor that a config makes; None for None.

    Raises:
        ConfigError: it makes none.
    """
    return None if config is None else _built(config, Executor, "run.executor")


def configure(
    context: type, executor: Any, plugins: Any, overrides: Iterable[Override]
) -> tuple[Any, list[Any]]:
    """Return what the executor and the plugins are made from that overrides name and change.

    Args:
        context: the class of the run context, for which factories may be registered.
        executor: what to start from: an executor, a config of one, or None.
        plugins: what to start from: one plugin or several, or configs of them.
        overrides: with keys such as ``executor``, ``executor.nodes`` and ``plugins[0].size``.

    Raises:
        CLIException: an override does not fit.
    """
    holder = Config(_placement, executor=own(executor), plugins=_as_list(own(plugins)))
    # Whole ones first; stable, so that the words about one thing keep their order.
    for override in sorted(
        overrides, key=lambda override: override.key in ("executor", "plugins"), reverse=True
    ):
        try:
            _place(holder, override, context)
        except CLIException as err:
            err.arg = f"run.{override}"  # as it was written
            raise
    return holder.executor, list(holder.plugins)


def as_config(value: Any) -> Any:
    """Return a config of what was named; a factory may have returned the thing itself."""
    if isinstance(value, fdl.Partial):
        return fdl.cast(Config, value)
    return value if isinstance(value, fdl.Buildable) else value.to_config()


def _place(holder: Any, override: Override, context: type) -> None:
    if override.key == "executor" and override.operation is Operation.ASSIGN:
        holder.executor = _named(override, context, _any_of(Executor))
    elif override.key == "plugins":
        holder.plugins = _changed_plugins(holder.plugins, override, context)
    else:
        _check_there(holder, override)
        key = _first_plugin(override.key, holder.plugins)
        apply_overrides(holder, [dataclasses.replace(override, key=key)])


def _as_list(plugins: Any) -> list[Any]:
    if plugins is None:
        return []
    return list(plugins) if isinstance(plugins, (list, tuple)) else [plugins]


def _any_of(base: type) -> Any:
    """Return a hint for every class there is of a kind, so that factories for each are found."""
    _ = LocalExecutor  # so that this one always is among them
    classes: list[type] = [base]
    for cls in classes:
        found: list[type] = cls.__subclasses__()
        classes += [new for new in found if new not in classes]
    return Union[tuple(classes)]  # noqa: UP007 - made at run time


def _named(override: Override, context: type, hint: Any) -> Any:
    slot = Slot(context, override.key, hint)
    value = override.value
    if not isinstance(value, str) or parse_file(value) is not None:
        return _realized(override, slot)
    if value.strip().lower() in ("none", "null"):
        return None
    try:
        return parse_factory(context, override.key, hint, value)
    except CLIException as err:
        call = parse_call(value)
        ours = _exported(call.name) if call else None
        if call is None or ours is None:
            if call is not None and override.key == "executor" and "No matching" in err.message:
                short = [name for name in _short_names() if name]
                known = [*names_for(context, override.key, hint), *short, *_exported_names()]
                suggestion = did_you_mean(call.name, known)
                err.message = f"No matching factory found for: {call.name}. {suggestion}"
            raise
        words = ", ".join(call.arguments or ())
        return parse_factory(context, override.key, ours, f"{ours.__name__}({words})")


def _realized(override: Override, slot: Slot) -> Any:
    if not override.is_text:
        return realize(override.value, slot)
    from nemo_run.cli.values.config_files import load_config_from_path, plain

    return realize(plain(load_config_from_path(override.value)), slot)


def _exported(name: str) -> type | None:
    """Return the executor class that ``nemo_run`` exports by a name, if it does."""
    import nemo_run

    name = _short_names().get(name, name)
    if name not in _exported_names():
        return None
    found = getattr(nemo_run, name)
    return found if isinstance(found, type) else None


def _exported_names() -> list[str]:
    import nemo_run

    return [name for name in nemo_run.__all__ if name.endswith("Executor")]


def _short_names() -> dict[str, str]:
    """Return executors by the names that lists and tables show: ``slurm`` is a SlurmExecutor."""
    return {name.removesuffix("Executor").lower(): name for name in _exported_names()}


def _changed_plugins(plugins: list[Any], override: Override, context: type) -> list[Any]:
    named = _as_list(_named(override, context, _any_of(ExperimentPlugin)))
    flat = [item for entry in named for item in _as_list(entry)]
    if override.operation is Operation.ASSIGN:
        return flat
    if override.operation is Operation.ADD:
        return [*plugins, *flat]
    raise ArgumentValueError(
        f"Plugins can be named (=) and added (+=), not changed by {override.operation.value!r}"
    )


def _check_there(holder: Any, override: Override) -> None:
    what = "executor" if override.key.startswith("executor") else "plugins"
    if not getattr(holder, what):
        raise ArgumentValueError(
            f"run.{override.key} cannot be set, since no {what} is given. "
            f"Name one with run.{what}=NAME"
        )


def _first_plugin(key: str, plugins: Sequence[Any]) -> str:
    """Return the key with the plugin that is meant where there is only one."""
    if not key.startswith("plugins."):
        return key
    if len(plugins) > 1:
        raise ArgumentValueError(
            f"run.{key} could mean any of {len(plugins)} plugins. Write run.plugins[0].…"
        )
    return f"plugins[0].{key.removeprefix('plugins.')}"


def _built(value: Any, kind: type, what: str) -> Any:
    if isinstance(value, fdl.Buildable):
        check_complete(value, f"{what}.")
    try:
        made = fdl.build(value) if isinstance(value, fdl.Buildable) else value
        if isinstance(made, functools.partial):
            made = made()
    except ConfigError:
        raise
    except Exception as err:
        raise ConfigError(f"{what} cannot be made: {summary(err)}") from err
    if not isinstance(made, kind):
        raise ConfigError(f"{what} is {made!r}, which is no {kind.__name__}.")
    return made
