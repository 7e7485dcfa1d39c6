"""What to run: deferred calls (`Config`, `Partial`) and scripts (`Script`)."""

from __future__ import annotations

import functools
import itertools
import logging
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Optional, TypeVar, Union

from nemo_run._config import buildables as _buildables
from nemo_run._config import defaults as _defaults
from nemo_run._config import drawing as _drawing
from nemo_run._config import later as _later
from nemo_run._config import scripts as _scripts
from nemo_run._config.annotations import from_dict, get_type_namespace, get_underlying_types
from nemo_run._config.fiddle import fdl, get_signature, get_type_hints, register_supported_cast
from nemo_run._config.paths import set_value
from nemo_run._home import get_nemorun_home, set_nemorun_home
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from graphviz import Graph
    from typing_extensions import Self

__all__ = [
    "RECURSIVE_TYPES",
    "RUNDIR_NAME",
    "RUNDIR_SPECIAL_NAME",
    "SCRIPTS_DIR",
    "USE_WITH_RAY_CLUSTER_KEY",
    "Config",
    "ConfigT",
    "ConfigurableMixin",
    "OptionalDefaultConfig",
    "OptionalDefaultPartial",
    "Partial",
    "Script",
    "from_dict",
    "get_nemorun_home",
    "get_type_namespace",
    "get_underlying_types",
    "set_nemorun_home",
    "set_value",
]

RUNDIR_NAME = "nemo_run"
RUNDIR_SPECIAL_NAME = "/$nemo_run"
SCRIPTS_DIR = "scripts"
USE_WITH_RAY_CLUSTER_KEY = "use_with_ray_cluster"
RECURSIVE_TYPES = (Union, Optional)

T = TypeVar("T")
ConfigT = TypeVar("ConfigT")

log = logging.getLogger(__name__)


class _Drawable:
    """Pictures of an object that Fiddle can walk."""

    def visualize(self, **kwargs: Any) -> Graph:
        """Return a Graphviz graph."""
        return _drawing.draw(self, **kwargs)

    def save_config_img(self, path: str) -> None:
        """Write a picture to ``path``, or to ``config.png`` in it where it has no suffix."""
        _drawing.save_png(self, path)

    def _repr_svg_(self) -> str | None:
        return _svg_or_none(self)


def _svg_or_none(config: Any) -> str | None:
    # A notebook shows repr() instead where this returns None; failing would hide the value.
    try:
        return _drawing.svg(config)
    except Exception as err:  # noqa: BLE001 - anything a value's repr or Graphviz may raise
        print(f"No picture of this config: {err}")
        return None


class _NemoBuildable(_Drawable):
    """What `Config` and `Partial` can do beyond Fiddle's own classes."""

    def clone(self) -> Self:
        """Return an independent deep copy."""
        return _buildables.deep_copy(self, {})  # type: ignore[type-var]  # mixed into buildables

    def walk(self, **kwargs: Callable[[Any], Any]) -> Self:
        """Set each named argument, wherever a config inside has it, to ``fn(that config)``.

        Lists, tuples and dicts are entered, a shared config is visited once, and names that
        no config has are ignored. Changes this config and returns it.
        """
        for buildable in _buildables.buildables(self):
            for name, compute in kwargs.items():
                if _has(buildable, name):
                    setattr(buildable, name, compute(buildable))
        return self

    def broadcast(self, **kwargs: Any) -> Self:
        """Set each named argument to a value wherever a config inside has it; see `walk`."""
        return self.walk(**{name: _constant(value) for name, value in kwargs.items()})

    def diff(self, old: fdl.Buildable[Any], trim: bool = True, **kwargs: Any) -> Graph:
        """Return a Graphviz graph of what changed from ``old`` to this."""
        return _drawing.draw_diff(old, self, trim=trim, **kwargs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, fdl.Buildable):
            return NotImplemented
        return _buildables.equal(self, other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return _buildables.deep_copy(self, memo)  # type: ignore[type-var]  # mixed into buildables

    def __dir__(self) -> list[str]:
        return sorted(name for name in super().__dir__() if isinstance(name, str))


def _has(buildable: fdl.Buildable[Any], name: str) -> bool:
    if name not in buildable.__arguments__ and name not in buildable.__signature_info__.parameters:
        return False
    try:
        return hasattr(buildable, name)
    except ValueError:  # a dataclass field whose default only its factory knows
        return False


def _constant(value: T) -> Callable[[Any], T]:
    return lambda _: value


class Config(_NemoBuildable, Generic[T], fdl.Config[T]):
    """A call to make later: building it calls ``fn_or_cls`` with the arguments set on it.

    Dataclass instances given as keyword arguments become configs of their classes, so that
    they can be edited and stored. Parameters annotated `OptionalDefaultConfig` or
    `OptionalDefaultPartial` start as an empty config. ``bind_args=False`` leaves arguments as
    they are. Required arguments may be missing until the config is built.
    """

    def __init__(
        self,
        fn_or_cls: Callable[..., T] | dict[Any, Any],
        /,
        *args: Any,
        bind_args: bool = True,
        **kwargs: Any,
    ) -> None:
        target: Any = dict if _means_dict(fn_or_cls) else fn_or_cls
        super().__init__(target, *args, **_prepare(target, args, kwargs, bind_args))

    def __build__(self, /, *args: Any, **kwargs: Any) -> T:
        made: T = self.__fn_or_cls__(*args, **kwargs)
        # Of an object that was stored, also what its constructor does not take.
        for name, value in self.__dict__.get(_later.ATTRIBUTE, {}).items():
            setattr(made, name, _buildables.built(value))
        return made


class Partial(_NemoBuildable, Generic[T], fdl.Partial[T]):
    """A call to be made later: building it gives a ``functools.partial``.

    Takes arguments like `Config`.
    """

    def __init__(
        self,
        fn_or_cls: Callable[..., T],
        /,
        *args: Any,
        bind_args: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(fn_or_cls, *args, **_prepare(fn_or_cls, args, kwargs, bind_args))


_buildables.PLAIN_KINDS.update({Config, Partial})
for _source, _target in itertools.product(
    (fdl.Config, fdl.Partial, Config, Partial), (Config, Partial)
):
    register_supported_cast(_source, _target)


OptionalDefaultConfig = Annotated[T | None, Config[T]]
OptionalDefaultPartial = Annotated[T | None, Partial[T]]


def _means_dict(fn_or_cls: Any) -> bool:
    return isinstance(fn_or_cls, dict) or typing.get_origin(fn_or_cls) is dict


def _prepare(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], bind_args: bool
) -> dict[str, Any]:
    """Return the keyword arguments with dataclasses converted and default configs filled in."""
    if not bind_args or isinstance(target, fdl.Buildable):
        return kwargs
    prepared = {
        name: _buildables.from_dataclass(value, Config)
        if _buildables.is_dataclass_instance(value)
        else value
        for name, value in kwargs.items()
    }
    try:
        positional = list(get_signature(target).parameters)[: len(args)]
    except (TypeError, ValueError):  # no signature to be had; Fiddle says so
        return prepared
    for name, make_default in _default_configs(target):
        if name not in positional and prepared.get(name) is None:
            prepared[name] = make_default()
    return prepared


def _default_configs(target: Any) -> typing.Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the parameters that start as an empty config, and how to make it."""
    for name, hint in get_type_hints(target, include_extras=True).items():
        for note in getattr(hint, "__metadata__", ()):
            kind = typing.get_origin(note)
            if kind in (Config, Partial):
                wanted = get_underlying_types(hint) - {type(None)}
                yield name, functools.partial(kind, *wanted)


class ConfigurableMixin(_Drawable):
    """Lets an object be looked at as the config that would make it again."""

    _keeps_what_is_set_later: ClassVar[bool] = False
    """Whether a stored object keeps attributes, too, that its constructor does not take."""

    def to_config(self) -> Config[Any]:
        """Return a config with every field that the constructor takes.

        Lists, tuples and dicts return themselves.

        Raises:
            NotImplementedError: this is not a dataclass; override the method.
        """
        if isinstance(self, (list, tuple, dict)):
            return typing.cast("Config[Any]", self)
        if not _buildables.is_dataclass_instance(self):
            raise NotImplementedError(
                f"{type(self).__name__} is not a dataclass, so its config is not known. "
                "Override to_config()."
            )
        try:
            return typing.cast("Config[Any]", _buildables.from_dataclass(self, Config))
        except (AttributeError, TypeError, ValueError) as err:
            raise NotImplementedError(
                f"The config of this {type(self).__name__} is not known: {err}. "
                "Override to_config()."
            ) from err

    def diff(self, old: ConfigurableMixin, trim: bool = True, **kwargs: Any) -> Graph:
        """Return a Graphviz graph of what changed from ``old`` to this."""
        return _drawing.draw_diff(old.to_config(), self.to_config(), trim=trim, **kwargs)

    def _repr_svg_(self) -> str | None:
        return _svg_or_none(self.to_config())


# As long as a job's name gets without being given.
MAX_NAME = 60


@dataclass
class Script(ConfigurableMixin):
    """A script to run: a file at ``path`` (with ``m``, a module), or text given ``inline``.

    A ``path`` that names no file and has blanks in it is taken for a whole command line.
    """

    path: str = ""
    inline: str = ""
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    entrypoint: str = "bash"
    m: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _defaults.fill_in(self)
        if isinstance(self.args, str):
            raise ConfigError(f"args is a list of words, not the text {self.args!r}.")
        if not (self.path or self.inline):
            raise ConfigError("A Script needs something to run: give it a path or inline text.")
        if not self.entrypoint:
            raise ConfigError('A Script needs an entrypoint, such as "bash" or "python".')
        if self.m and "python" not in self.entrypoint:
            raise ConfigError(
                f"m=True runs a Python module, which {self.entrypoint!r} cannot do. "
                'Use entrypoint="python".'
            )

    def __repr__(self) -> str:
        # Not needed unless a script is shown.
        from nemo_run._secrets.masking import masked_text, masked_value

        shown = {
            item.name: masked_value(item.name, getattr(self, item.name)) for item in fields(self)
        }
        shown["inline"] = masked_text(self.inline)
        return f"Script({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def get_name(self) -> str:
        """Return the default id of a job that runs this."""
        if self.inline:
            return re.sub(r"[^a-zA-Z0-9]+", "_", self.inline.strip()[:10])
        words = self._words()
        return Path(self.path).name if words is None else _scripts.name_of(words)[:MAX_NAME]

    def to_command(
        self,
        with_entrypoint: bool = False,
        filename: str | None = None,
        is_local: bool = False,
        substitute_rundir_path: str | None = None,
    ) -> list[str]:
        """Return the argument vector, after writing inline text to ``filename`` if one is given.

        The file is named as the job will see it: as it is where ``is_local``, otherwise below
        ``/nemo_run/scripts``. ``substitute_rundir_path`` replaces ``/nemo_run`` in inline text.
        """
        script = self.resolved()
        if not script.inline:
            command = [*(["-m"] if script.m else []), script.path, *script.args]
        elif filename is None:
            escaped = script.inline.replace('"', '\\"')
            command = ["-c", f'"{escaped}"']
        else:
            script._write(Path(filename), substitute_rundir_path)
            seen_as = (
                filename if is_local else f"/{RUNDIR_NAME}/{SCRIPTS_DIR}/{Path(filename).name}"
            )
            command = [seen_as, *script.args]
        return [script.entrypoint, *command] if with_entrypoint and script.entrypoint else command

    def resolved(self) -> Script:
        """Return this script with a command line in ``path`` taken apart; otherwise itself."""
        words = self._words()
        if words is None:
            return self
        entrypoint = words.pop(0) if self.entrypoint == "bash" else self.entrypoint
        path, *rest = words
        return Script(
            path=path,
            args=[*rest, *self.args],
            env=self.env,
            entrypoint=entrypoint,
            metadata=self.metadata,
        )

    def _words(self) -> list[str] | None:
        """Return the words of a command line in ``path``, or None where it is just a path."""
        if self.inline or self.m or not re.search(r"\S\s+\S", self.path):
            return None
        return _scripts.words_in(self.path)

    def _write(self, target: Path, rundir: str | None) -> None:
        _scripts.write(target, self.inline, self.entrypoint, rundir)


def __getattr__(name: str) -> Any:
    if name == "NEMORUN_HOME":
        return get_nemorun_home()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
