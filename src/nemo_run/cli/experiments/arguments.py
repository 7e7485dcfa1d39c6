"""Reading the words of a command, and the values that several of them take."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

from nemo_run._durations import is_duration, seconds
from nemo_run.cli.terminal.screen import DEFAULT_WIDTH, Screen, two_columns, wrapped
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.exceptions import ConfigError

LATEST = "latest"
EXPERIMENT_HELP = "id, its beginning, title, id or handle of a job, or latest"


# In front of words that are no options whatever they look like; no argument can hold it.
_NO_OPTION = "\0"
_AFTER_DASHES = "A name that begins with - stands after --."


class Parser(argparse.ArgumentParser):
    """Reads the words of one command; what is wrong with them is a `ConfigError`."""

    def __init__(self, program: str, help: str, example: str) -> None:
        super().__init__(prog=program, allow_abbrev=False, add_help=False)
        self._help = f"{help[:1].upper()}{help[1:]}."
        self._example = example
        self._has_unknown = False
        self.add_argument("--help", "-h", action="store_true", help="this text")

    def format_help(self) -> str:
        """Return a text that fits a screen; the usual one differs from Python to Python."""
        width = Screen().width or DEFAULT_WIDTH
        words = [action for action in self._actions if not action.option_strings]
        options = [action for action in self._actions if action.option_strings]
        options = [*options[1:], options[0]]  # help comes last
        usage = " ".join(("Usage:", self.prog, *map(_usage, words), "[OPTIONS]"))
        lines = wrapped(usage, width, below="    ")
        lines += ["", *wrapped(self._help, width, before="  ", below="  ")]
        for title, actions in (("Words:", words), ("Options:", options)):
            if actions:
                lines += ["", title]
            for action in actions:
                lines += two_columns(_name(action), action.help or "", width, column=24)
        return "\n".join((*lines, "", "Example:", f"  {self.prog} {self._example}"))

    def read(self, words: Sequence[str]) -> argparse.Namespace | None:
        """Return what the words say; None if they ask for help, which is then printed.

        Raises:
            ConfigError: a word is wrong, or one is missing.
        """
        cut = list(words).index("--") if "--" in words else len(words)
        if {"--help", "-h"}.intersection(words[:cut]):
            Screen().print(self.format_help())
            return None
        known = self.flags()
        self._has_unknown = any(
            word.startswith("-") and word.partition("=")[0] not in known for word in words[:cut]
        )
        marked = [f"{_NO_OPTION}{word}" for word in words[cut + 1 :]]
        options, unknown = self.parse_known_intermixed_args([*words[:cut], *marked])
        if unknown:
            self._refuse(unknown[0])
        return argparse.Namespace(**{name: _unmarked(v) for name, v in vars(options).items()})

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            word = _unmarked(word)
            raise ConfigError(f"{word!r} is one word too many. See {self.prog} --help.")
        name = word.partition("=")[0]
        raise ConfigError(
            f"There is no option {name}. {did_you_mean(name, self.flags())} {_AFTER_DASHES}"
        )

    def flags(self) -> list[str]:
        """Return how all options are written."""
        return [flag for action in self._actions for flag in action.option_strings]

    def error(self, message: str) -> NoReturn:
        hint = f" {_AFTER_DASHES}" if self._has_unknown else ""
        raise ConfigError(f"{message[:1].upper()}{message[1:]}. See {self.prog} --help.{hint}")

    def experiment(self, nargs: str | None = "?") -> None:
        """Take an experiment; where none is named the latest."""
        default = {"?": LATEST, "*": [LATEST]}.get(nargs or "")
        self.add_argument(
            "experiment", metavar="EXPERIMENT", nargs=nargs, default=default, help=EXPERIMENT_HELP
        )

    def jobs(self, help: str) -> None:
        self.add_argument("jobs", metavar="JOB", nargs="*", default=[], help=help)

    def json(self) -> None:
        self.add_argument("--json", action="store_true", help="for programs to read")


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value.removeprefix(_NO_OPTION) if isinstance(value, str) else value


def _name(action: argparse.Action) -> str:
    flags = ", ".join(action.option_strings)
    if action.nargs == 0:
        return flags
    return f"{flags} {action.metavar or '|'.join(action.choices or ())}".strip()


def _usage(action: argparse.Action) -> str:
    name = str(action.metavar)
    return {"*": f"[{name} ...]", "+": f"{name} [{name} ...]", "?": f"[{name}]"}.get(
        str(action.nargs), name
    )


def moment(text: str, now: float | None = None) -> float:
    """Read a time: so long ago, as in ``2d``, or a date such as ``2026-01-31T12:00``.

    Raises:
        ConfigError: it is neither.
    """
    if is_duration(text):
        return max(0.0, (time.time() if now is None else now) - seconds(text))
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{text!r} is not a time. Write how long ago, such as 2d, or a date, such as "
            "2026-01-31 or 2026-01-31T12:00."
        ) from None


def count(text: str) -> int:
    """Read a number from 0 on, for `argparse`."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} makes no sense: use a number from 0 on")
    return number


def moment_or_none(text: str | None) -> float | None:
    return None if text is None else moment(text)


def as_json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)
