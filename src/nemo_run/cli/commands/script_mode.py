"""A script as a command: what ``run.cli.main`` does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict

from nemo_run._config.annotations import module_name
from nemo_run._config.fiddle import fdl
from nemo_run.cli.registry.entrypoints import Entrypoint, entrypoint
from nemo_run.exceptions import ConfigError


class CommandDefaults(TypedDict, total=False):
    """What the options of a script are when its command line does not say."""

    direct: bool
    dryrun: bool
    load: str
    yaml: str
    repl: bool
    detach: bool
    skip_confirmation: bool
    tail_logs: bool
    rich_exceptions: bool
    rich_traceback: bool
    rich_locals: bool
    rich_theme: str
    verbose: bool
    to_yaml: str
    to_toml: str
    to_json: str


def main(
    fn: Callable[..., Any],
    default_factory: Callable[..., Any] | None = None,
    default_executor: Any = None,
    default_plugins: Any = None,
    cmd_defaults: CommandDefaults | None = None,
    **kwargs: Any,
) -> None:
    """Run a function as the command of this script, with the words of this process.

    Returns if it ends well, and exits with 1 or 2 otherwise.

    Args:
        fn: the function; registered with `entrypoint` if it is not yet.
        default_factory: makes the `Partial` to start from.
        default_executor: where to run if the command line does not say.
        default_plugins: what to apply if the command line does not say.
        cmd_defaults: values of options; a flag on the command line wins.
        kwargs: for `entrypoint`.

    Raises:
        ValueError: ``default_plugins`` is neither a config nor a list of them.
    """
    if not hasattr(fn, "cli_entrypoint"):
        namespace = kwargs.pop("namespace", None) or module_name(fn)
        fn = entrypoint(fn, namespace=namespace, **kwargs)
    _check_plugins(default_plugins)
    command: Entrypoint = fn.cli_entrypoint  # type: ignore[attr-defined]  # see EntrypointProtocol
    changes = {
        "default_factory": default_factory,
        "default_executor": default_executor,
        "default_plugins": default_plugins,
    }
    if os.environ.get("LAZY_CLI", "false").lower() == "true":
        from nemo_run.cli import api

        vars(command).update(_given(changes))
        api.MAIN_ENTRYPOINT = command
        return
    defaults: dict[str, Any] = {**(cmd_defaults or {})}
    if os.environ.get("NEMORUN_PRETTY_EXCEPTIONS", "false").lower() == "true":
        defaults.setdefault("rich_exceptions", True)
    with _changed(command, _given(changes)):
        command.main(defaults)


def _given(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if value is not None}


def _check_plugins(plugins: Any) -> None:
    items = plugins if isinstance(plugins, list) else [plugins]
    if plugins is not None and not all(isinstance(item, fdl.Config) for item in items):
        raise ConfigError(
            f"default_plugins is a run.Config or a list of them, not {plugins!r}. "
            "Write run.Config(MyPlugin, ...)."
        )


@contextmanager
def _changed(command: Entrypoint, changes: Mapping[str, Any]) -> Iterator[None]:
    before = {name: getattr(command, name) for name in changes}
    vars(command).update(changes)
    try:
        yield
    finally:
        vars(command).update(before)
