"""The application: which command a command line means, loading only what that one needs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nemo_run.cli import experiments
from nemo_run.cli.terminal import exit_codes
from nemo_run.cli.terminal.screen import Screen
from nemo_run.cli.values.suggestions import did_you_mean, meant
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.cli.registry.entrypoints import Entrypoint

PROGRAM = "nemorun"


class Builtin(NamedTuple):
    """A command of ours: the module whose ``main`` runs it, and what it is for."""

    module: str
    help: str


COMMANDS = {
    "experiment": Builtin("experiments", "list, look at, follow, cancel and rerun experiments"),
    "devspace": Builtin("devspace", "launch, find and end machines to work on by ssh or an editor"),
    "ray": Builtin("ray", "list, look at, follow, end and reach Ray clusters and jobs"),
    "plan": Builtin("commands.plan", "show what a command would submit, without submitting it"),
    "doctor": Builtin(
        "commands.doctor", "check this installation, and executors before they are used"
    ),
    "completion": Builtin("commands.completion", "print a completion script for bash, zsh or fish"),
}
_HIDDEN = {"__complete": Builtin("commands.completion", "")}


def main(words: Sequence[str], program: str = PROGRAM) -> int:
    """Run a command line and return how to exit."""
    if "NEMORUN_SHOW_WARNINGS" not in os.environ:
        _silence_warnings()
    tracebacks = exit_codes.Tracebacks()
    return exit_codes.exit_code_of(
        lambda: _run(list(words), program, tracebacks), tracebacks=tracebacks
    )


def _silence_warnings() -> None:
    import warnings

    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)


def _run(words: list[str], program: str, tracebacks: exit_codes.Tracebacks) -> int:
    lazily = False
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag in ("--help", "-h"):
            _print_help(program)
            return exit_codes.DONE
        if flag == "--version":
            from nemo_run.package_info import __version__

            if words:
                raise ConfigError(f"{words[0]!r} is one word too many after --version.")
            print(__version__)
            return exit_codes.DONE
        if flag in ("--verbose", "-v"):
            tracebacks.verbose = True
        elif flag == "--lazy":
            lazily = True
        else:
            flags = ["--help", "--version", "--verbose", "--lazy"]
            raise ConfigError(f"There is no option {flag}. {did_you_mean(flag, flags)}")
    if not words:
        if lazily:
            raise _no_lazy_command(program)
        _print_help(program)
        return exit_codes.DONE
    builtin = {**COMMANDS, **_HIDDEN}.get(words[0])
    if lazily:
        if builtin is not None:
            raise ConfigError(f"{words[0]!r} cannot be run with --lazy: it runs no task.")
        return _run_lazily(words, program)
    if words[0] in experiments.SHORT and words[0] not in groups():
        return experiments.run(experiments.SHORT[words[0]], words[1:], f"{program} {words[0]}")
    if builtin is not None:
        command = import_module(f"nemo_run.cli.{builtin.module}")
        code: int = command.main(words[1:], f"{program} {words[0]}")
        return code
    return _run_entrypoint(words, program, tracebacks)


def _run_lazily(words: list[str], program: str) -> int:
    from nemo_run.cli.commands.options import parse_run_options
    from nemo_run.cli.lazy.command import run_lazily

    count = next((i for i, w in enumerate(words) if w.startswith("-") or "=" in w), len(words))
    if count < 2:
        raise _no_lazy_command(program)
    options, rest = parse_run_options(words[count:])
    run_lazily(" ".join((PROGRAM, *words[:count])), rest, options)
    return exit_codes.DONE


def _no_lazy_command(program: str) -> ConfigError:
    return ConfigError(f"--lazy needs a command: {program} --lazy GROUP COMMAND KEY=VALUE")


def _run_entrypoint(words: list[str], program: str, tracebacks: exit_codes.Tracebacks) -> int:
    from nemo_run.cli.commands.entrypoint_command import execute
    from nemo_run.cli.commands.options import check_no_flags, wants_help

    found, path, rest = find(words)
    if isinstance(found, dict):
        if rest and not rest[0].startswith("-"):
            what = f"{' '.join(path)} has no command" if path else "There is no command"
            raise ConfigError(f"{what} {rest[0]!r}. {_meant(rest[0], found, path, program)}")
        if not wants_help(rest):
            check_no_flags(rest, [])
        _print_group(found, " ".join((program, *path)))
        return exit_codes.DONE
    verbose = ["--verbose"] if tracebacks.verbose and found.enable_executor else []
    return execute(found, [*rest, *verbose], program=" ".join((program, *path)))


def _meant(word: str, found: Mapping[str, Any], path: Sequence[str], program: str) -> str:
    """Return what the user may have meant by a word, on this level or on another."""
    here = [*command_names(found), *([] if path else (*COMMANDS, *experiments.SHORT))]
    elsewhere = {name: f"{program} experiment {name}" for name in experiments.COMMANDS}
    if path:
        elsewhere |= {name: f"{program} {name}" for name in (*COMMANDS, *experiments.SHORT)}
    return meant(word, here, elsewhere)


def find(words: Sequence[str]) -> tuple[Entrypoint | dict[str, Any], list[str], list[str]]:
    """Return the command or group that words begin with, those words, and the others."""
    from nemo_run.cli.registry.entrypoints import Entrypoint, list_entrypoints

    branch: Any = list_entrypoints()
    for position, word in enumerate(words):
        named = command_names(branch)
        if word not in named:
            return branch, list(words[:position]), list(words[position:])
        branch = named[word]
        if isinstance(branch, Entrypoint):
            return branch, list(words[: position + 1]), list(words[position + 1 :])
    return branch, list(words), []


def command_names(branch: Mapping[str, Any]) -> dict[str, Any]:
    """Return commands and groups by the names they are typed with."""
    return {getattr(found, "name", name): found for name, found in branch.items()}


def groups() -> dict[str, str]:
    """Return the groups of installed plug-ins, without loading any of them."""
    from nemo_run.cli.registry import plugins

    return {point.name: point.value for point in plugins.installed()}


def _print_help(program: str) -> None:
    screen = Screen()
    screen.usage(f"Usage: {program} [--lazy] COMMAND [WORDS ...]")
    screen.print()
    screen.paragraph("Configure a machine-learning task once and run it anywhere.")
    screen.print()
    screen.heading("Commands:")
    rows = [(name, builtin.help) for name, builtin in COMMANDS.items()]
    rows += [(n, experiments.COMMANDS[long].help) for n, long in experiments.SHORT.items()]
    rows += [(name, f"[Module] {name}") for name in groups()]
    screen.rows(rows)
    screen.print()
    screen.heading("Options:")
    screen.rows(
        [
            ("--lazy", "leave reading a task's code to where it runs"),
            ("--verbose, -v", "full tracebacks"),
            ("--version", "print the version"),
            ("--help, -h", "this text; also after a command"),
        ]
    )
    screen.print()
    screen.heading("Example:")
    screen.print(f"  {program} ls --state FAILED --since 2d")


def _print_group(found: Mapping[str, Any], program: str) -> None:
    screen = Screen()
    screen.usage(f"Usage: {program} COMMAND [OPTIONS] [KEY=VALUE ...]")
    screen.print()
    screen.heading("Commands:")
    rows = []
    for name, entry in sorted(command_names(found).items()):
        if isinstance(entry, dict):
            rows.append((name, f"[Module] {name}"))
        else:
            about = entry.help_str.partition("\n\n")[2].partition("\n")[0]
            rows.append((name, f"[Entrypoint] {about or name}"))
    screen.rows(rows)


def program_name(called: str) -> str:
    """Return what to call ourselves in help texts, given how we were called."""
    name = Path(called).name
    return name if name in ("nemo", PROGRAM) else PROGRAM
