"""One run of a command: what was asked for, and doing it."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from nemo_run.cli._confirmation import confirmed
from nemo_run.cli._edit import overrides_from
from nemo_run.cli._errors import ArgumentValueError, CLIException, ParseError
from nemo_run.cli._exports import export_all
from nemo_run.cli._grammar import Override, parse_override
from nemo_run.cli._hints import parameters
from nemo_run.cli._options import InvalidOptionError, RunContextError
from nemo_run.cli._overrides import apply_overrides
from nemo_run.cli._placement import place
from nemo_run.cli._starting import TaskFile, check_complete, read_task_file, start
from nemo_run.cli._suggestions import did_you_mean
from nemo_run.config import Config, ConfigurableMixin, Partial
from nemo_run.run._planning import only_planning

if TYPE_CHECKING:
    import typer

    from nemo_run.cli._entrypoints import Entrypoint
    from nemo_run.core.execution.base import Executor
    from nemo_run.run.experiment import Experiment
    from nemo_run.run.plugin import ExperimentPlugin

PREFIX = "run."
_PLACED = ("executor", "plugins")


@dataclass(kw_only=True)
class RunContext(ConfigurableMixin):
    """The options of one run of a command, and where it runs.

    An experiment with a parameter ``ctx`` gets it, and hands its jobs to `launch`.

    Attributes:
        name: of the run.
        executor: where to run, None for this process; known after `parse_args`.
        plugins: what to apply; known after `parse_args`.
    """

    name: str
    direct: bool = False
    dryrun: bool = False
    factory: str | None = None
    load: str | None = None
    repl: bool = False
    detach: bool = False
    skip_confirmation: bool = False
    tail_logs: bool = False
    yaml: str | None = None
    to_yaml: str | None = None
    to_toml: str | None = None
    to_json: str | None = None

    executor: Executor | None = field(init=False, default=None)
    plugins: list[ExperimentPlugin] = field(init=False, default_factory=list)
    # The command that is run, which says what tasks start from; found at the function if None.
    _entrypoint: Entrypoint | None = field(init=False, default=None, repr=False)
    _launched: list[Experiment] = field(init=False, default_factory=list, repr=False)

    @classmethod
    def cli_command(
        cls,
        parent: typer.Typer,
        name: str,
        fn: Callable[..., Any],
        default_factory: Callable[..., Any] | None = None,
        default_executor: Any = None,
        default_plugins: Any = None,
        type: Literal["task", "experiment"] = "task",
        command_kwargs: dict[str, Any] | None = None,
        is_main: bool = False,
        cmd_defaults: dict[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Register ``fn`` as a command of a typer application and return the command."""
        from nemo_run.cli._entrypoints import Entrypoint
        from nemo_run.cli._typer import add_entrypoint

        made = Entrypoint(
            fn,
            namespace=fn.__module__,
            default_factory=default_factory,
            default_executor=default_executor,
            default_plugins=default_plugins,
            name=name,
            type=type,
            run_ctx_cls=cls,
        )
        return add_entrypoint(parent, made, defaults=cmd_defaults, **(command_kwargs or {}))

    def cli_execute(
        self,
        fn: Callable[..., Any],
        args: Sequence[str],
        entrypoint_type: Literal["task", "experiment"] = "task",
    ) -> Any:
        """Do what the words ask for: run a task, or call the function of an experiment.

        Raises:
            CLIException: a word does not fit.
            JobFailedError: the job did not succeed.
        """
        if self.load:
            raise RunContextError("--load is not implemented. Use --yaml with an exported file.")
        words = self.parse_args(args)
        if self.detach and self.direct:
            raise InvalidOptionError("--detach and --direct exclude each other.")
        if entrypoint_type == "task":
            return self._execute_task(fn, words)
        if entrypoint_type == "experiment":
            return self._execute_experiment(fn, words)
        raise RunContextError(f"type is 'task' or 'experiment', not {entrypoint_type!r}.")

    def _execute_task(self, fn: Callable[..., Any], words: Sequence[str]) -> Any:
        try:
            task = self.parse_fn(fn, words)
        except ParseError as err:
            if _lists_values(err.value):
                err.message += ". Say --sweep to run once for each of several values"
            raise
        if self._exported(task):
            return None
        if self.repl:
            from nemo_run.cli._shell_session import open_shell

            return open_shell(task, functools.partial(self.run_task, task))
        if self.detach and self.executor is None:
            raise InvalidOptionError(
                "--detach needs an executor: a task in this process ends with it. "
                "Name one with run.executor=NAME."
            )
        self._show(task)
        check_complete(task)
        if self.dryrun:
            self._show_request(task)
            return None
        return self.run_task(task) if confirmed(self.name, skip=self.skip_confirmation) else None

    def run_task(self, task: Any) -> None:
        """Run a task as this context says."""
        from nemo_run.run.api import run

        run(
            task,
            name=self.name,
            executor=self.executor,
            plugins=self.plugins or None,
            direct=self.direct or self.executor is None,
            detach=self.detach,
            tail_logs=self.tail_logs,
        )

    def _show_request(self, task: Partial[Any]) -> None:
        from nemo_run.run.api import run

        if self.executor is not None and not self.direct:
            run(
                task,
                name=self.name,
                executor=self.executor,
                plugins=self.plugins or None,
                dryrun=True,
            )

    def _show(self, task: Partial[Any]) -> None:
        from nemo_run.api import show_task

        show_task(task, self.executor, heading="Dry run for task" if self.dryrun else "Task")

    def _execute_experiment(self, fn: Callable[..., Any], words: Sequence[str]) -> Any:
        from nemo_run._fiddle import fdl

        arguments = {"ctx": self} if "ctx" in parameters(fn) else {}
        task = self.parse_fn(fn, words, **arguments)
        if self._exported(task):
            return None
        self._show(task)
        check_complete(task)
        if self.dryrun and not arguments:
            # Nobody could tell the function not to launch anything.
            print("Only this can be shown: it has no parameter ctx.", file=sys.stderr)
            return None
        if not self.dryrun and not confirmed(self.name, skip=self.skip_confirmation):
            return None
        result = fdl.build(task)()
        for experiment in self._launched if not self.detach else ():
            experiment.raise_if_failed()
        return result

    def _exported(self, task: Partial[Any]) -> bool:
        return export_all(
            task,
            {"yaml": self.to_yaml, "toml": self.to_toml, "json": self.to_json},
            leave_out=("ctx",),
        )

    def launch(self, experiment: Experiment, sequential: bool = False) -> None:
        """Run an experiment, or only show it, as the command line asked for.

        The command fails if one of its jobs does.
        """
        if self.dryrun:
            experiment.dryrun()
            return
        experiment.run(
            sequential=sequential,
            detach=self.detach,
            direct=self.direct or self.executor is None,
            tail_logs=self.tail_logs,
        )
        self._launched.append(experiment)

    def parse_fn(
        self, fn: Callable[..., Any], args: Sequence[str], **default_kwargs: Any
    ) -> Partial[Any]:
        """Return the task that a factory, a file and words describe."""
        entrypoint = self._entrypoint or getattr(fn, "cli_entrypoint", None)
        return start(
            fn,
            args,
            factory=self.factory,
            default_factory=getattr(entrypoint, "default_factory", None),
            file=self._file,
            arguments={**getattr(entrypoint, "configured", {}), **default_kwargs},
        )

    def parse_args(self, args: Sequence[str]) -> list[str]:
        """Take in the words that begin with ``run.`` and return the others.

        ``executor`` and ``plugins`` are what is started from, and are objects afterwards.
        """
        changes = overrides_from(self._file.run, file=self._file.name)
        others = []
        for word in args:
            if word.lstrip().startswith(PREFIX):
                changes.append(parse_run_word(word))
            else:
                others.append(word)
        placed = [change for change in changes if _head(change) in _PLACED]
        self._set_fields([change for change in changes if _head(change) not in _PLACED])
        self.dryrun = self.dryrun or only_planning()
        self.executor, self.plugins = place(type(self), self.executor, self.plugins, placed)
        return others

    def _set_fields(self, changes: Sequence[Override]) -> None:
        config = self.to_config()
        known = [f"{PREFIX}{name}" for name in (*config.__arguments__, *_PLACED)]
        for change in changes:
            name = f"{PREFIX}{_head(change)}"
            if name not in known:
                raise ArgumentValueError(
                    f"There is no {name}. {did_you_mean(name, known)}", f"{PREFIX}{change}"
                )
        try:
            apply_overrides(config, changes)
        except CLIException as err:
            err.arg = f"{PREFIX}{err.arg}"  # as it was written
            raise
        for name in {_head(change) for change in changes}:
            setattr(self, name, getattr(config, name))

    def parse_executor(self, name: str, *args: str) -> Executor | None:
        """Return the executor that an expression names, changed by words without ``run.``."""
        words = [parse_override(f"executor.{word}") for word in args]
        named = parse_override(f"executor={name}")
        return place(type(self), None, None, [named, *words])[0]

    def parse_plugin(self, name: str, *args: str) -> list[ExperimentPlugin]:
        """Return the plugins that a factory expression names, changed by words; see above."""
        words = [parse_override(f"plugins.{word}") for word in args]
        named = parse_override(f"plugins={name}")
        return place(type(self), None, None, [named, *words])[1]

    def to_config(self) -> Config[Any]:
        """Return a config of the options, without executor and plugins."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return Config(type(self), **fields)

    @classmethod
    def get_help(cls) -> str:
        """Return the first lines of the class's docstring, as its help text."""
        return (cls.__doc__ or "").partition("Attributes:")[0].strip()

    @functools.cached_property
    def _file(self) -> TaskFile:
        return read_task_file(self.yaml) if self.yaml else TaskFile()


def parse_run_word(word: str) -> Override:
    """Return the change to a run context that a word beginning with ``run.`` describes.

    Raises:
        ArgumentParsingError: the word is not of the form run.key=value.
    """
    override = parse_override(word)
    return dataclasses.replace(override, key=override.key.removeprefix(PREFIX))


def _lists_values(text: str) -> bool:
    """Tell whether a sweep would take several values from a text."""
    from nemo_run.cli._sweeps import values_of

    try:
        return len(values_of(text)) > 1
    except CLIException:
        return False


def _head(change: Override) -> str:
    first = change.steps[0]
    return first if isinstance(first, str) else str(first.key)
