"""What ``+=`` and the other operators of an override do."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

from nemo_run.cli.values.conversion import parse_value
from nemo_run.cli.values.errors import OperationError, ParseError
from nemo_run.cli.values.grammar import Operation

# More would be a slip of the finger, and could take all the memory there is.
MAX_LENGTH = 10_000_000

_FUNCTIONS: dict[Operation, Callable[[Any, Any], Any]] = {
    Operation.ADD: operator.iadd,
    Operation.SUBTRACT: operator.isub,
    Operation.MULTIPLY: operator.imul,
    Operation.DIVIDE: operator.itruediv,
    Operation.OR: operator.ior,
    Operation.AND: operator.iand,
}
_SEQUENCES = (str, bytes, list, tuple)


def apply_operation(op: Operation, old: Any, new: Any) -> Any:
    """Return ``old op new``; neither of them is changed.

    Raises:
        OperationError: the two do not go together.
    """
    if op is Operation.ASSIGN:
        return new
    try:
        if op is Operation.MULTIPLY:
            _check_length(old, new)
        return _FUNCTIONS[op](copy.copy(old), new)
    except (TypeError, ValueError, ArithmeticError, MemoryError) as err:
        raise OperationError(
            f"Operation {op.value!r} failed: {err}",
            f"{old} {op.value} {new}",
            {"old": old, "new": new},
        ) from err


def _check_length(old: Any, new: Any) -> None:
    for sequence, times in ((old, new), (new, old)):
        if isinstance(sequence, _SEQUENCES) and isinstance(times, int):
            length = len(sequence) * times
            if length > MAX_LENGTH:
                raise ValueError(f"the result would have {length} elements")


def read_operand(text: str, current: Any, op: Operation, interpret: Callable[[str], Any]) -> Any:
    """Return the right-hand side of an operator; a sequence is multiplied by a number."""
    if op is Operation.MULTIPLY and isinstance(current, _SEQUENCES):
        try:
            return parse_value(text, int)
        except ParseError:
            pass
    return interpret(text)
