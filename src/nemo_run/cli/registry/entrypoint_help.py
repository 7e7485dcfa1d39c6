"""The help text of a command: its arguments with all that is inside them, and its options."""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nemo_run._config.fiddle import fdl
from nemo_run.cli.commands.options import Option, options_of
from nemo_run.cli.registry import plugins
from nemo_run.cli.registry.entrypoints import Entrypoint
from nemo_run.cli.registry.factories import DEFAULT_NAME, names_for
from nemo_run.cli.registry.registrations import factories
from nemo_run.cli.terminal.screen import DEFAULT_WIDTH, Screen, two_columns
from nemo_run.cli.values.hints import UNANNOTATED, hint_for, parameters, type_name
from nemo_run.cli.values.parameter import empty_config
from nemo_run.config import get_type_namespace

_MAX_DEPTH = 3


@dataclass(frozen=True)
class Argument:
    """One line of the table: a parameter, or one inside a parameter's own value."""

    path: str
    type: str
    default: str | None
    factories: tuple[str, ...]
    depth: int


def arguments_of(
    fn: Callable[..., Any], prefix: str = "", depth: int = 0, start: Any = None
) -> Iterator[Argument]:
    """Yield the parameters of a function, each followed by those of the class it is of.

    What the config ``start`` sets is the default in place of the function's own.
    """
    given = getattr(start, "__arguments__", {})
    for name, parameter in parameters(fn).items():
        if parameter.kind is parameter.VAR_POSITIONAL or (not prefix and name == "ctx"):
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            yield Argument(f"{prefix}<name>", type_name(hint_for(fn, name)), "", (), depth)
            continue
        hint = hint_for(fn, name)
        yield Argument(
            path=f"{prefix}{name}",
            type="" if hint is UNANNOTATED else type_name(hint),
            default=_shown(given[name]) if name in given else _default(fn, parameter),
            factories=tuple(dict.fromkeys(names_for(fn, name, hint))),
            depth=depth,
        )
        inner = None if hint is UNANNOTATED else empty_config(hint)
        inner = given[name] if isinstance(given.get(name), fdl.Config) else inner
        target = getattr(inner, "__fn_or_cls__", None)
        if target not in (None, dict) and depth + 1 < _MAX_DEPTH and target is not fn:
            yield from arguments_of(target, f"{prefix}{name}.", depth + 1, inner)


def _default(fn: Callable[..., Any], parameter: inspect.Parameter) -> str | None:
    """Return a default the way it would be typed; None where there is none."""
    if dataclasses.is_dataclass(fn):
        for field in dataclasses.fields(fn):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                made = field.default_factory
                return "[]" if made is list else "{}" if made is dict else f"{_name(made)}()"
    if parameter.default is parameter.empty:
        return None
    return _shown(parameter.default)


def _shown(value: Any) -> str:
    if isinstance(value, fdl.Buildable):
        return f"{_name(value.__fn_or_cls__)}()"  # what is in it follows
    shown = reprlib.Repr()
    shown.maxother = shown.maxstring = 40
    return shown.repr(value)


def _name(target: Any) -> str:
    return str(getattr(target, "__name__", target))


def print_help(entrypoint: Entrypoint, program: str, screen: Screen, *, docs: bool = False) -> None:
    """Print how a command is used; with ``docs`` also what factories say about themselves."""
    plugins.load()
    help = _Help(screen)
    arguments = list(arguments_of(entrypoint.fn, start=_start(entrypoint)))
    takes = "[KEY=VALUE ...]" if arguments else ""
    options = "[OPTIONS] " if entrypoint.enable_executor else ""
    screen.usage(f"Usage: {program} {options}{takes}".rstrip())
    described = entrypoint.help_str.partition("\n\n")[2]
    if described:
        help.line()
        help.paragraph(described if docs else described.partition("\n\n")[0])
    help.arguments(arguments)
    help.factories("Starting points, --factory NAME", named_for(entrypoint.fn), docs)
    if entrypoint.enable_executor:
        help.factories(
            "Executors, run.executor=NAME", factories_for("core.execution.base", "Executor"), docs
        )
        help.factories(
            "Plugins, run.plugins=NAME", factories_for("run.plugin", "ExperimentPlugin"), docs
        )
        help.options(options_of(entrypoint.type))
    help.example(entrypoint, program, arguments)


def _start(entrypoint: Entrypoint) -> Any:
    """Return what the command starts from; None where that is nothing, or cannot be made here."""
    usual = entrypoint.default_factory or named_for(entrypoint.fn).get(DEFAULT_NAME)
    try:
        return usual() if usual is not None else None
    except Exception:  # noqa: BLE001 - the user's own; running the command will tell
        return None


class _Help:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._width = screen.width or DEFAULT_WIDTH

    def line(self, text: str = "") -> None:
        self._screen.print(text)

    def paragraph(self, text: str) -> None:
        for part in text.split("\n\n"):
            self.line(
                textwrap.fill(
                    " ".join(part.split()), self._width, initial_indent="  ", subsequent_indent="  "
                )
            )

    def heading(self, text: str) -> None:
        self.line()
        self._screen.heading(text)

    def arguments(self, arguments: list[Argument]) -> None:
        if not arguments:
            return
        self.heading("Arguments:")
        for argument in arguments:
            left = "  " * (argument.depth + 1) + argument.path
            about = f": {argument.type}" if argument.type else ""
            about += f" = {argument.default}" if argument.default else ""
            about += "  (required)" if argument.default is None else ""
            self._entry(left + about)
            if argument.factories:
                self._entry(
                    "  " * (argument.depth + 3) + "one of: " + ", ".join(argument.factories)
                )

    def _entry(self, text: str) -> None:
        indent = " " * (len(text) - len(text.lstrip()) + 4)
        self.line(textwrap.fill(text, self._width, subsequent_indent=indent, drop_whitespace=True))

    def factories(self, title: str, found: dict[str, Callable[..., Any]], docs: bool) -> None:
        if not found:
            return
        self.heading(f"{title}:")
        width = min(24, max(map(len, found)))
        for name, factory in found.items():
            text = inspect.getdoc(inspect.unwrap(getattr(factory, "wrapped", factory))) or ""
            first = " ".join(text.partition("\n\n")[0].split())
            shown = textwrap.shorten(first, max(20, self._width - width - 6), placeholder=" …")
            self.line(f"  {name:<{width}}  {'' if docs else shown}".rstrip())
            if docs and text:
                self.line(textwrap.indent(text, "      "))

    def options(self, options: Iterable[Option]) -> None:
        self.heading("Options:")
        for option in options:
            if option.help:
                self._two_columns(_usage(option), option.help)
        self._two_columns("--help [--docs]", "this text; with docstrings")

    def _two_columns(self, left: str, right: str) -> None:
        for line in two_columns(left, right, self._width, column=34):
            self.line(line)

    def example(self, entrypoint: Entrypoint, program: str, arguments: list[Argument]) -> None:
        words = [program]
        for argument in arguments:
            if argument.depth == 0 and argument.default is None:
                value = argument.factories[0] if argument.factories else "…"
                words.append(f"{argument.path}={value}")
        optional = [a for a in arguments if a.depth == 0 and a.default is not None]
        if optional and " " not in (optional[0].default or " "):
            words.append(f"{optional[0].path}={optional[0].default}")
        if entrypoint.enable_executor:
            words.append("--yes")
        self.heading("Example:")
        self.line("  " + " ".join(words))


def _usage(option: Option) -> str:
    flags = option.usage or ", ".join(option.flags)
    return f"{flags} {option.value}" if option.value and not option.usage else flags


def named_for(target: Any) -> dict[str, Callable[..., Any]]:
    """Return the factories for a class or function, by name."""
    return factories.names(get_type_namespace(target))


def factories_for(module: str, base: str) -> dict[str, Callable[..., Any]]:
    """Return the factories for all classes of a kind; none if that kind was never loaded."""
    loaded = sys.modules.get(f"nemo_run.{module}")
    if loaded is None:
        return {}
    classes = [getattr(loaded, base)]
    for cls in classes:
        classes += [new for new in cls.__subclasses__() if new not in classes]
    return {name: factory for cls in classes for name, factory in named_for(cls).items()}
