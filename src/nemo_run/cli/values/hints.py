"""What the parameters of a callable are annotated with, names in strings looked up."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ForwardRef, Literal, Optional, Union

from nemo_run._config.fiddle import get_signature
from nemo_run.cli.values.literals import NONE_WORDS

UNANNOTATED = inspect.Parameter.empty

# Each unknown name in an annotation costs one more attempt.
_MAX_LOOKUPS = 32


def parameters(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of ``fn`` by name; none where it does not tell."""
    try:
        return get_signature(fn).parameters
    except (TypeError, ValueError):
        return {}


def hint_for(fn: Callable[..., Any], name: str) -> Any:
    """Return what parameter ``name`` of ``fn`` is annotated with, or `UNANNOTATED`.

    Names in strings are looked up in the module of the function, then among its imports under
    ``if TYPE_CHECKING``. An annotation that cannot be resolved comes back as a `ForwardRef`.
    A default of None allows None. Names that only ``**kwargs`` takes get its annotation.
    """
    known = parameters(fn)
    parameter = known.get(name)
    if parameter is None:
        extra = (p for p in known.values() if p.kind is p.VAR_KEYWORD)
        parameter = next(extra, None)
        return _keyword_hint(fn, parameter, name) if parameter else UNANNOTATED
    hint = resolve(fn, name, parameter.annotation)
    if parameter.default is None and hint is not UNANNOTATED and not allows_none(hint):
        return Optional[hint]  # noqa: UP045 - a hint may be of a kind without "|"
    return hint


def _keyword_hint(fn: Callable[..., Any], parameter: inspect.Parameter, name: str) -> Any:
    hint = resolve(fn, parameter.name, parameter.annotation)
    if hint is UNANNOTATED:
        return Any
    if getattr(typing.get_origin(hint), "__name__", "") == "Unpack":
        (fields,) = typing.get_args(hint)
        return typing.get_type_hints(fields, include_extras=True).get(name, Any)
    return hint


def return_hint(fn: Callable[..., Any]) -> Any:
    """Return what ``fn`` says it returns, or `UNANNOTATED`."""
    try:
        annotation = inspect.signature(fn).return_annotation
    except (TypeError, ValueError):
        return UNANNOTATED
    return resolve(fn, "return", annotation)


def resolve(fn: Callable[..., Any], name: str, annotation: Any) -> Any:
    """Return an annotation found at ``fn`` with the names in its strings looked up."""
    if annotation is UNANNOTATED:
        return annotation
    for module in _modules(fn, name):
        try:
            return _evaluate(annotation, module)
        except (NameError, AttributeError, TypeError, SyntaxError):
            continue
    return ForwardRef(annotation) if _is_expression(annotation) else annotation


def _is_expression(annotation: Any) -> bool:
    if not isinstance(annotation, str):
        return False
    try:
        ast.parse(annotation, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True


def _modules(fn: Callable[..., Any], name: str) -> Iterator[types.ModuleType]:
    """Yield the modules in which an annotation at ``fn`` may have been written, likely first."""
    owners: list[Any]
    target: Any = fn
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(target)
    if isinstance(target, type):
        bases = [base for base in target.__mro__ if name in inspect.get_annotations(base)]
        made_by = (inspect.getattr_static(target, name) for name in ("__init__", "__new__"))
        owners = [*bases, *made_by, target]
    elif hasattr(target, "__code__") or inspect.ismethod(target):
        owners = [target]
    else:
        owners = [inspect.getattr_static(type(target), "__call__", None), type(target)]
    for owner in owners:
        module = sys.modules.get(getattr(owner, "__module__", None) or "")
        space = getattr(owner, "__globals__", None)
        if space is not None and (module is None or vars(module) is not space):
            module = types.ModuleType(space.get("__name__", "?"))
            vars(module).update(space)
        if module is not None:
            yield module


def _evaluate(annotation: Any, module: types.ModuleType) -> Any:
    extra: dict[str, Any] = {}
    for _ in range(_MAX_LOOKUPS):
        try:
            return evaluate(annotation, vars(module), extra)
        except NameError as err:
            name = str(err.name)
            found = _type_checking_imports(module).get(name)
            if found is None or name in extra:
                raise
            extra[name] = _import(*found)
    raise NameError(f"{annotation!r} has too many names that are imported for type checking only")


def evaluate(annotation: Any, globalns: dict[str, Any], localns: dict[str, Any]) -> Any:
    """Return an annotation with its strings looked up in two namespaces.

    Raises:
        NameError, AttributeError, TypeError, SyntaxError: it has no meaning there.
    """
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, globalns, localns, include_extras=True)["it"]


@functools.lru_cache(maxsize=64)
def _type_checking_imports(module: types.ModuleType) -> Mapping[str, tuple[str, str]]:
    """Return the names a module imports for type checkers only: the module and name each means."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return {}
    names: dict[str, tuple[str, str]] = {}
    for block in ast.walk(tree):
        if not isinstance(block, ast.If) or "TYPE_CHECKING" not in ast.unparse(block.test):
            continue
        for statement in block.body:
            if isinstance(statement, ast.ImportFrom):
                source = "." * statement.level + (statement.module or "")
                package = getattr(module, "__package__", None)
                if statement.level and not package:
                    continue
                source = importlib.util.resolve_name(source, package)
                for alias in statement.names:
                    names[alias.asname or alias.name] = (source, alias.name)
            elif isinstance(statement, ast.Import):
                for alias in statement.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    names[bound] = (alias.name, "" if alias.asname else bound)
    return names


def _import(module: str, name: str) -> Any:
    try:
        found = importlib.import_module(module)
        if not name:
            return found
        if name == module.partition(".")[0]:
            return sys.modules[name]
        return getattr(found, name)
    except (ImportError, AttributeError) as err:
        raise NameError(f"{module} cannot be imported here", name=name) from err


def simplify(hint: Any) -> Any:
    """Return a hint without what says nothing about its values: notes, new names, variables."""
    while True:
        origin = typing.get_origin(hint)
        if origin is Annotated or _is_qualifier(origin):
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif isinstance(hint, typing.TypeVar):
            hint = hint.__bound__ or Any
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif hint is None:
            return type(None)
        else:
            return hint


def _is_qualifier(origin: Any) -> bool:
    return getattr(origin, "__name__", getattr(origin, "_name", None)) in {
        "Final",
        "ClassVar",
        "Required",
        "NotRequired",
        "ReadOnly",
    }


def members(hint: Any) -> list[Any]:
    """Return the members of a union in order, nested ones included; else the hint alone."""
    hint = simplify(hint)
    if typing.get_origin(hint) in (Union, types.UnionType):
        return [inner for arg in typing.get_args(hint) for inner in members(arg)]
    return [hint]


def allows_none(hint: Any) -> bool:
    """Tell whether None is among the values a hint allows."""
    return any(member in (type(None), Any, object) for member in members(hint))


def means_none(text: str, hint: Any) -> bool:
    """Tell whether a text stands for None: a word for it, where an annotation allows it."""
    return hint is not UNANNOTATED and text.strip().lower() in NONE_WORDS and allows_none(hint)


def constituents(hint: Any) -> list[Any]:
    """Return every type that a hint is made of, outermost first, without None and unions."""
    found: list[Any] = []
    for member in members(hint):
        origin = typing.get_origin(member)
        if member is type(None) or member is Ellipsis:
            continue
        found.append(member)
        if origin is Literal:
            continue
        if origin is not None:
            found.append(origin)
        for arg in typing.get_args(member):
            for inner in arg if isinstance(arg, list) else [arg]:
                found += constituents(inner)
    return list(dict.fromkeys(found)) if all(map(_is_hashable, found)) else found


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def type_name(hint: Any) -> str:
    """Return a hint the way it would be written, without module names."""
    if hint is UNANNOTATED:
        return "any type"
    if hint is None or hint is type(None):
        return "None"
    if hint is Ellipsis:
        return "..."
    if isinstance(hint, str):
        return hint
    if isinstance(hint, ForwardRef):
        return hint.__forward_arg__
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return type_name(args[0])
    if origin in (Union, types.UnionType):
        return " | ".join(type_name(arg) for arg in args)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if isinstance(hint, list):
        return f"[{', '.join(map(type_name, hint))}]"
    if origin is not None and args:
        return f"{type_name(origin)}[{', '.join(map(type_name, args))}]"
    if isinstance(hint, type):
        return hint.__qualname__
    return str(hint).replace("typing.", "").replace("typing_extensions.", "")
