"""What goes wrong while command-line words become configs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from nemo_run.cli.values.hints import type_name
from nemo_run.exceptions import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


class CLIException(ConfigError):
    """A word of the command line could not be used.

    Attributes:
        message: what is wrong, in a sentence.
        arg: the word as the user wrote it.
        context: further values that say where it went wrong.
    """

    def __init__(self, message: str, arg: str = "", context: Mapping[str, Any] | None = None):
        super().__init__(message, arg, context)
        self.message = message
        self.arg = arg
        self.context = dict(context or {})

    def __str__(self) -> str:
        context = " ".join(str(self.context).split())
        return f"{self.message} (Argument: {self.arg}, Context: {context})"

    def user_friendly_message(self) -> str:
        """Return one line that names the word and says what is wrong with it."""
        return f"Error processing argument {self.arg!r}: {self.message}"


class ArgumentParsingError(CLIException):
    """A word is not of the form ``key=value``, or stands where it may not."""


class TypeParsingError(CLIException):
    """A type could not be made sense of."""


class OperationError(CLIException):
    """An operator such as ``+=`` does not work on these two values."""


class ArgumentValueError(CLIException):
    """There is no such parameter or element, or its value cannot be made."""


class UndefinedVariableError(CLIException):
    """An operator was used on a parameter that has neither a value nor a default."""


class ParseError(CLIException):
    """A text does not fit the annotation of the parameter it is for.

    Attributes:
        value: the text.
        expected_type: the annotation.
        reason: why it does not fit.
    """

    def __init__(self, value: str, expected_type: Any, reason: str):
        super().__init__(
            f"Failed to parse {value!r} as {type_name(expected_type)}: {reason}",
            value,
            {"expected_type": type_name(expected_type)},
        )
        self.args = (value, expected_type, reason)
        self.value = value
        self.expected_type = expected_type
        self.reason = reason


class LiteralParseError(ParseError):
    """A text is none of the values a ``Literal`` allows."""


class CollectionParseError(ParseError):
    """A text is not a collection of the right kind."""


class ListParseError(CollectionParseError):
    """A text is not a list of the right kind."""


class DictParseError(CollectionParseError):
    """A text is not a dict of the right kind."""


class UnknownTypeError(ParseError):
    """Nothing is known about how to make a value of this type from text."""


def cli_exception_handler(func: Callable[P, R]) -> Callable[P, R]:
    """Let a function raise nothing but `CLIException`; anything else becomes its cause."""

    @functools.wraps(func)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return func(*args, **kwargs)
        except CLIException:
            raise
        except Exception as err:
            raise CLIException(f"An unexpected error occurred: {summary(err)}") from err

    return guarded


def summary(err: BaseException) -> str:
    """Return an error on one line, with its class where that says more than the text."""
    text = " ".join(str(err).split())
    if isinstance(err, ConfigError):
        return text
    return f"{type(err).__name__}: {text}" if text else type(err).__name__
