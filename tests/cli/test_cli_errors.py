"""The errors of the command line: their classes, attributes and texts."""

from __future__ import annotations

import pytest
from tests.cli.parsing_targets import fit

import nemo_run as run
from nemo_run.cli import cli_parser
from nemo_run.cli.cli_parser import CLIException, ParseError, cli_exception_handler


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("ArgumentParsingError", "CLIException"),
        ("TypeParsingError", "CLIException"),
        ("OperationError", "CLIException"),
        ("ArgumentValueError", "CLIException"),
        ("UndefinedVariableError", "CLIException"),
        ("ParseError", "CLIException"),
        ("LiteralParseError", "ParseError"),
        ("CollectionParseError", "ParseError"),
        ("UnknownTypeError", "ParseError"),
        ("ListParseError", "CollectionParseError"),
        ("DictParseError", "CollectionParseError"),
    ],
)
def test_errors_form_a_tree(name: str, base: str) -> None:
    assert getattr(cli_parser, name).__base__ is getattr(cli_parser, base)


def test_an_error_says_what_where_and_with_which_values() -> None:
    error = CLIException("It is wrong", "a=1", {"k": 1})
    assert str(error) == "It is wrong (Argument: a=1, Context: {'k': 1})"
    assert (error.arg, error.context) == ("a=1", {"k": 1})
    assert error.user_friendly_message() == "Error processing argument 'a=1': It is wrong"


def test_a_parse_error_keeps_value_type_and_reason() -> None:
    error = ParseError("x", int, "because")
    assert (error.value, error.expected_type, error.reason) == ("x", int, "because")
    assert error.message == "Failed to parse 'x' as int: because"


def test_an_error_names_the_word_as_it_was_written() -> None:
    with pytest.raises(ParseError) as caught:
        run.cli.parse_partial(fit, "net=small(width=x)")
    assert caught.value.arg == "net=small(width=x)"
    assert caught.value.user_friendly_message() == (
        "Error processing argument 'net=small(width=x)': "
        "Failed to parse 'x' as int: Invalid integer literal"
    )


def test_other_errors_are_wrapped_with_their_cause() -> None:
    @cli_exception_handler
    def fails() -> None:
        raise KeyError("z")

    with pytest.raises(CLIException, match="An unexpected error occurred: KeyError: 'z'") as caught:
        fails()
    assert isinstance(caught.value.__cause__, KeyError)


def test_errors_of_the_command_line_and_results_pass_through() -> None:
    original = CLIException("mine")

    @cli_exception_handler
    def returns_or_fails(fail: bool) -> str:
        """Do one or the other."""
        if fail:
            raise original
        return "fine"

    assert returns_or_fails(False) == "fine"
    assert returns_or_fails.__doc__ == "Do one or the other."
    with pytest.raises(CLIException) as caught:
        returns_or_fails(True)
    assert caught.value is original


def test_what_the_user_got_wrong_can_be_caught_as_such() -> None:
    with pytest.raises(run.exceptions.ConfigError):
        run.cli.parse_partial(fit, "steps=x")
