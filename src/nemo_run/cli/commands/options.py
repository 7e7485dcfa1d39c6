"""The options that every run command takes, read from among the words for its function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    import argparse


class RunContextError(ConfigError):
    """What was asked of a run command cannot be done."""


class InvalidOptionError(RunContextError):
    """There is no such option, or its value makes no sense."""


class MissingRequiredOptionError(RunContextError):
    """An option that is needed was not given."""


class Option(NamedTuple):
    """One option of a command.

    Attributes:
        name: the key it has in ``cmd_defaults`` and on the run context.
        flags: how it is written; those of ``off`` mean the opposite.
        help: what it does; empty where it is not worth a line of its own.
        value: what to call its value in a help text; None for a switch.
        default: what it is when the command line does not say.
        usage: how a help text writes it, where that is not by its flags.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    value: str | None = None
    off: tuple[str, ...] = ()
    default: Any = None
    usage: str = ""


def _switch(
    name: str, *flags: str, help: str, off: str | None = None, default: bool = False
) -> Option:
    return Option(name, flags, help, off=(off or f"--no-{flags[0][2:]}",), default=default)


RUN_OPTIONS = (
    Option("name", ("--name", "-n"), "of the run and its experiment", "NAME"),
    _switch("skip_confirmation", "--yes", "-y", "--no-confirm", help="do not ask before running"),
    _switch("dryrun", "--dryrun", help="only show what would be run"),
    _switch("direct", "--direct", help="run in this process, whatever the executor"),
    _switch("detach", "--detach", help="return once the jobs are launched"),
    Option(
        "tail_logs",
        ("--tail-logs",),
        "print the logs of the jobs while waiting, as tasks do",
        off=("--no-tail-logs",),
    ),
    Option("factory", ("--factory", "-f"), "start from what this factory makes", "NAME[(…)]|@FILE"),
    Option("yaml", ("--yaml",), "start from a file: yaml, json or toml", "FILE"),
    Option(
        "to_yaml",
        ("--to-yaml",),
        "write the task to a file, and stop",
        "FILE[:PART]",
        usage="--to-yaml|toml|json FILE[:PART]",
    ),
    Option("to_toml", ("--to-toml",), "", "FILE[:PART]"),
    Option("to_json", ("--to-json",), "", "FILE[:PART]"),
    Option("sweep_file", ("--sweep-file",), "run once for each entry of a file", "FILE"),
    _switch("sweep", "--sweep", help="run once for each combination of a,b,c and 1..9 values"),
    _switch("repl", "--repl", "-r", help="a Python shell with the task in it"),
    _switch("lazy", "--lazy", help="leave reading the code to where it runs"),
    Option("load", ("--load", "-l"), "", "DIR"),
    _switch("verbose", "--verbose", "-v", help="say more; full tracebacks"),
    _switch(
        "rich_exceptions",
        "--rich-exceptions",
        help="drawn tracebacks; --rich-theme THEME, -traceback-short, -hide-locals",
    ),
    _switch("rich_traceback", "--rich-traceback-short", off="--rich-traceback-full", help=""),
    _switch("rich_locals", "--rich-show-locals", off="--rich-hide-locals", help="", default=True),
    Option("rich_theme", ("--rich-theme",), "", "THEME"),
)

_FOR_TASKS = frozenset({"sweep", "sweep_file", "repl", "lazy"})


def options_of(type: str) -> tuple[Option, ...]:
    """Return the options that make sense for a command: an experiment adds its jobs itself."""
    return tuple(o for o in RUN_OPTIONS if type == "task" or o.name not in _FOR_TASKS)


_CONTEXT_DEFAULTS = {option.name: option.default for option in RUN_OPTIONS}


def parse_run_options(
    words: Sequence[str], defaults: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Return the value of every option by name, and the words that are no options.

    Args:
        words: the command line after the command.
        defaults: what options are when the words do not say (``cmd_defaults``).

    Raises:
        InvalidOptionError: an option is not known, or lacks its value.
    """
    unknown = set(defaults or ()) - _CONTEXT_DEFAULTS.keys()
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidOptionError(
            f"cmd_defaults has no {name!r}. {did_you_mean(name, _CONTEXT_DEFAULTS)}"
        )
    known, rest = _parser().parse_known_args(_before_separator(words))
    check_no_flags(rest, [flag for option in RUN_OPTIONS for flag in (*option.flags, *option.off)])
    for option in RUN_OPTIONS:
        if vars(known).get(option.name) == "":
            raise InvalidOptionError(f"{option.flags[0]} needs a value, and not an empty one.")
    rest += list(words)[len(_before_separator(words)) + 1 :]
    return {**_CONTEXT_DEFAULTS, **(defaults or {}), **vars(known)}, rest


def check_no_flags(words: Sequence[str], known: Sequence[str]) -> None:
    """Refuse words that look like options and are none.

    Raises:
        InvalidOptionError: one does.
    """
    for word in words:
        if word.startswith("-"):
            name = word.partition("=")[0]
            raise InvalidOptionError(
                f"There is no option {name}. {did_you_mean(name, [*known, '--help', '--docs'])}"
            )


def _before_separator(words: Sequence[str]) -> list[str]:
    """Return the words up to ``--``, after which nothing is an option."""
    words = list(words)
    return words[: words.index("--")] if "--" in words else words


def _parser() -> argparse.ArgumentParser:
    # Nothing is set for options that are not there, so that other defaults can come in.
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise InvalidOptionError(f"{message[:1].upper()}{message[1:]}. See --help.")

    parser = Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for option in RUN_OPTIONS:
        if option.value is not None:
            parser.add_argument(*option.flags, dest=option.name)
            continue
        parser.add_argument(*option.flags, dest=option.name, action="store_true")
        parser.add_argument(*option.off, dest=option.name, action="store_false")
    return parser


def wants_help(words: Sequence[str]) -> bool:
    return wants_docs(words) or any(word in ("--help", "-h") for word in _before_separator(words))


def wants_docs(words: Sequence[str]) -> bool:
    """Tell whether a help text with docstrings is asked for, with ``--help`` or without."""
    return any(word in ("--docs", "-d") for word in _before_separator(words))
