"""Tasks whose code need not be importable where they are configured."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nemo_run import _later
from nemo_run._config.fiddle import building, daglish, fdl, fiddle_json
from nemo_run.cli.commands.task_source import starting_point
from nemo_run.cli.lazy.changes import (
    Changes,
    Recorder,
    as_override,
    from_config,
    from_word,
    record,
)
from nemo_run.cli.lazy.dotlist import Change, dictconfig_to_dot_list
from nemo_run.cli.lazy.imports import LazyModule, lazy_imports
from nemo_run.cli.lazy.scripts import main_function
from nemo_run.cli.values.config_files import load_config_from_path
from nemo_run.cli.values.hints import parameters
from nemo_run.cli.values.importing import locate
from nemo_run.cli.values.overrides import apply_overrides
from nemo_run.cli.values.parameter import own
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.config import Partial, get_type_namespace
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from typing_extensions import Self

__all__ = [
    "LazyEntrypoint",
    "LazyModule",
    "LazyTarget",
    "dictconfig_to_dot_list",
    "import_module",
    "lazy_imports",
    "load_config_from_path",
]

# How the command line is called; the rest of the words then name a command of it.
_PROGRAMS = frozenset({"nemo", "nemorun", "nemo_run"})
_INTERPRETERS = frozenset({"python", "python3"})
_OWN = frozenset({"_target_", "_factory_", "_args_"})


def import_module(qualname_str: str) -> Any:
    """Import a module or something in one by its dotted name.

    Raises:
        ModuleNotFoundError: there is no such package.
        AttributeError: the module has nothing of that name.
    """
    return locate(qualname_str)


@dataclass
class LazyTarget:
    """What a lazy entrypoint calls, found when it is needed.

    Attributes:
        import_path: a dotted name, a command such as ``group fit``, or the name of a script.
        script: the text of the script.
    """

    import_path: str
    script: str = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target(*args, **kwargs)

    @property
    def target(self) -> Callable[..., Any]:
        """The function itself.

        Raises:
            ConfigError: there is no such command, or the script has no entrypoint.
            ModuleNotFoundError, AttributeError: there is nothing of that dotted name.
        """
        with self.in_place() as target:
            return target

    @contextlib.contextmanager
    def in_place(self) -> Iterator[Callable[..., Any]]:
        """Give the function, and let names mean what they do where it is defined; see `target`."""
        if self.script:
            with main_function(self.script, self.import_path) as target:
                yield target
        elif " " in self.import_path:
            yield _command(self.import_path.split())
        else:
            yield cast("Callable[..., Any]", locate(self.import_path))


def _command(words: Sequence[str]) -> Callable[..., Any]:
    from nemo_run.cli.commands.application import command_names
    from nemo_run.cli.registry.entrypoints import Entrypoint, list_entrypoints

    if words[0] in _PROGRAMS:
        words = words[1:]
    branch: Any = list_entrypoints()
    for position, word in enumerate(words):
        # By the name that is typed, or by that of the function.
        known = {**branch, **command_names(branch)} if isinstance(branch, dict) else {}
        found = known.get(word)
        if found is None:
            raise ConfigError(
                f"There is no command {' '.join(words[: position + 1])!r}. "
                f"{did_you_mean(word, known)}"
            )
        branch = found
    if not isinstance(branch, Entrypoint):
        raise ConfigError(
            f"{' '.join(words)!r} is a group of commands: {', '.join(sorted(branch))}."
        )
    return branch.fn


def _lazy(_target_: Any, _factory_: Any = None, _args_: Any = ()) -> None:
    """What Fiddle takes a lazy entrypoint for; never called."""


class LazyEntrypoint(fdl.Buildable[Any]):
    """A task that is put together where it runs.

    Assigning attributes records overrides, however deep, and so do ``+=`` and the like:
    ``task.model.width = 8``, ``task.steps *= 2``. `resolve` imports the target and applies them.

    Args:
        target: a function; its dotted name; an attribute of a lazy module; a ``.py`` script with
            words for it; or a command line such as ``nemo group fit steps=3``. Words with ``=``
            become overrides.
        factory: makes the task to start from: a function, or a factory expression.
        yaml: overrides from a file, a YAML text or an OmegaConf config.
        overwrites: overrides as they would be written on a command line.

    Raises:
        ConfigError: an override or the command line is not of the right form.
        FileNotFoundError: there is no such script.
    """

    def __init__(
        self,
        target: Callable[..., Any] | str,
        factory: Callable[..., Any] | str | None = None,
        yaml: str | DictConfig | Path | None = None,
        overwrites: list[str] | None = None,
    ):
        words: list[str] = []
        named: Callable[..., Any] | str = target
        if isinstance(target, LazyModule):
            named = LazyTarget(target.name)
        elif isinstance(target, str):
            named, words = _from_command_line(target)
        command = _Command.parse(words)
        changes, file_factory = from_config(yaml if yaml is not None else command.yaml)
        for word in (*command.overrides, *(overwrites or ())):
            changes += from_word(word)
        super().__init__(
            _lazy,
            _target_=named,
            _factory_=factory or command.factory or file_factory,
            _args_=Changes(changes),
        )

    @property
    def is_lazy(self) -> bool:
        """True: this is to be resolved before anything else is done with it."""
        return True

    def resolve(self, ctx: Any = None) -> Partial[Any]:
        """Import the target and return the task with all overrides applied.

        Args:
            ctx: the run context, for functions with a parameter of that name.

        Raises:
            ValueError: the function has a parameter ``ctx``, and none was given.
            CLIException: an override does not fit.
        """
        if isinstance(self._target_, LazyTarget):
            with self._target_.in_place() as target:
                return self._resolved(target, ctx)
        return self._resolved(self._target_, ctx)

    def _resolved(self, target: Callable[..., Any], ctx: Any) -> Partial[Any]:
        task = _started(target, self._factory_)
        if "ctx" in parameters(target):
            if ctx is None:
                raise ConfigError(
                    f"ctx is required for {getattr(target, '__qualname__', target)}, which has a "
                    "parameter of that name. Resolve it with resolve(ctx=...)."
                )
            task.ctx = ctx
        return cast("Partial[Any]", apply_overrides(task, map(as_override, self._recorded())))

    def _own_name(self) -> str:
        """Return what a job of this is called by default: its target, as far as that is known."""
        target = self._target_
        if not isinstance(target, LazyTarget):
            return get_type_namespace(target)
        if target.script:
            return Path(target.import_path).stem
        words = target.import_path.split()
        return ".".join(words[1:] if words[0] in _PROGRAMS and words[1:] else words)

    def _resolved_here(self) -> Partial[Any] | None:
        """Return the task as `resolve` does, or None if its code is not here, or is a script."""
        target = self._target_
        if isinstance(target, LazyTarget):
            if target.script:
                return None
            try:
                target = target.target
            except (ImportError, AttributeError, ConfigError):
                return None
        return None if "ctx" in parameters(target) else self.resolve()

    def clone(self) -> Self:
        """Return an independent copy."""
        return type(self).__unflatten__(*self.__flatten__())

    def _recorded(self) -> list[Change]:
        # Earlier releases kept the file's _factory_ among the changes as well.
        return [change for change in self._args_ if change[0] != "_factory_"]

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:
            return self.__arguments__[name]
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return Recorder(self._args_, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            self.__arguments__[name] = Changes(value) if name == "_args_" else value
        else:
            record(self._args_, name, value)

    def __dir__(self) -> list[str]:
        return sorted((*_OWN, "clone", "is_lazy", "resolve"))

    def __build__(self, *args: Any, **kwargs: Any) -> Any:
        # The guard of fdl.build is up by now, so its other half is called directly.
        return daglish.MemoizedTraversal.run(_build, self.resolve())

    @classmethod
    def __unflatten__(cls, values: Any, metadata: Any) -> Self:
        target, factory, changes = values
        made = cls.__new__(cls)
        fdl.Buildable.__init__(
            made, _lazy, _target_=target, _factory_=factory, _args_=Changes(changes)
        )
        return made


def _build(value: Any, state: daglish.State) -> Any:
    if not isinstance(value, fdl.Buildable):
        return state.map_children(value)
    inside = state.flattened_map_children(value)
    arguments = inside.metadata.arguments(inside.values)
    return building.call_buildable(value, arguments, current_path=state.current_path)


def _started(target: Callable[..., Any], factory: Any) -> Any:
    if isinstance(factory, LazyModule):
        factory = locate(factory.name)
    if factory is None or isinstance(factory, str):
        default = getattr(getattr(target, "cli_entrypoint", None), "default_factory", None)
        return starting_point(target, factory, default)
    made = own(factory())
    if not isinstance(made, fdl.Buildable):
        raise ConfigError(f"Factory {factory!r} returned {made!r}, which is no task.")
    return made


def _from_command_line(text: str) -> tuple[LazyTarget, list[str]]:
    """Return the target that a command line names, and the words for it."""
    words = [text] if text.endswith(".py") and Path(text).is_file() else _words(text)
    if len(words) > 1 and Path(words[0]).name in _INTERPRETERS:
        words = words[1:]
    if not words:
        raise ConfigError("A lazy entrypoint needs a target, such as package.module.function.")
    if words[0].endswith(".py"):
        script = Path(words[0])
        if not script.is_file():
            raise FileNotFoundError(f"Script {words[0]!r} not found.")
        return LazyTarget(words[0], script.read_text(encoding="utf-8")), words[1:]
    if words[0] in _PROGRAMS:
        words = words[1:]
    names = [word for word in words if not word.startswith("-") and "=" not in word]
    count = next((i for i, word in enumerate(words) if word not in names), len(words))
    return LazyTarget(" ".join(words[:count])), words[count:]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as err:
        raise ConfigError(f"{text!r} is not a command line: {err}.") from err


@dataclass
class _Command:
    """Options and overrides of a command line."""

    overrides: list[str]
    factory: str | None = None
    yaml: str | None = None

    @classmethod
    def parse(cls, words: Sequence[str]) -> _Command:
        command = cls([])
        options = {"--factory": "factory", "-f": "factory", "--yaml": "yaml"}
        left = iter(words)
        for word in left:
            name, equals, value = word.partition("=")
            if name in options:
                given = value if equals else next(left, None)
                if given is None:
                    raise ConfigError(f"{word} needs a value.")
                setattr(command, options[name], given)
            elif word.startswith("-"):
                raise ConfigError(f"A lazy entrypoint takes no option {word}. It takes --factory.")
            else:
                command.overrides.append(word)
        return command


fiddle_json.register_node_traverser(
    LazyEntrypoint,
    flatten_fn=lambda lazy: ((lazy._target_, lazy._factory_, list(lazy._args_)), None),
    unflatten_fn=LazyEntrypoint.__unflatten__,
    path_elements_fn=lambda _: tuple(map(daglish.Attr, ("_target_", "_factory_", "_args_"))),
)
fiddle_json.register_node_traverser(
    LazyTarget,
    flatten_fn=lambda target: ((target.import_path, target.script), None),
    unflatten_fn=lambda values, _: LazyTarget(*values),
    path_elements_fn=lambda _: (daglish.Attr("import_path"), daglish.Attr("script")),
)


def __getattr__(name: str) -> Any:
    return _later.find(__name__, name, {"DictConfig": "omegaconf"})
