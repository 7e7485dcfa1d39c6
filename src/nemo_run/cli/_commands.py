"""An entrypoint run as a command, by a script or by ``nemorun``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nemo_run.cli import _exit_codes
from nemo_run.cli._entrypoints import Entrypoint
from nemo_run.cli._options import parse_run_options, wants_docs, wants_help
from nemo_run.cli._screen import Screen
from nemo_run.cli._standard_output import output_may_be_lost
from nemo_run.exceptions import ConfigError


def execute(
    entrypoint: Entrypoint,
    words: Sequence[str],
    *,
    program: str,
    defaults: Mapping[str, Any] | None = None,
) -> int:
    """Run a command with the words that follow it and return how to exit."""
    show = _exit_codes.Tracebacks()

    def command() -> None:
        if wants_help(words):
            from nemo_run.cli._entrypoint_help import print_help

            print_help(entrypoint, program, Screen(), docs=wants_docs(words))
        elif entrypoint.enable_executor:
            options, rest = parse_run_options(words, defaults)
            show.configure(options)
            with output_may_be_lost():
                _run(entrypoint, options, rest, program)
        else:
            with output_may_be_lost():
                _call(entrypoint, words)

    return _exit_codes.exit_code_of(command, tracebacks=show)


def _call(entrypoint: Entrypoint, words: Sequence[str]) -> None:
    """Run a simple command: parsed, and called in this process."""
    from nemo_run._fiddle import fdl
    from nemo_run.cli._options import check_no_flags
    from nemo_run.cli._starting import start

    check_no_flags(words, [])
    task = start(
        entrypoint.fn,
        words,
        default_factory=entrypoint.default_factory,
        arguments=entrypoint.configured,
    )
    fn: Any = entrypoint.fn
    fn.__io__ = task
    fdl.build(task)()


def _run(
    entrypoint: Entrypoint, options: dict[str, Any], words: Sequence[str], program: str
) -> None:
    from nemo_run.cli._run_context import RunContext

    options["skip_confirmation"] = options["skip_confirmation"] or entrypoint.skip_confirmation
    if options["verbose"]:
        from nemo_run.core.frontend.console.api import configure_logging

        configure_logging("INFO")
    if options["lazy"]:
        from nemo_run.cli._lazy_command import run_lazily

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
        from nemo_run.cli._sweeps import run_sweep

        run_sweep(context, entrypoint, words, options["sweep_file"])
        return
    context.cli_execute(entrypoint.fn, list(words), entrypoint.type)


def _about_context(word: str, fn: Callable[..., Any]) -> str:
    """Return ``ctx.x=1``, as an experiment's parameter is called, the way the context reads it."""
    takes_context = "ctx" in inspect.signature(fn).parameters
    return f"run.{word[4:]}" if takes_context and word.startswith("ctx.") else word


def _lazy_target(program: str) -> str:
    """Return how a job can name the command: as one of ours, or by the script that it is."""
    from nemo_run.cli._application import program_name

    if program_name(program.partition(" ")[0]) == program.partition(" ")[0]:
        return program
    script = getattr(sys.modules["__main__"], "__file__", None)
    if not script:
        raise ConfigError(f"{program} --lazy needs a script or a command of nemorun to name.")
    return str(script)
