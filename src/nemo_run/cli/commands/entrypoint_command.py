"""An entrypoint run as a command, by a script or by ``nemorun``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nemo_run.cli.commands.options import parse_run_options, wants_docs, wants_help
from nemo_run.cli.registry.entrypoints import Entrypoint
from nemo_run.cli.terminal import exit_codes
from nemo_run.cli.terminal.screen import Screen
from nemo_run.cli.terminal.standard_output import output_may_be_lost
from nemo_run.exceptions import ConfigError

PREFIX = "run."


def execute(
    entrypoint: Entrypoint,
    words: Sequence[str],
    *,
    program: str,
    defaults: Mapping[str, Any] | None = None,
) -> int:
    """Run a command with the words that follow it and return how to exit."""
    show = exit_codes.Tracebacks()

    def command() -> None:
        if wants_help(words):
            from nemo_run.cli.registry.entrypoint_help import print_help

            print_help(entrypoint, program, Screen(), docs=wants_docs(words))
        elif entrypoint.enable_executor and not _runs_its_own_way(entrypoint, words):
            options, rest = parse_run_options(words, defaults)
            show.configure(options)
            with output_may_be_lost():
                _run(entrypoint, options, rest, program)
        else:
            with output_may_be_lost():
                from nemo_run.core.frontend.console.api import CONSOLE

                entrypoint._execute_simple(list(words), CONSOLE)

    return exit_codes.exit_code_of(command, tracebacks=show)


def _runs_its_own_way(entrypoint: Entrypoint, words: Sequence[str]) -> bool:
    """Tell whether a class of the program's runs a command, which nothing asks to run otherwise."""
    if type(entrypoint)._execute_simple is Entrypoint._execute_simple:
        return False
    asks = any(word.startswith(("-", PREFIX)) for word in words)
    return entrypoint.default_executor is None and not asks


def _run(
    entrypoint: Entrypoint, options: dict[str, Any], words: Sequence[str], program: str
) -> None:
    from nemo_run.cli.commands.run_context import RunContext

    options["skip_confirmation"] = options["skip_confirmation"] or entrypoint.skip_confirmation
    if options["verbose"]:
        from nemo_run.core.frontend.console.api import configure_logging

        configure_logging("INFO")
    if options["lazy"]:
        from nemo_run.cli.lazy.command import run_lazily

        if entrypoint.type != "task":
            raise ConfigError("--lazy is for tasks; an experiment is read where it is launched.")
        run_lazily(
            _lazy_target(program),
            words,
            options,
            executor=entrypoint.default_executor,
            plugins=entrypoint.default_plugins,
        )
        return
    kind = entrypoint.run_ctx_cls or RunContext
    known = inspect.signature(kind).parameters
    chosen = {name: value for name, value in options.items() if name in known}
    chosen["name"] = chosen["name"] or entrypoint.name
    is_sweep = bool(options["sweep"] or options["sweep_file"])
    if chosen["tail_logs"] is None:
        chosen["tail_logs"] = entrypoint.type == "task" and not is_sweep
    context = kind(**chosen)
    context._entrypoint = entrypoint
    context.executor = entrypoint.default_executor
    context.plugins = entrypoint.default_plugins or []
    if entrypoint.type == "experiment":
        words = [_about_context(word, entrypoint.fn) for word in words]
    if is_sweep:
        from nemo_run.cli.commands.sweeps import run_sweep

        run_sweep(context, entrypoint, words, options["sweep_file"])
        return
    context.cli_execute(entrypoint.fn, list(words), entrypoint.type)


def _about_context(word: str, fn: Callable[..., Any]) -> str:
    """Return ``ctx.x=1``, as an experiment's parameter is called, the way the context reads it."""
    takes_context = "ctx" in inspect.signature(fn).parameters
    return f"run.{word[4:]}" if takes_context and word.startswith("ctx.") else word


def _lazy_target(program: str) -> str:
    """Return how a job can name the command: as one of ours, or by the script that it is."""
    from nemo_run.cli.commands.application import program_name

    if program_name(program.partition(" ")[0]) == program.partition(" ")[0]:
        return program
    script = getattr(sys.modules["__main__"], "__file__", None)
    if not script:
        raise ConfigError(f"{program} --lazy needs a script or a command of nemorun to name.")
    return str(script)
