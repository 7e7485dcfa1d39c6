"""Functions that return configs, and a look at what a config would do."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload, runtime_checkable

from nemo_run._config.annotations import module_name
from nemo_run._config.fiddle import (
    auto_config,
    auto_config_policy,
    fdl,
    get_signature,
    ordered_arguments,
)
from nemo_run.config import Config, Partial, Script

if TYPE_CHECKING:
    from nemo_run.core.execution.base import Executor

DEFAULT_NAME = "default"
ROOT_TASK_NAMESPACE = "nemo_run.task"
ROOT_TASK_FACTORY_NAMESPACE = "nemo_run.task_factory"
ROOT_TYPER_NAMESPACE = "nemo_run.typer"

T = TypeVar("T")
F = Callable[..., T]
ToBuildable = Callable[..., Any]


@runtime_checkable
class AutoConfigProtocol(Protocol):
    """A function made by `autoconvert`: ``wrapped`` is the function as it was written."""

    wrapped: Callable[..., Any]
    __auto_config__: bool

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


def __getattr__(name: str) -> Any:
    if name == "AUTOBUILD_CLASSES":
        from nemo_run.core.execution.base import Executor

        return (Executor,)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def default_autoconfig_buildable(
    fn: Callable[..., Any], cls: type[Any], *args: Any, **kwargs: Any
) -> Any:
    """Run ``fn`` with its calls turned into configs; cast the result, or its items, to ``cls``."""
    result = _rewritten(fn)(*args, **kwargs)
    if isinstance(result, list):
        return [_cast(cls, item) for item in result]
    return _cast(cls, result)


@overload
def autoconvert(
    fn: F[T],
    *,
    partial: Literal[False] = False,
    to_buildable_fn: ToBuildable = ...,
) -> Callable[..., Config[T]]: ...
@overload
def autoconvert(
    fn: F[T], *, partial: Literal[True], to_buildable_fn: ToBuildable = ...
) -> Callable[..., Partial[T]]: ...
@overload
def autoconvert(
    fn: F[Any], *, partial: bool, to_buildable_fn: ToBuildable = ...
) -> Callable[..., Any]: ...
@overload
def autoconvert(
    fn: None = None,
    *,
    partial: Literal[False] = False,
    to_buildable_fn: ToBuildable = ...,
) -> Callable[[F[T]], Callable[..., Config[T]]]: ...
@overload
def autoconvert(
    fn: None = None,
    *,
    partial: Literal[True],
    to_buildable_fn: ToBuildable = ...,
) -> Callable[[F[T]], Callable[..., Partial[T]]]: ...
def autoconvert(
    fn: F[Any] | None = None,
    *,
    partial: bool = False,
    to_buildable_fn: ToBuildable = default_autoconfig_buildable,
) -> Any:
    """Make a function that returns objects into one that returns their configs.

    Every call to a class or function in the body becomes a config, except calls to builtins, to
    `Config` and `Partial`, and to other converted functions. With ``partial`` the outermost one
    becomes a `Partial`. A returned list is converted item by item.

    Raises:
        UnsupportedLanguageConstructError: the body has control flow; names it and its line.
        TypeError: (when called) nothing in the result is a config.
    """
    if fn is None:
        return lambda fn: _autoconverted(fn, partial, to_buildable_fn)
    return _autoconverted(fn, partial, to_buildable_fn)


def _autoconverted(fn: F[Any], partial: bool, convert: ToBuildable) -> Any:
    kind: type[Any] = Partial if partial else Config

    @functools.wraps(fn)
    def converted(*args: Any, **kwargs: Any) -> Any:
        return convert(fn, kind, *args, **kwargs)

    if convert is default_autoconfig_buildable:
        _rewritten(fn)  # so that control flow is an error where the function is defined
    converted.wrapped = fn  # type: ignore[attr-defined]  # see AutoConfigProtocol
    converted.__auto_config__ = True  # type: ignore[attr-defined]
    return converted


def _cast(cls: type[Any], value: Any) -> Any:
    return fdl.cast(cls, value) if isinstance(value, fdl.Buildable) else value


@functools.cache
def _rewritten(fn: Callable[..., Any]) -> Callable[..., Any]:
    made = auto_config.auto_config(
        fn,
        experimental_exemption_policy=_runs_as_it_is,
        experimental_config_types=auto_config.ConfigTypes(config_cls=Config, partial_cls=Partial),
    )
    rewritten: Callable[..., Any] = made.as_buildable
    return rewritten


def _runs_as_it_is(fn_or_cls: Any) -> bool:
    if isinstance(fn_or_cls, type) and issubclass(fn_or_cls, fdl.Buildable):
        return True
    return getattr(fn_or_cls, "__auto_config__", False) or auto_config_policy.latest(fn_or_cls)


def dryrun_fn(
    configured_fn: Config[Any] | Partial[Any] | Script,
    executor: Executor | None = None,
    build: bool = False,
) -> None:
    """Print what a task would be called with, and where; with ``build``, build it too.

    Raises:
        TypeError: this is not a task.
    """
    show_task(configured_fn, executor, heading="Dry run for task")
    if build and not isinstance(configured_fn, Script):
        fdl.build(configured_fn)


def show_task(
    configured_fn: Config[Any] | Partial[Any] | Script,
    executor: Executor | None = None,
    *,
    heading: str,
) -> None:
    """Print what a task is called with, and where, below a heading; see `dryrun_fn`."""
    from rich.table import Table
    from rich.text import Text

    from nemo_run.core.frontend.console.api import CONSOLE, CustomConfigRepr

    table = Table(show_header=True, header_style="bold magenta")
    if isinstance(configured_fn, Script):
        title = configured_fn.get_name()
        table.add_column("Command")
        table.add_row(_command_text(configured_fn))
    elif isinstance(configured_fn, (fdl.Config, fdl.Partial)):
        target = configured_fn.__fn_or_cls__
        title = f"{module_name(target)}:{getattr(target, '__qualname__', target)}"
        table.add_column("Argument Name", style="dim")
        table.add_column("Resolved Value")
        for name, value in resolved_arguments(configured_fn).items():
            table.add_row(name, _cell(CustomConfigRepr(_shown(name, value))))
    else:
        raise TypeError(
            f"Need a run.Partial, run.Config or run.Script to look at, got {configured_fn!r}."
        )
    # Text is printed as it is; in markup a name such as :train: would become a picture.
    CONSOLE.print(Text(f"{heading} {title}:", style="bold cyan"))
    CONSOLE.print(table)
    if executor is not None:
        about = Table("Executor")
        about.add_row(_cell(executor))
        CONSOLE.print(about)


def resolved_arguments(configured_fn: fdl.Buildable[Any]) -> dict[str, Any]:
    """Return every argument by name: as set, else its default, else a note that says which."""
    values = {str(k): v for k, v in ordered_arguments(configured_fn).items()}
    parameters = get_signature(configured_fn.__fn_or_cls__).parameters
    resolved = {}
    for name in sorted({str(name) for name in dir(configured_fn)} | values.keys()):
        if name in values:
            resolved[name] = values[name]
            continue
        try:
            resolved[name] = getattr(configured_fn, name)
        except ValueError:
            resolved[name] = _Note("made by the default factory")
        except AttributeError:
            required = name in parameters and parameters[name].default is parameters[name].empty
            resolved[name] = _Note("required, not set" if required else "not set")
    return resolved


def _shown(name: str, value: Any) -> Any:
    """Return an argument without the secrets in it, at any depth of configs."""
    from nemo_run._secrets.masking import masked_value

    if isinstance(value, fdl.Buildable):
        value = copy.copy(value)
        for key, item in value.__arguments__.items():
            value.__arguments__[key] = _shown(f"{name}.{key}", item)
        return value
    if type(value) in (list, tuple) and any(isinstance(item, fdl.Buildable) for item in value):
        return type(value)(_shown(name, item) for item in value)
    if type(value) is dict and any(isinstance(item, fdl.Buildable) for item in value.values()):
        return {key: _shown(f"{name}.{key}", item) for key, item in value.items()}
    return masked_value(name, value)


class _Note:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"<{self._text}>"


def _cell(value: Any) -> Any:
    from rich.text import Text

    return Text(repr(value))


def _command_text(script: Script) -> Any:
    import shlex

    from rich.text import Text

    if script.inline:
        return Text(f"{script.entrypoint} <<inline>>\n{script.inline}")
    return Text(shlex.join(script.to_command(with_entrypoint=True)))
