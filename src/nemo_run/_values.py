"""Values that a user wrote for a job, and which parts of them the job's shell fills in.

A backend that says so in its capabilities (Slurm, as NeMo Run 0.12 did) fills in ``$NAME``,
``${NAME}`` and ``$(command)``. Its values are marked `Expandable` when a task is packaged; what is
not marked, and every `literal`, is never given to a shell as anything but text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nemo_run._secrets.masking import is_secret

log = logging.getLogger(__name__)


class literal(str):  # used like a function
    """A text that arrives in a job letter by letter, on every backend.

    For ``env_vars``, ``Script.env`` and ``Script.args``, where Slurm's shell would fill in
    ``$NAME``, ``${NAME}`` and ``$(command)``, ``--option value`` would become two words, and paths
    below ``/nemo_run`` and placeholders are replaced. What is made from it, as by ``+`` or an
    f-string, is a plain text again.
    """

    # Stored configs name the class by this.
    __module__ = "nemo_run"
    __slots__ = ()

    def __new__(cls, text: str) -> literal:
        if not isinstance(text, str):
            raise TypeError(
                f"literal() takes a text, not {text!r} of type {type(text).__name__}. "
                f"Write it as literal({str(text)!r})."
            )
        return super().__new__(cls, text)

    def __repr__(self) -> str:
        return f"literal({super().__repr__()})"


class Expandable(str):
    """A text in which the shell of a job puts in values; see `pieces`."""

    __slots__ = ()


class Piece(NamedTuple):
    """A part of a text: letters, or what a shell replaces by a value.

    ``content`` is the text itself, the name of a variable, or a command.
    """

    kind: str
    content: str


TEXT, VARIABLE, COMMAND = "text", "variable", "command"

# As for bash, $$ is one thing, so that the second dollar starts nothing.
_FORM = re.compile(
    r"(?<!\\)(?P<escapes>\\*)\$(?:(?P<again>\$)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<command>\((?!\()))"
)
# Where a parenthesis is not the command's own: escaped, quoted, or in a comment.
_QUOTED = re.compile(
    r"""\\.|\$'(?:[^'\\]|\\.)*'|'[^']*'|`(?:[^`\\]|\\.)*`|(?<=[\s;&|(])\#[^\n]*""", re.S
)


def pieces(text: str) -> list[Piece]:
    """Take a text apart as a shell does between double quotes, of which only three forms count.

    They are ``$NAME``, ``${NAME}`` and ``$(command)``. A backslash before one of them makes it
    text, and two are one; everywhere else a backslash is a letter, as is all that is not one of
    the three: quotes, backticks, ``$1``, ``$$``, ``$((1 + 1))``, ``${NAME:-default}``.
    """
    found: list[Piece] = []
    letters = ""
    end = 0
    while match := _FORM.search(text, end):
        letters += text[end : match.start()]
        escapes = len(match["escapes"])
        form, after = _form(text, match)
        if form is None:
            # An escaped dollar is not the first of two.
            end = match.start("again") if match["again"] and escapes % 2 else match.end()
            letters += text[match.start() : end]
            continue
        letters += "\\" * (escapes // 2)
        if escapes % 2:
            # What follows the dollar is looked at on its own, as bash does.
            letters += "$"
            end = match.end("escapes") + 1
            continue
        found += [*_text(letters), form]
        letters, end = "", after
    return [*found, *_text(letters + text[end:])]


def _text(letters: str) -> Iterator[Piece]:
    if letters:
        yield Piece(TEXT, letters)


def _form(text: str, match: re.Match[str]) -> tuple[Piece | None, int]:
    """Return what a dollar starts, and where that ends; None where it is just a dollar."""
    name = match["name"] or match["braced"]
    if name is not None:
        # $_ is not a variable of the user's: bash sets it to the last argument.
        return (Piece(VARIABLE, name) if name != "_" else None), match.end()
    if match["command"] is None:
        return None, match.end()
    end = _command_end(text, match.end())
    if end is None:
        return None, match.end()
    return Piece(COMMAND, text[match.end() : end]), end + 1


def _command_end(text: str, start: int) -> int | None:
    """Return where the parenthesis is that ends the command from ``start``; None for nowhere.

    Parentheses and quotes of here-documents and of ``case`` must come in pairs. No harm is done
    where they do not: `nemo_run._shell` quotes a command whatever is in it.
    """
    depth, at, in_quotes = 1, start, [False]
    while at < len(text):
        char = text[at]
        if char == '"':
            in_quotes[-1] = not in_quotes[-1]
        elif in_quotes[-1]:
            if char == "\\":
                at += 1
            elif text.startswith("$(", at):
                in_quotes.append(False)
                depth += 1
                at += 1
        elif quoted := _QUOTED.match(text, at):
            at = quoted.end()
            continue
        elif char in "'`":
            return None  # they do not end
        elif char == "(":
            in_quotes.append(False)
            depth += 1
        elif char == ")":
            in_quotes.pop()
            depth -= 1
            if not depth:
                return at
        at += 1
    return None


def is_filled_in(text: str) -> bool:
    """Tell whether there is anything in ``text`` that a shell would put a value for."""
    return isinstance(text, Expandable) and any(piece.kind != TEXT for piece in pieces(text))


def names_in(text: str) -> set[str]:
    """Return the variables that an expandable text names, in its commands, too."""
    if not isinstance(text, Expandable):
        return set()
    found: set[str] = set()
    for kind, content in pieces(text):
        if kind == VARIABLE:
            found.add(content)
        elif kind == COMMAND:
            found.update(_NAMED.findall(content))
    return found


_NAMED = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


def like(marked: str, text: str) -> str:
    """Return ``text`` with the mark of the one that it was made from."""
    return type(marked)(text) if isinstance(marked, (literal, Expandable)) else text


def same(one: str | None, other: str | None) -> bool:
    """Tell whether two values are alike in text and mark."""
    return one == other and type(one) is type(other)


# Marking, when a task is packaged.

FILLED_IN = "nemo_run/filled_in"
"""Key of ``Role.metadata``: arguments that are filled in though they are not among the role's."""

_BLANKS = re.compile(r"(-[^=\s]*)[ \t]+(.*)", re.S)
_ANOTHER_OPTION = re.compile(r"(?:^|[ \t])--?[A-Za-z]")
# What bash would fill in as well, and we do not.
_OTHER_FORMS = re.compile(
    r"\$\{(?:[#!][A-Za-z_]\w*|[A-Za-z_]\w*(?::?[-+=?]|%|#|/|\^|,|\[))[^}]*\}|\$\(\("
)


def expandable_arguments(args: Sequence[str]) -> list[str]:
    """Return arguments marked for a shell; one like ``--option value`` becomes two words.

    That is one that begins with ``-`` and has a blank before any ``=``. A `literal` stays.
    """
    words: list[str] = []
    for arg in args:
        if not isinstance(arg, str) or isinstance(arg, literal):
            words.append(arg)
            continue
        _warn_of_other_forms("An argument", arg)
        option = _BLANKS.fullmatch(arg)
        if option is None:
            words.append(Expandable(arg))
            continue
        if _ANOTHER_OPTION.search(option[2]):
            log.warning(
                "An item of args is taken for option %s with one value, and that value has another "
                "option in it. Write every option as an item of its own, or use run.literal(...).",
                option[1],
            )
        words += [Expandable(word) for word in option.groups() if word]
    return words


def expandable_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables marked for a shell, but for secrets."""
    return {name: _expandable_value(name, value) for name, value in env.items()}


def _expandable_value(name: str, value: str) -> str:
    if not isinstance(value, str) or isinstance(value, literal):
        return value
    marked = Expandable(value)
    if not is_secret(name, value):
        _warn_of_other_forms(f"Variable {name}", value)
        return marked
    found = pieces(marked)
    if len(found) == 1 and found[0].kind != TEXT:
        log.warning(
            "Variable %s is taken for a secret, so its value is not filled in by the "
            "job's shell. Set it in setup_lines if it is to be.",
            name,
        )
    return literal(value)


def _warn_of_other_forms(what: str, text: str) -> None:
    other = _OTHER_FORMS.search(text)
    if other is not None:
        log.warning(
            "%s has %s in it, which arrives as text: only $NAME, ${NAME} and $(command) are filled "
            'in. Use $(echo "...") for the rest of the shell, or run.literal(...) for a text.',
            what,
            other[0],
        )


# Through files that know texts only.

_KINDS: dict[str, type[str]] = {"literal": literal, "expandable": Expandable}


def marks(args: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return which of these values are marked, as plain data; empty where none is."""
    found = {
        kind: {
            "args": [n for n, arg in enumerate(args) if type(arg) is cls],
            "env": [name for name, value in env.items() if type(value) is cls],
        }
        for kind, cls in _KINDS.items()
    }
    return {kind: of for kind, of in found.items() if of["args"] or of["env"]}


def with_marks(
    marked: Mapping[str, Any], args: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the values with the marks that they had; see `marks`."""
    words, variables = list(args), dict(env)
    for kind, of in marked.items():
        cls = _KINDS[kind]
        for position in of["args"]:
            words[position] = cls(words[position])
        for name in of["env"]:
            variables[name] = cls(variables[name])
    return words, variables
