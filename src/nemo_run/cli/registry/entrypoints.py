"""Functions that can be run as commands."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload, runtime_checkable

from nemo_run.cli.registry import plugins
from nemo_run.cli.registry.factories import factory
from nemo_run.cli.registry.registrations import entrypoints
from nemo_run.config import Partial
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    import typer
    from rich.console import Console

ROOT_ENTRYPOINT_NAMESPACE = "nemo_run.cli.entrypoints"

EntrypointType = Literal["task", "experiment"]
F = TypeVar("F", bound=Callable[..., Any])


class Entrypoint:
    """A function registered as a command, and what the command starts from.

    Calling it calls the function.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        namespace: str,
        default_factory: Callable[..., Any] | None = None,
        default_executor: Any = None,
        default_plugins: Any = None,
        env: dict[str, str] | None = None,
        name: str | None = None,
        help_str: str | None = None,
        enable_executor: bool = True,
        skip_confirmation: bool = False,
        type: EntrypointType = "task",
        run_ctx_cls: Any = None,
    ):
        if type == "task" and "executor" in inspect.signature(fn).parameters:
            raise ConfigError(
                f"{fn.__qualname__} cannot have a parameter named 'executor': run.executor says "
                "where a task runs. Rename the parameter."
            )
        self.fn = fn
        self.namespace = namespace
        self.default_factory = default_factory
        self.default_executor = default_executor
        self.default_plugins = default_plugins
        self.env = env or {}
        self.name = name or fn.__name__
        self.help_str = _help(self.name, help_str if help_str is not None else _summary(fn))
        self.enable_executor = enable_executor
        self.skip_confirmation = skip_confirmation
        self.type = type
        self.run_ctx_cls = run_ctx_cls
        self.configured: dict[str, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Entrypoint {self.path}>"

    @property
    def path(self) -> str:
        """The namespace and the function's own name, joined by a dot."""
        return f"{self.namespace}.{self.fn.__name__}"

    def configure(self, **fn_kwargs: Any) -> None:
        """Let commands start with these arguments set."""
        self.configured = dict(fn_kwargs)

    def parse_partial(self, args: Sequence[str], **default_args: Any) -> Partial[Any]:
        """Return the task that command-line words describe; see `parse_cli_args`.

        ``default_args`` are set before the words are applied.
        """
        from nemo_run.cli.values.overrides import parse_cli_args

        start: Partial[Any] = Partial(self.fn, **{**self.configured, **default_args})
        return cast("Partial[Any]", parse_cli_args(start, args))

    def cli(self, parent: typer.Typer) -> None:
        """Register the command with a typer application."""
        from nemo_run.cli.commands.typer_app import add_entrypoint

        add_entrypoint(parent, self)

    def _execute_simple(self, args: Sequence[str], console: Console | None = None) -> Any:
        """Call the function in this process with what words describe; positions count, too.

        What a command without options for running does. A subclass may do something else: then it
        is called for all commands of that class, unless the words ask for how or where to run.
        """
        from nemo_run._config.fiddle import fdl
        from nemo_run.cli.commands.options import check_no_flags
        from nemo_run.cli.commands.task_source import start

        check_no_flags(args, [])
        task = start(
            self.fn,
            args,
            default_factory=self.default_factory,
            arguments=self.configured,
            positions=True,
        )
        self.fn.__io__ = task  # type: ignore[attr-defined]  # where simple commands look for it
        return fdl.build(task)()

    def main(self, cmd_defaults: Mapping[str, Any] | None = None) -> None:
        """Run the command with the words of this process; exits if it does not end well."""
        from nemo_run.cli.commands.entrypoint_command import execute

        program = f"python {Path(sys.argv[0]).name}"
        code = execute(self, sys.argv[1:], program=program, defaults=cmd_defaults)
        if code:
            sys.exit(code)

    def help(self, with_docs: bool = False) -> None:
        """Print how the command is used."""
        from nemo_run.cli.registry.entrypoint_help import print_help
        from nemo_run.cli.terminal.screen import Screen

        print_help(self, self.name, Screen(), docs=with_docs)


def _summary(fn: Callable[..., Any]) -> str:
    """Return the docstring up to the part that describes the parameters."""
    return (inspect.getdoc(fn) or "").partition("Args:")[0].strip()


def _help(name: str, text: str) -> str:
    return f"{name}\n\n{text}" if text else name


@runtime_checkable
class EntrypointProtocol(Protocol):
    """A function that `entrypoint` has registered."""

    @property
    def cli_entrypoint(self) -> Entrypoint: ...


@overload
def entrypoint(
    fn: F,
    *,
    name: str | None = None,
    namespace: str | None = None,
    help: str | None = None,
    skip_confirmation: bool = False,
    enable_executor: bool = True,
    default_factory: Callable[..., Any] | None = None,
    default_executor: Any = None,
    default_plugins: Any = None,
    entrypoint_cls: type[Entrypoint] | None = None,
    type: EntrypointType = "task",
    run_ctx_cls: Any = None,
) -> F: ...
@overload
def entrypoint(
    fn: None = None,
    *,
    name: str | None = None,
    namespace: str | None = None,
    help: str | None = None,
    skip_confirmation: bool = False,
    enable_executor: bool = True,
    default_factory: Callable[..., Any] | None = None,
    default_executor: Any = None,
    default_plugins: Any = None,
    entrypoint_cls: type[Entrypoint] | None = None,
    type: EntrypointType = "task",
    run_ctx_cls: Any = None,
) -> Callable[[F], F]: ...
def entrypoint(
    fn: Any = None,
    *,
    name: str | None = None,
    namespace: str | None = None,
    help: str | None = None,
    skip_confirmation: bool = False,
    enable_executor: bool = True,
    default_factory: Callable[..., Any] | None = None,
    default_executor: Any = None,
    default_plugins: Any = None,
    entrypoint_cls: Any = None,
    type: EntrypointType = "task",
    run_ctx_cls: Any = None,
) -> Any:
    """Register a function as a command and return it, with its `Entrypoint` as ``cli_entrypoint``.

    Args:
        fn: the function; without it, a decorator is returned.
        name: what to call the command; otherwise the function's own name.
        namespace: the group it is in, dotted; otherwise the module this is called from.
        help: its help text; otherwise the docstring up to ``Args:``.
        skip_confirmation: do not ask before running.
        enable_executor: False for a simple command, which is parsed and called and has no options
            about where and how to run.
        default_factory: makes the `Partial` to start from, also registered as the function's
            default factory.
        default_executor: where to run if the command line does not say.
        default_plugins: what to apply if the command line does not say.
        entrypoint_cls: used in place of `Entrypoint`.
        type: a ``task`` is configured and run; an ``experiment`` launches tasks itself.
        run_ctx_cls: used in place of the usual run context.

    Raises:
        ValueError: a task has a parameter named ``executor``.
    """
    register = functools.partial(
        _register,
        entrypoint_cls or Entrypoint,
        namespace=namespace or _caller_module(depth=2),
        default_factory=default_factory,
        default_executor=default_executor,
        default_plugins=default_plugins,
        name=name,
        help_str=help,
        enable_executor=enable_executor,
        skip_confirmation=skip_confirmation,
        type=type,
        run_ctx_cls=run_ctx_cls,
    )
    return register if fn is None else register(fn)


def _register(make: Any, fn: Any, *, namespace: str, default_factory: Any, **settings: Any) -> Any:
    made = make(fn, namespace=namespace, default_factory=default_factory, **settings)
    if default_factory is not None:
        factory(default_factory, target=fn, is_target_default=True)
    entrypoints.add(namespace, fn.__name__, made)
    fn.cli_entrypoint = made
    return fn


def _caller_module(depth: int) -> str:
    space = sys._getframe(depth).f_globals
    module = str(space.get("__name__", "__main__"))
    if module == "__main__" and space.get("__file__"):
        return Path(space["__file__"]).stem
    return module


def list_entrypoints(namespace: str | None = None) -> dict[str, Any]:
    """Return the registered entrypoints, nested by the parts of their paths.

    Plug-ins and the workspace file are loaded first. With ``namespace``, only what is in it.
    """
    plugins.load()
    return registered_entrypoints(namespace)


def registered_entrypoints(namespace: str | None = None) -> dict[str, Any]:
    """Return what `list_entrypoints` does, of what this process has registered so far."""
    wanted = namespace.split(".") if namespace else []
    tree: dict[str, Any] = {}
    for space, name, found in entrypoints:
        parts = space.split(".")
        if parts[: len(wanted)] != wanted:
            continue
        branch = tree
        for part in parts:
            branch = branch.setdefault(part, {})
        branch[name] = found
    return tree
