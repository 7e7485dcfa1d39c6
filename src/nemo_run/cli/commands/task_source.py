"""The task a command starts from: what a factory makes, changed by a file and by words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from nemo_run._config.fiddle import fdl
from nemo_run.cli.registry import plugins
from nemo_run.cli.registry.factories import DEFAULT_NAME
from nemo_run.cli.registry.registrations import factories
from nemo_run.cli.values.config_files import load_config_from_path, plain, read_plain
from nemo_run.cli.values.edit import overrides_from
from nemo_run.cli.values.errors import ArgumentParsingError
from nemo_run.cli.values.grammar import Override, parse_file, parse_override
from nemo_run.cli.values.overrides import apply_overrides, read_words
from nemo_run.cli.values.parameter import own
from nemo_run.cli.values.references import resolved
from nemo_run.cli.values.value_parser import parse_factory
from nemo_run.config import Partial, get_type_namespace
from nemo_run.exceptions import ConfigError

# What an exported task says about itself; the command says it too.
_ABOUT_ITSELF = ("_target_", "_partial_")


@dataclass(frozen=True)
class TaskFile:
    """What a config file holds: arguments of the task, and how to run it.

    ``is_whole`` where it is a whole task, as one that was exported.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    factory: str | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    is_whole: bool = False
    name: str = ""

    @property
    def overrides(self) -> list[Override]:
        """The changes to a task that it describes."""
        return overrides_from(self.arguments, is_whole=self.is_whole, file=self.name)

    @classmethod
    def from_data(cls, data: Any, name: str) -> TaskFile:
        if not isinstance(data, Mapping):
            raise ConfigError(
                f"{name} holds {type(data).__name__}, and not the arguments of a task."
            )
        arguments = {str(key): value for key, value in data.items() if key not in _ABOUT_ITSELF}
        run = arguments.pop("run", {})
        if not isinstance(run, Mapping):
            arguments["run"], run = run, {}
        factory = arguments.pop("_factory_", None) or run.get("factory")
        run = {k: v for k, v in run.items() if k != "factory"}
        return cls(arguments, factory, run, is_whole="_target_" in data, name=name)


def read_task_file(path: str) -> TaskFile:
    """Read a file given by ``--yaml``; an @ in front does not matter.

    Raises:
        ConfigError: it cannot be read, or describes no task.
    """
    if parse_file(path) is not None:
        return TaskFile.from_data(plain(load_config_from_path(path)), path)
    return TaskFile.from_data(read_plain(Path(path)) or {}, path)


def start(
    fn: Callable[..., Any],
    words: Sequence[str],
    *,
    factory: str | None = None,
    default_factory: Callable[..., Any] | None = None,
    file: TaskFile | None = None,
    arguments: Mapping[str, Any] | None = None,
    positions: bool = False,
) -> Partial[Any]:
    """Return the task that a command line describes.

    Args:
        fn: the function of the command.
        words: overrides as typed, applied last.
        factory: a factory expression, or ``@file`` with a ``_factory_`` and overrides.
        default_factory: makes what to start from where nothing else says.
        file: applied before the words.
        arguments: set before anything else.
        positions: words without ``=`` give parameters by position.

    Raises:
        CLIException: the first word that does not fit, and why.
    """
    file = file or TaskFile()
    overrides: list[Override] = []
    if factory and parse_file(factory):
        from_factory = TaskFile.from_data(plain(load_config_from_path(factory)), factory)
        factory = from_factory.factory
        overrides += from_factory.overrides
    task = starting_point(fn, factory or file.factory, default_factory)
    for name, value in (arguments or {}).items():
        setattr(task, name, value)
    overrides += file.overrides
    said = read_words(task, words) if positions else [_override(word) for word in words]
    overrides += resolved(said, file.arguments)
    return cast("Partial[Any]", apply_overrides(task, overrides))


def _override(word: str) -> Override:
    if "=" not in word:
        raise ArgumentParsingError(
            f"Invalid overwrite format: {word!r} is not of the form key=value", word
        )
    return parse_override(word)


def starting_point(
    fn: Callable[..., Any], named: str | None, default: Callable[..., Any] | None = None
) -> Any:
    """Return what a named factory makes, else the default one of ``fn``, else an empty task.

    Raises:
        CLIException: there is no such factory, or it fails.
        ConfigError: it makes no task.
    """
    if named and not (named == DEFAULT_NAME and default is not None):
        made = parse_factory(fn, "", fn, named)
    else:
        plugins.load()
        usual = default or factories.find(get_type_namespace(fn), DEFAULT_NAME)
        made = own(usual()) if usual is not None else Partial(fn)
    if not isinstance(made, fdl.Buildable):
        what = named or "The default factory"
        raise ConfigError(f"{what} returned {made!r}, which is no task to start from.")
    # A recipe may well run another function; a config of something else is no task at all.
    if named and not isinstance(made, fdl.Partial) and not _is_same(made.__fn_or_cls__, fn):
        raise ConfigError(
            f"{named} makes a config of {_name(made.__fn_or_cls__)}, and {_name(fn)} is to be run. "
            f"Name a factory that returns a run.Partial of {_name(fn)}."
        )
    return made if isinstance(made, fdl.Partial) else fdl.cast(Partial, made)


def _is_same(target: Any, fn: Callable[..., Any]) -> bool:
    """Tell whether a config is of a function; a script may hold its own twice, as its main too."""
    return inspect.unwrap(target) is inspect.unwrap(fn) or _name(target) == _name(fn)


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", target))


def check_complete(task: fdl.Buildable[Any], prefix: str = "") -> None:
    """Refuse a task that cannot be called; ``prefix`` is how its arguments are named.

    Raises:
        ConfigError: it, or a config in it, lacks an argument; names all of them.
    """
    missing = [
        f"{path}{name}" for path, config in _configs(task, prefix) for name in _missing(config)
    ]
    if missing:
        raise ConfigError(
            f"{_name(task.__fn_or_cls__)} needs {', '.join(missing)}. "
            f"Give a value, such as {missing[0]}=VALUE."
        )


def _configs(value: Any, path: str) -> Iterator[tuple[str, fdl.Buildable[Any]]]:
    """Yield what is called when a task is built and run, with the way to it."""
    if isinstance(value, fdl.Buildable):
        # What is partial inside a task is called by the task, with the rest.
        if isinstance(value, fdl.Config) or not path:
            yield path, value
        for name, child in value.__arguments__.items():
            yield from _configs(child, f"{path}{name}.")
    elif isinstance(value, (list, tuple)):
        for index, child in enumerate(value):
            yield from _configs(child, f"{path[:-1]}[{index}].")
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _configs(child, f"{path}{key}.")


def _missing(config: fdl.Buildable[Any]) -> list[str]:
    known = config.__signature_info__.parameters
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for position, (name, parameter) in enumerate(known.items())
        if parameter.default is parameter.empty
        and parameter.kind not in variadic
        and name not in config.__arguments__
        and position not in config.__arguments__
    ]
