"""Python expressions as values, evaluated by hand: nothing is compiled or imported.

What can be written is limited to literals, arithmetic, comparisons, conditions, comprehensions,
``lambda`` and calls of a few builtins. There are no attributes, and the work is bounded, so that
no text can reach further or run on.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

from nemo_run.cli.values import literals
from nemo_run.cli.values.errors import ArgumentValueError, summary
from nemo_run.cli.values.grammar import Operation, parse_override
from nemo_run.cli.values.operations import apply_operation
from nemo_run.exceptions import ConfigError

MAX_STEPS = 100_000
MAX_BITS = 65_536

_CONSTRUCTORS: Mapping[str, type[Any]] = {"dict": dict, "list": list, "tuple": tuple, "set": set}
_BUILTINS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(abs, all, any, bool, dict, enumerate, float, int, len, list, max, min, range, round),
        *(set, sorted, str, sum, tuple, zip),
    )
}
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}


class PythonicParser:
    """Reads overrides and Python-like values."""

    def parse(self, arg: str) -> dict[str, tuple[Operation, str]]:
        """Return ``{key: (operation, text of the value)}`` for one override.

        Raises:
            ArgumentParsingError: ``arg`` is of another form.
        """
        override = parse_override(arg)
        return {override.key: (override.operation, override.value)}

    def parse_value(self, value: str) -> Any:
        """Return the value of a literal, constructor, comprehension, lambda or condition.

        Any other text is returned as it is.

        Raises:
            ArgumentValueError: it is one of these, but cannot be evaluated.
        """
        try:
            return literals.read(value)
        except literals.NotALiteralError:
            pass
        tree = _parsed(value)
        if tree is None or not _is_value(tree):
            return value
        try:
            return (
                self._constructed(tree) if _is_constructor(tree) else _Evaluator().value(tree, {})
            )
        except _EVALUATION_ERRORS as err:
            raise ArgumentValueError(f"Error parsing {value!r}: {summary(err)}", value) from err

    def apply_operation(self, op: Operation, old: Any, new: Any) -> Any:
        """Return ``old op new``; neither of them is changed.

        Raises:
            OperationError: the two do not go together.
        """
        return apply_operation(op, old, new)

    def _constructed(self, call: Any) -> Any:
        """Return ``list(1, 2)`` as ``[1, 2]``, and words in it as texts."""
        if any(keyword.arg is None for keyword in call.keywords):
            raise _RefusedError("** is not allowed")
        args = [self.parse_value(ast.unparse(arg)) for arg in call.args]
        named = {k.arg: self.parse_value(ast.unparse(k.value)) for k in call.keywords}
        cls = _CONSTRUCTORS[call.func.id]
        if cls is dict or (len(args) == 1 and isinstance(args[0], (list, tuple, set, dict, range))):
            return cls(*args, **named)
        return cls(args, **named)


class _RefusedError(ConfigError):
    """An expression is not of the kind that is evaluated, or asks for too much."""


_EVALUATION_ERRORS = (
    ArithmeticError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


def _parsed(text: str) -> ast.expr | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _is_constructor(tree: ast.expr) -> bool:
    return (
        isinstance(tree, ast.Call)
        and isinstance(tree.func, ast.Name)
        and tree.func.id in _CONSTRUCTORS
    )


def _is_value(tree: ast.expr) -> bool:
    kinds = (ast.ListComp, ast.SetComp, ast.DictComp, ast.Lambda, ast.IfExp)
    return isinstance(tree, kinds) or _is_constructor(tree)


class _Evaluator:
    """Evaluates one expression within a budget of steps."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def value(self, node: ast.AST | None, names: Mapping[str, Any]) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _RefusedError("it takes too long")
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise _RefusedError(f"Unsafe operations detected: {type(node).__name__}")
        return method(node, names)

    def _Constant(self, node: ast.Constant, names: Mapping[str, Any]) -> Any:
        return node.value

    def _Name(self, node: ast.Name, names: Mapping[str, Any]) -> Any:
        if node.id in names:
            return names[node.id]
        if node.id in _BUILTINS:
            return _BUILTINS[node.id]
        raise _RefusedError(f"name {node.id!r} is not defined")

    def _List(self, node: ast.List, names: Mapping[str, Any]) -> list[Any]:
        return [self.value(item, names) for item in node.elts]

    def _Tuple(self, node: ast.Tuple, names: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(self.value(item, names) for item in node.elts)

    def _Set(self, node: ast.Set, names: Mapping[str, Any]) -> set[Any]:
        return {self.value(item, names) for item in node.elts}

    def _Dict(self, node: ast.Dict, names: Mapping[str, Any]) -> dict[Any, Any]:
        pairs = zip(node.keys, node.values, strict=True)
        return {self.value(key, names): self.value(value, names) for key, value in pairs}

    def _UnaryOp(self, node: ast.UnaryOp, names: Mapping[str, Any]) -> Any:
        return _UNARY[type(node.op)](self.value(node.operand, names))

    def _BinOp(self, node: ast.BinOp, names: Mapping[str, Any]) -> Any:
        left, right = self.value(node.left, names), self.value(node.right, names)
        if isinstance(left, (str, bytes)) and isinstance(node.op, ast.Mod):
            raise _RefusedError("Unsafe operations detected: text formatting")
        _check_size(node.op, left, right)
        if type(node.op) not in _BINARY:
            raise _RefusedError(f"Unsafe operations detected: {type(node.op).__name__}")
        result = _BINARY[type(node.op)](left, right)
        self._charge(result)
        return result

    def _BoolOp(self, node: ast.BoolOp, names: Mapping[str, Any]) -> Any:
        decides = isinstance(node.op, ast.Or)
        value: Any = None
        for operand in node.values:
            value = self.value(operand, names)
            if bool(value) is decides:
                break
        return value

    def _Compare(self, node: ast.Compare, names: Mapping[str, Any]) -> Any:
        left = self.value(node.left, names)
        for op, operand in zip(node.ops, node.comparators, strict=True):
            right = self.value(operand, names)
            if not _COMPARISONS[type(op)](left, right):
                return False
            left = right
        return True

    def _IfExp(self, node: ast.IfExp, names: Mapping[str, Any]) -> Any:
        return self.value(node.body if self.value(node.test, names) else node.orelse, names)

    def _Subscript(self, node: ast.Subscript, names: Mapping[str, Any]) -> Any:
        return self.value(node.value, names)[self.value(node.slice, names)]

    def _Slice(self, node: ast.Slice, names: Mapping[str, Any]) -> slice:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else self.value(part, names) for part in parts))

    def _Call(self, node: ast.Call, names: Mapping[str, Any]) -> Any:
        function = self.value(node.func, names)
        if not any(function is builtin for builtin in _BUILTINS.values()):
            raise _RefusedError("Unsafe operations detected: a call of something else")
        if any(keyword.arg is None for keyword in node.keywords):
            raise _RefusedError("** is not allowed")
        args = [self.value(arg, names) for arg in node.args]
        kwargs = {str(k.arg): self.value(k.value, names) for k in node.keywords}
        if any(map(callable, (*args, *kwargs.values()))):
            raise _RefusedError("Unsafe operations detected: a function as an argument")
        for arg in args:
            self._charge(arg)
        result = function(*args, **kwargs)
        self._charge(result)
        return result

    def _charge(self, value: Any) -> None:
        """Count the elements of ``value`` as steps, since a builtin goes through all of them."""
        if isinstance(value, Sized):
            self._left -= len(value)
        if self._left < 0:
            raise _RefusedError("it takes too long")

    def _Lambda(self, node: ast.Lambda, names: Mapping[str, Any]) -> _Function:
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
            raise _RefusedError("a lambda takes plain parameters only")
        _check_nodes(node.body)
        parameters = [argument.arg for argument in arguments.args]
        defaults = [self.value(default, names) for default in arguments.defaults]
        start = len(parameters) - len(defaults)
        return _Function(
            node.body, parameters, dict(zip(parameters[start:], defaults, strict=True)), names
        )

    def _ListComp(self, node: ast.ListComp, names: Mapping[str, Any]) -> list[Any]:
        return [self.value(node.elt, scope) for scope in self._scopes(node.generators, names)]

    def _SetComp(self, node: ast.SetComp, names: Mapping[str, Any]) -> set[Any]:
        return {self.value(node.elt, scope) for scope in self._scopes(node.generators, names)}

    def _GeneratorExp(self, node: ast.GeneratorExp, names: Mapping[str, Any]) -> list[Any]:
        return [self.value(node.elt, scope) for scope in self._scopes(node.generators, names)]

    def _DictComp(self, node: ast.DictComp, names: Mapping[str, Any]) -> dict[Any, Any]:
        return {
            self.value(node.key, scope): self.value(node.value, scope)
            for scope in self._scopes(node.generators, names)
        }

    def _scopes(
        self, generators: list[ast.comprehension], names: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        if not generators:
            yield names
            return
        first, *rest = generators
        for item in self.value(first.iter, names):
            scope = {**names, **_bound(first.target, item)}
            self._left -= 1
            if all(self.value(condition, scope) for condition in first.ifs):
                yield from self._scopes(rest, scope)


class _Function:
    """A lambda: evaluated anew, within a budget of its own, each time it is called."""

    def __init__(
        self,
        body: ast.expr,
        parameters: list[str],
        defaults: Mapping[str, Any],
        names: Mapping[str, Any],
    ) -> None:
        self._body = body
        self._parameters = parameters
        self._defaults = defaults
        self._names = names

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) > len(self._parameters) or not set(kwargs) <= set(self._parameters):
            raise TypeError(f"this lambda takes {', '.join(self._parameters) or 'no arguments'}")
        given = {**self._defaults, **dict(zip(self._parameters, args, strict=False)), **kwargs}
        missing = [name for name in self._parameters if name not in given]
        if missing:
            raise TypeError(f"this lambda misses {', '.join(missing)}")
        try:
            return _Evaluator().value(self._body, {**self._names, **given})
        except _RefusedError as err:
            raise ValueError(str(err)) from err


def _bound(target: ast.expr, item: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name):
        return {target.id: item}
    if not isinstance(target, (ast.Tuple, ast.List)):
        raise _RefusedError("a comprehension can only assign names")
    items = list(item)
    if len(items) != len(target.elts):
        raise ValueError(f"{len(items)} values for {len(target.elts)} names")
    return {
        name: value
        for part, value_of_part in zip(target.elts, items, strict=True)
        for name, value in _bound(part, value_of_part).items()
    }


def _check_nodes(tree: ast.AST) -> None:
    """Refuse at once what would only be refused when a lambda is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and node.func.id in _BUILTINS
        ):
            raise _RefusedError("Unsafe operations detected: a call of something else")
        if isinstance(node, ast.expr) and not hasattr(_Evaluator, f"_{type(node).__name__}"):
            raise _RefusedError(f"Unsafe operations detected: {type(node).__name__}")


def _check_size(op: ast.operator, left: Any, right: Any) -> None:
    """Refuse products and powers that would fill the memory."""
    if isinstance(op, ast.Mult):
        for sequence, times in ((left, right), (right, left)):
            if isinstance(sequence, Sized) and isinstance(times, int):
                size = len(sequence) * times
                if size > MAX_STEPS:
                    raise _RefusedError(f"{size} elements are too many")
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() + right.bit_length()
        if isinstance(op, ast.Pow):
            bits = left.bit_length() * abs(right)
        if bits > MAX_BITS:
            raise _RefusedError("the number is too large")
