"""Command-line words applied to functions and configs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast, overload

from nemo_run._config.fiddle import fdl
from nemo_run.cli.values.edit import edit
from nemo_run.cli.values.errors import ArgumentParsingError, CLIException, cli_exception_handler
from nemo_run.cli.values.grammar import Operation, Override, parse_override
from nemo_run.cli.values.hints import parameters
from nemo_run.config import Config, Partial
from nemo_run.exceptions import ConfigError

T = TypeVar("T")
BuildableT = TypeVar("BuildableT", bound="fdl.Buildable[Any] | list[Any] | tuple[Any, ...]")

# What a config says about itself at its root has been used when there is something to change.
_ABOUT_ITSELF = frozenset({"_target_", "_partial_"})


@overload
def parse_cli_args(fn: BuildableT, args: Sequence[str], output_type: Any = ...) -> BuildableT: ...
@overload
def parse_cli_args(
    fn: Callable[..., T], args: Sequence[str], output_type: type[Config[Any]]
) -> Config[T]: ...
@overload
def parse_cli_args(
    fn: Callable[..., T], args: Sequence[str], output_type: type[Partial[Any]] = ...
) -> Partial[T]: ...
@overload
def parse_cli_args(fn: Any, args: Sequence[str], output_type: Any = ...) -> Any: ...
@cli_exception_handler
def parse_cli_args(fn: Any, args: Sequence[str], output_type: Any = Partial) -> Any:
    """Apply command-line words to a function or config.

    Words without ``=`` give parameters by position, as long as they come first. Overrides of
    whole parameters are applied before those inside them, otherwise in the order they come, each
    as often as it is there.

    Args:
        fn: a callable, of which a new config is made; or a config, or a list or tuple of them,
            which is changed and returned.
        args: the words, such as ``model.width=5``, ``tags+=['x']`` or ``[0].size=3``.
        output_type: `Config` or `Partial`; or a config to change in place of a new one.

    Raises:
        CLIException: the first word that cannot be used, and why.
    """
    root = _root(fn, output_type)
    return apply_overrides(root, read_words(root, args))


def parse_partial(fn: Callable[..., T], *args: str) -> Partial[T]:
    """Return a `Partial` of ``fn`` with overrides applied; see `parse_cli_args`."""
    return cast("Partial[T]", parse_cli_args(fn, args, Partial))


def parse_config(fn: Callable[..., T], *args: str) -> Config[T]:
    """Return a `Config` of ``fn`` with overrides applied; see `parse_cli_args`."""
    return cast("Config[T]", parse_cli_args(fn, args, Config))


def apply_overrides(root: Any, overrides: Iterable[Override]) -> Any:
    """Change ``root`` as ``overrides`` say and return it; a tuple comes back as a new one.

    Raises:
        CLIException: the first one that cannot be applied, and why.
    """
    # Stable, so that the words about one parameter keep their order.
    for override in sorted(overrides, key=lambda override: "." in override.key):
        if override.key in _ABOUT_ITSELF:
            continue
        try:
            root = edit(root, override)
        except CLIException as err:
            err.arg = str(override)
            err.context = {**err.context, "key": override.key}
            raise
        except ConfigError as err:
            raise CLIException(str(err), str(override), {"key": override.key}) from err
    return root


def _root(fn: Any, output_type: Any) -> Any:
    if isinstance(fn, (fdl.Buildable, list, tuple)):
        return fn
    if isinstance(output_type, fdl.Buildable):
        return output_type
    if not (isinstance(output_type, type) and issubclass(output_type, fdl.Buildable)):
        raise CLIException(f"output_type must be Config or Partial, not {output_type!r}")
    return output_type(fn)


def _positional_names(root: Any) -> list[str]:
    if not isinstance(root, fdl.Buildable):
        return []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    known = parameters(root.__fn_or_cls__)
    return [name for name, parameter in known.items() if parameter.kind not in variadic]


def read_words(root: Any, words: Iterable[str]) -> list[Override]:
    """Return the changes to ``root`` that words describe, the first ones by position.

    Raises:
        ArgumentParsingError: a word gives no parameter.
    """
    names = _positional_names(root)
    overrides: list[Override] = []
    positional = 0
    for position, word in enumerate(words):
        if "=" in word:
            overrides.append(parse_override(word))
        elif positional < position:
            raise ArgumentParsingError(
                f"Positional argument found after keyword argument: {word!r}. "
                "Write it as name=value, or move it to the front",
                word,
                {"position": position},
            )
        elif positional >= len(names):
            raise ArgumentParsingError(
                f"Too many positional arguments: {word!r} is number {positional + 1}, "
                f"and there are {len(names)} parameters",
                word,
                {"max_positional": len(names)},
            )
        else:
            overrides.append(Override(names[positional], Operation.ASSIGN, word))
            positional += 1
    return overrides
