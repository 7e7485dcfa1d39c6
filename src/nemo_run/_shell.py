"""Turn an argument vector into text a POSIX shell splits back into the same vector.

This is the only place that quotes. Everything is literal except the variables a caller names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence

from nemo_run.exceptions import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")

# As the first word these would start a construct of the shell, not the program of that name.
_RESERVED = frozenset(
    {
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
    }
)


def render(argv: Sequence[str], expand: Collection[str] = ()) -> str:
    """Quote ``argv`` for a shell, leaving only the variables in ``expand`` to the shell.

    A variable may be written ``$name`` or ``${name}`` anywhere in an argument. The shell puts its
    value there without splitting it or matching it against files. Every other ``$`` is literal.

    Raises:
        ConfigError: an argument contains a NUL character, or a name is not one of a variable.
    """
    if isinstance(argv, str):
        raise TypeError(f"argv is a list of arguments, not one text: {argv!r}")
    check_names(expand)
    words = [_word(arg, expand, what=f"argument {n}") for n, arg in enumerate(argv)]
    if words and (words[0] in _RESERVED or words[0][0] in "-+" or "=" in words[0]):
        # Empty quotes change nothing but how it is read: not as a keyword or an assignment, nor,
        # for a text that follows ``sh -c``, as an option.
        words[0] = f"''{words[0]}"
    return " ".join(words)


def assignment(name: str, value: str, expand: Collection[str] = ()) -> str:
    """Render ``name=value`` for a shell: see :func:`render`."""
    check_names((name, *expand))
    return f"{name}={_word(value, expand, what=f'the value of {name}')}"


def export(name: str, value: str, expand: Collection[str] = ()) -> str:
    """Render the command that puts a variable into the environment of those that follow."""
    return f"export {assignment(name, value, expand)}"


def check_names(names: Collection[str]) -> None:
    """Raise ConfigError unless every one of ``names`` can be the name of a shell variable."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} cannot be the name of an environment variable. Use letters, digits and "
                "'_', not starting with a digit."
            )


def _word(text: str, expand: Collection[str], *, what: str) -> str:
    if "\0" in text:
        # The text itself is not shown: the value of a variable may be a secret.
        raise ConfigError(
            f"A command could not be built: {what} contains a NUL character, which neither an "
            "argument nor a variable can hold. Remove it."
        )
    parts = []
    end = 0
    for match in _VARIABLE.finditer(text):
        name = match[1] or match[2]
        if name in expand:
            parts += [_literal(text[end : match.start()]), f'"${{{name}}}"']
            end = match.end()
    if not parts:
        return shlex.quote(text)
    return "".join([*parts, _literal(text[end:])])


def _literal(text: str) -> str:
    return shlex.quote(text) if text else ""


def as_word(name: str) -> str:
    """Quote a name to be shown as a word of a command, after its options."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)
