"""Run a command whose code need not be importable here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nemo_run.cli.commands.options import InvalidOptionError
from nemo_run.cli.terminal.confirmation import confirmed
from nemo_run.cli.values.config_files import Format


def run_lazily(
    target: str,
    words: Sequence[str],
    options: Mapping[str, Any],
    *,
    executor: Any = None,
    plugins: Any = None,
) -> None:
    """Launch, or write to a file, a task that is put together where it runs.

    Args:
        target: the command line of the command, without its words; or a script.
        words: overrides, and words that begin with ``run.``.
        options: see `RUN_OPTIONS`.
        executor, plugins: what to start from, as far as that is known here.

    Raises:
        InvalidOptionError: an option needs the code here, or there is no executor.
        MissingRequiredOptionError: there is no terminal to ask at.
    """
    from nemo_run.cli.commands.exports import export_all
    from nemo_run.cli.commands.run_context import RunContext
    from nemo_run.cli.lazy import LazyEntrypoint

    for name in ("dryrun", "repl", "direct", "sweep", "sweep_file"):
        if options[name]:
            flag = name.replace("_", "-")
            raise InvalidOptionError(
                f"--lazy and --{flag} exclude each other: the code is not here."
            )
    context = RunContext(
        name=options["name"] or _name(target),
        detach=options["detach"],
        skip_confirmation=options["skip_confirmation"],
        tail_logs=options["tail_logs"] is not False,
        yaml=options["yaml"],
    )
    context.executor, context.plugins = executor, plugins or []
    rest = context.parse_args(words)
    task = LazyEntrypoint(target, factory=options["factory"], yaml=options["yaml"], overwrites=rest)
    destinations: dict[Format, str | None] = {
        "yaml": options["to_yaml"],
        "toml": options["to_toml"],
        "json": options["to_json"],
    }
    if export_all(task, destinations):
        return
    if context.executor is None:
        raise InvalidOptionError("--lazy needs an executor. Name one with run.executor=NAME.")
    if confirmed(context.name, skip=context.skip_confirmation):
        context.run_task(task)


def _name(target: str) -> str:
    return Path(target).stem if target.endswith(".py") else target.split()[-1]
