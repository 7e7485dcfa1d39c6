"""Functions that make configs, registered for the type, function or argument they are for."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from nemo_run._config.fiddle import fdl
from nemo_run.cli.registry import plugins
from nemo_run.cli.registry.registrations import factories
from nemo_run.cli.values.hints import UNANNOTATED, constituents, members, return_hint, type_name
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.config import get_type_namespace
from nemo_run.exceptions import ConfigError

DEFAULT_NAME = "default"
ROOT_FACTORY_NAMESPACE = "nemo_run.cli.factories"

F = TypeVar("F", bound=Callable[..., Any])


@runtime_checkable
class FactoryProtocol(Protocol):
    """A registered factory: ``wrapped`` is the function as it was written."""

    @property
    def wrapped(self) -> Callable[..., Any]: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


@dataclass
class FactoryRegistration:
    """Where a factory is registered."""

    namespace: str
    name: str


@overload
def factory(
    fn: F,
    target: Any = None,
    *,
    target_arg: str | None = None,
    is_target_default: bool = False,
    name: str | None = None,
    namespace: str | None = None,
) -> F: ...
@overload
def factory(
    fn: None = None,
    target: Any = None,
    *,
    target_arg: str | None = None,
    is_target_default: bool = False,
    name: str | None = None,
    namespace: str | None = None,
) -> Callable[[F], F]: ...
def factory(
    fn: Any = None,
    target: Any = None,
    *,
    target_arg: str | None = None,
    is_target_default: bool = False,
    name: str | None = None,
    namespace: str | None = None,
) -> Any:
    """Register a function that makes configs, so that a command line can name it.

    Args:
        fn: the function; without it, a decorator is returned.
        target: the type or function it makes configs for. Left out, it is ``T`` where the
            function returns ``Config[T]`` or ``Partial[T]``, or ``T`` itself where the function
            is autoconverted.
        target_arg: the parameter of ``target`` it is for.
        is_target_default: register it under the name ``default`` as well.
        name: what to call it; otherwise the function's own name.
        namespace: where to register it, in place of a target.

    Raises:
        ValueError: ``target_arg`` without ``target``, or the function returns no config.
        TypeError: there is no target, and the function does not say what it returns.
    """
    if fn is None:
        return functools.partial(
            factory,
            target=target,
            target_arg=target_arg,
            is_target_default=is_target_default,
            name=name,
            namespace=namespace,
        )
    if target_arg and target is None:
        raise ConfigError(f"target_arg={target_arg!r} needs the target that has this parameter.")
    namespace = namespace or _namespace(fn, target, target_arg)

    @functools.wraps(fn)
    def registered(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    registered.wrapped = fn  # type: ignore[attr-defined]  # see FactoryProtocol
    registered.__factory__ = True  # type: ignore[attr-defined]
    factories.add(namespace, name or str(getattr(fn, "__name__", DEFAULT_NAME)), registered)
    if is_target_default:
        factories.add(namespace, DEFAULT_NAME, registered)
    return registered


def _namespace(fn: Callable[..., Any], target: Any, target_arg: str | None) -> str:
    if target is None:
        return get_type_namespace(_made_by(fn))
    namespace = get_type_namespace(target)
    return f"{namespace}.{target_arg}" if target_arg else namespace


def _made_by(fn: Callable[..., Any]) -> Any:
    """Return what a factory makes configs of, from what it says it returns."""
    returned = return_hint(fn)
    named = getattr(fn, "__qualname__", repr(fn))
    if returned is UNANNOTATED:
        raise TypeError(
            f"Missing return type annotation for factory {named}, so it is not known "
            "what it is for. Annotate it with -> run.Config[...], or give a target."
        )
    kind = typing.get_origin(returned)
    if isinstance(kind, type) and issubclass(kind, fdl.Buildable):
        return typing.get_args(returned)[0]
    if getattr(fn, "__auto_config__", False):
        return returned
    raise ConfigError(
        f"Factory {named} returns {type_name(returned)}, which is no config. Return "
        "run.Config[...] or run.Partial[...], decorate it with run.autoconvert, or give a target."
    )


def is_factory(value: Any) -> bool:
    """Tell whether calling ``value`` is what it is there for: registered or autoconverted."""
    marks = ("__factory__", "__auto_config__")
    return callable(value) and any(getattr(value, mark, False) is True for mark in marks)


def resolve_factory(target: Any, name: str) -> Callable[..., Any]:
    """Return the factory called ``name`` for a type, for a member of a union, or in a namespace.

    Plug-ins and the workspace file are loaded first.

    Raises:
        ValueError: there is none.
    """
    plugins.load()
    spaces = _spaces(target)
    for space in spaces:
        found = factories.find(space, name)
        if found is not None:
            return found
    shown = target if isinstance(target, str) else type_name(target)
    known = [known for space in spaces for known in factories.names(space)]
    raise ConfigError(f"No factory {name!r} is registered for {shown}. {did_you_mean(name, known)}")


def list_factories(type_or_namespace: Any) -> list[Callable[..., Any]]:
    """Return the factories registered for a type, function or namespace, each once.

    Plug-ins and the workspace file are loaded first.
    """
    plugins.load()
    found = [
        registered
        for space in _spaces(type_or_namespace)
        for registered in factories.names(space).values()
    ]
    return list(dict.fromkeys(found))


def _spaces(target: Any) -> list[str]:
    if isinstance(target, str):
        return [target]
    return [get_type_namespace(member) for member in members(target)]


def extract_constituent_types(type_hint: Any) -> set[Any]:
    """Return every type that a hint is made of, such as ``list[int]``, ``list`` and ``int``."""
    return set(constituents(type_hint))


def find_registered(name: str, owner: Any, argument: str, hint: Any) -> Callable[..., Any] | None:
    """Return the factory that ``name`` means for an argument of ``owner``, or None.

    Those registered for ``owner`` come first, then for the argument, then for its type.
    """
    plugins.load()
    own = [get_type_namespace(owner)] if callable(owner) else []
    for space in (*own, *_argument_spaces(owner, argument, hint)):
        found = factories.find(space, name)
        if found is not None:
            return found
    return None


def find_for_argument(name: str, owner: Any, argument: str) -> Callable[..., Any] | None:
    """Return the factory of that name registered for just this argument, or None."""
    if not callable(owner):
        return None
    plugins.load()
    return factories.find(f"{get_type_namespace(owner)}.{argument}", name)


def names_for(owner: Any, argument: str, hint: Any) -> list[str]:
    """Return the names of the factories for an argument or its type."""
    spaces = _argument_spaces(owner, argument, hint)
    return [name for space in spaces for name in factories.names(space)]


def _argument_spaces(owner: Any, argument: str, hint: Any) -> list[str]:
    named = [f"{get_type_namespace(owner)}.{argument}"] if callable(owner) else []
    types = constituents(hint) if hint is not UNANNOTATED else []
    return [*named, *map(get_type_namespace, types)]
