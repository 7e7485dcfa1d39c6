"""Command-line words to values and configs.

An override is ``key=value`` or uses one of ``+= -= *= /= |= &=``; `parse_cli_args` applies
overrides to a function or config, `TypeParser` makes values from text by annotation, and
`parse_factory` makes them by calling factories. Everything raised is a `CLIException`.
"""

from __future__ import annotations

from typing import Any

from nemo_run.cli.values.conversion import TypeParser, parse_value, type_parser
from nemo_run.cli.values.errors import (
    ArgumentParsingError,
    ArgumentValueError,
    CLIException,
    CollectionParseError,
    DictParseError,
    ListParseError,
    LiteralParseError,
    OperationError,
    ParseError,
    TypeParsingError,
    UndefinedVariableError,
    UnknownTypeError,
    cli_exception_handler,
)
from nemo_run.cli.values.expressions import PythonicParser
from nemo_run.cli.values.grammar import Item, Operation, Override
from nemo_run.cli.values.overrides import parse_cli_args, parse_config, parse_partial
from nemo_run.cli.values.value_parser import parse_factory

__all__ = [
    "Operation",
    "PythonicParser",
    "TypeParser",
    "cli_exception_handler",
    "parse_attribute",
    "parse_cli_args",
    "parse_config",
    "parse_factory",
    "parse_partial",
    "parse_value",
    "type_parser",
    "ArgumentParsingError",
    "ArgumentValueError",
    "CLIException",
    "CollectionParseError",
    "DictParseError",
    "ListParseError",
    "LiteralParseError",
    "OperationError",
    "ParseError",
    "TypeParsingError",
    "UndefinedVariableError",
    "UnknownTypeError",
]


def parse_attribute(attr: str, nested: Any) -> Any:
    """Return what a path such as ``model.layers[0]`` leads to inside ``nested``.

    Raises:
        ArgumentValueError: it leads nowhere.
    """
    value = nested
    for step in Override(attr, Operation.ASSIGN, "").steps:
        try:
            value = value[step.key] if isinstance(step, Item) else getattr(value, step)
        except (AttributeError, LookupError, TypeError, ValueError) as err:
            name = step.key if isinstance(step, Item) else step
            raise ArgumentValueError(
                f"Invalid attribute {name!r} for {attr}", attr, {"nested": repr(nested)}
            ) from err
    return value
