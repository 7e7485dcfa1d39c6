"""Turn an argument vector into text a POSIX shell splits back into the same vector.

This is the only place that quotes. Everything is literal except the variables a caller names, and
what is marked as `Expandable`, where the shell fills in variables and commands without splitting
what comes of it. A `literal` is just that, whatever the caller names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence

from nemo_run._values import COMMAND, TEXT, VARIABLE, Expandable, Piece, literal, pieces
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
    return _line([_word(arg, expand, what=f"argument {n}") for n, arg in enumerate(argv)])


def _line(words: list[str]) -> str:
    if words and (words[0] in _RESERVED or words[0][0] in "-+" or "=" in words[0]):
        # Empty quotes change nothing but how it is read: not as a keyword or an assignment, nor,
        # for a text that follows ``sh -c``, as an option.
        words[0] = f"''{words[0]}"
    return " ".join(words)


def variables_in(text: str, expand: Collection[str] = ()) -> set[str]:
    """Return the variables in an argument that `render` would leave to the shell."""
    return {piece.content for piece in _parts(text, expand) if piece.kind == VARIABLE}


def render_in_two(
    argv: Sequence[str], later: Collection[str], expand: Collection[str] = ()
) -> tuple[str, list[str]]:
    """Quote ``argv`` for a shell that runs elsewhere, or later, than the one to fill values in.

    Only the variables in ``later`` are left to that shell. Everything else that `render` would
    leave to one becomes a parameter of it, ``$1`` and so on; returned are the text, and the
    parameters for the shell that fills them in.

    Raises:
        ConfigError: an argument contains a NUL character, or a name is not one of a variable.
    """
    check_names((*later, *expand))
    parameters: list[str] = []

    def placed(piece: Piece) -> str:
        if piece.kind == TEXT or piece.content in later:
            return _quoted(piece)
        parameters.append(Expandable(_written(piece)))
        return f'"${{{len(parameters)}}}"'

    words = []
    for position, arg in enumerate(argv):
        _check_no_nul(arg, f"argument {position}")
        words.append("".join(map(placed, _parts(arg, expand))) or "''")
    return _line(words), parameters


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
    _check_no_nul(text, what)
    return "".join(map(_quoted, _parts(text, expand))) or "''"


def _check_no_nul(text: str, what: str) -> None:
    if "\0" in text:
        # The text itself is not shown: the value of a variable may be a secret.
        raise ConfigError(
            f"A command could not be built: {what} contains a NUL character, which neither an "
            "argument nor a variable can hold. Remove it."
        )


def _parts(text: str, expand: Collection[str]) -> list[Piece]:
    """Return what is to be quoted and what is to be filled in, in order."""
    if isinstance(text, literal):
        return [Piece(TEXT, text)]
    if isinstance(text, Expandable):
        return pieces(text)
    parts, end = [], 0
    for match in _VARIABLE.finditer(text):
        name = match[1] or match[2]
        if name in expand:
            parts += [Piece(TEXT, text[end : match.start()]), Piece(VARIABLE, name)]
            end = match.end()
    return [*parts, Piece(TEXT, text[end:])]


def _quoted(piece: Piece) -> str:
    if piece.kind == VARIABLE:
        return f'"${{{piece.content}}}"'
    if piece.kind == COMMAND:
        # Quoted once more, so that whatever is in it ends neither the word nor the script. A
        # command that only reads a file means that file's text to bash, but not to eval.
        reads = "cat " if _READS.match(piece.content) else ""
        return f'"$(eval {shlex.quote(reads + piece.content)})"'
    return shlex.quote(piece.content) if piece.content else ""


_READS = re.compile(r"\s*<(?![<(])")


def _written(piece: Piece) -> str:
    """Return a variable or a command as it may be written by a user."""
    return f"${{{piece.content}}}" if piece.kind == VARIABLE else f"$({piece.content})"


def as_word(name: str) -> str:
    """Quote a name to be shown as a word of a command, after its options."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)
