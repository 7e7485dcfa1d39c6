"""Show what can be configured, and which factories there are to do it with."""

from __future__ import annotations

import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Union

from nemo_run._config.annotations import get_type_namespace, get_underlying_types, module_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_Factory = Callable[..., Any]


def help(
    entity: Any,
    with_docs: bool = True,
    console: Console | None = None,
    namespace: str | None = None,
) -> None:
    """Print the arguments of a callable with their types, defaults and factories.

    ``namespace`` is looked into for factories too.
    """
    from nemo_run.core.frontend.console.api import CONSOLE

    console = console or CONSOLE
    if not callable(entity):
        console.print(f"There is no help for {entity!r}: it cannot be called.", markup=False)
        return
    help_for_callable(entity, with_docs=with_docs, console=console, namespace=namespace)


def help_for_callable(
    entity: Callable[..., Any],
    with_docs: bool = True,
    console: Console | None = None,
    namespace: str | None = None,
) -> None:
    """Print the panels that `help` shows for a callable."""
    from nemo_run.core.execution.base import Executor
    from nemo_run.core.frontend.console.api import CONSOLE

    console = console or CONSOLE
    own = _factories(entity) + (_factories(namespace) if namespace else [])
    _print_factories(console, "Pre-loaded entrypoint factories, run with --factory", own, with_docs)
    try:
        parameters = inspect.signature(entity).parameters.values()
    except ValueError:  # some that are written in C
        console.print(f"{entity!r} does not say which arguments it takes.", markup=False)
        return
    hints = _hints(entity)
    rows = [
        (p.name, class_to_str(hints.get(p.name, p.annotation)), _default(p)) for p in parameters
    ]
    _print_table(console, "Arguments", rows)
    for parameter in parameters:
        hint = hints.get(parameter.name, parameter.annotation)
        help_for_type(hint, console, with_docs, arg_name=parameter.name, owner=entity)
    _print_factories(console, "Registered executors", _factories(Executor), with_docs)


def help_for_type(
    entity: Any,
    console: Console,
    with_docs: bool = True,
    arg_name: str | None = None,
    *,
    owner: Any = None,
) -> None:
    """Print the factories registered for any member of a type, or for ``owner``'s argument."""
    found: list[_Factory] = []
    if owner is not None and arg_name:
        found += _factories(f"{get_type_namespace(owner)}.{arg_name}")
    for member in sorted(get_underlying_types(entity), key=str):
        found += [factory for factory in _factories(member) if factory not in found]
    title = f"Factory for {arg_name}: {class_to_str(entity)}" if arg_name else class_to_str(entity)
    _print_factories(console, title, found, with_docs)


def class_to_str(hint: Any) -> str:
    """Return a type the way a person writes it: ``Optional[X]``, ``A | B``, ``module.Name``."""
    if hint is inspect.Parameter.empty:
        return "Any"
    if hint is type(None):
        return "None"
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return class_to_str(args[0])
    if origin in (Union, types.UnionType):
        members = [class_to_str(arg) for arg in args if arg is not type(None)]
        if len(members) == len(args):
            return " | ".join(members)
        return f"Optional[{' | '.join(members)}]"
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if origin is not None:
        return f"{class_to_str(origin)}[{', '.join(class_to_str(arg) for arg in args)}]"
    if not isinstance(hint, type):
        return "..." if hint is Ellipsis else str(hint).replace("typing.", "")
    if hint.__module__ == "builtins":
        return hint.__name__
    return f"{module_name(hint)}.{hint.__qualname__}"


def _hints(entity: Callable[..., Any]) -> dict[str, Any]:
    from nemo_run._config.fiddle import get_type_hints

    return dict(get_type_hints(entity, include_extras=True))


def _default(parameter: inspect.Parameter) -> str:
    return "" if parameter.default is parameter.empty else repr(parameter.default)


def _factories(type_or_namespace: Any) -> list[_Factory]:
    from nemo_run.cli.api import list_factories

    if type_or_namespace in (type(None), inspect.Parameter.empty):
        return []
    try:
        return list(list_factories(type_or_namespace))
    except AttributeError:  # an annotation without a name, such as a TypeVar
        return []


def _print_factories(
    console: Console, title: str, factories: list[_Factory], with_docs: bool
) -> None:
    rows = []
    for factory in factories:
        fn = inspect.unwrap(getattr(factory, "wrapped", factory))
        row = [getattr(factory, "__name__", ""), f"{module_name(fn)}.{fn.__qualname__}", _line(fn)]
        if with_docs:
            row.append(inspect.getdoc(fn) or "")
        rows.append(tuple(row))
    _print_table(console, title, rows)


def _line(fn: _Factory) -> str:
    """Return where a function is defined, as a link that an editor or terminal can follow."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return ""
    editor = os.environ.get("NEMO_EDITOR") or os.environ.get("TERM_PROGRAM") or ""
    scheme = {"vscode": "vscode://file/", "cursor": "cursor://file/"}.get(editor, "file://")
    place = f"{code.co_filename}:{code.co_firstlineno}"
    return f"[link={scheme}{place}]line {code.co_firstlineno}[/link]"


def _print_table(console: Console, title: str, rows: Sequence[tuple[str, ...]]) -> None:
    if not rows:
        return
    from rich.panel import Panel

    console.print(Panel(_table(rows), title=title, title_align="left", border_style="dim"))


def _table(rows: Sequence[tuple[str, ...]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from nemo_run.core.frontend.console.styles import TABLE_STYLES

    table = Table(**TABLE_STYLES)
    for row in rows:
        table.add_row(*(cell if cell.startswith("[link=") else escape(cell) for cell in row))
    return table


class _CallableModule(ModuleType):
    """``nemo_run.help`` is this module and the function in it, whichever was asked for first."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        help(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(help)

    def __reduce__(self) -> Any:
        return import_module, (self.__name__,)  # by name, as functions are


sys.modules[__name__].__class__ = _CallableModule
